"""Values and arithmetic that every other room speaks in: no I/O, no third-party import.

messages      what a conversation is made of
events        what happens in a turn; all that screens, scripts and the recorder see of it
errors        what can go wrong, one class per reaction
models        what is known of a model
budget, estimate    how much of its window may be used, and how much a request uses
"""
