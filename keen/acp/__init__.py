"""keen as an agent of the Agent Client Protocol: requests in, updates out.

serve stdio                   one connection: messages over descriptors
agent session                 what each request means; one session and the prompt that runs in it
translate updates replay      from events, and from saved records, to what a client is told
calls words                   how a call and its output look
prompts commands reports      what the person sends, and what keen itself answers
permissions trusting choices models
                              what the person is asked, and what they may choose
files servers saved failures  the editor's files and MCP servers, sessions on disk, errors
"""
