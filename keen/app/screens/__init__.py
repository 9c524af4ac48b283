"""The conversation's screen, in layers that each know those below, and sheets over it.

conversation  widgets and state
turn_view     what changes when the running turn tells something
outside       shell, editor, clipboard, pictures
driving       starting turns, compactions and asides; the modes
opening       engines: opened, replaced, closed; the way out
asking        permission cards and questions in the prompt's place
chat          the keys, and what is sent when

sheet is a list or a text over all that: sessions, rewind, context, setup.
"""
