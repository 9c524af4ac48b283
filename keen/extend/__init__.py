"""What people bring along: MCP servers, skills, subagents, hooks, instructions.

Nothing here is loaded before it is used; `keen/extensions.py` puts it together.

mcp, mcp_config, mcp_messages       servers: their tools, their entries, their resources and prompts
skills, slash                       skills and commands, told to the model and called by a person
subagents, profiles                 the `task` tool's conversations, and who they may be
hooks, project_hooks, notify        programs that are asked or told
instructions, project_text          AGENTS.md, and how text of projects is read; `front_matter`
"""
