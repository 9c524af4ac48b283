"""One file a subcommand. Nothing is imported here before the command line has chosen one.

`parsing` and `arguments` read the command line, `interactive` and `run` start conversations, `desk`
is what the app asks of the rest of keen; the others are small programs of their own.
"""
