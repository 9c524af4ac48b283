"""The terminal app.

app, look, keys, terminal     the application, its colours, its keys, what is below it
screens/                      the conversation, and sheets over it
widgets/                      what the conversation's screen is made of
driver, coalesce, messages    from a turn's events to what the screen must know
blocks, markdown, tool_cards, layout, highlights
                              what a transcript is made of, and how it becomes lines
commands                      the slash commands in one table; `doings`, `session_doings`, `reports`
                              and their like carry them out
desk                          what is asked of the rest of keen, as a protocol
plain, plain_commands         the same conversation in plain lines, without a screen
"""
