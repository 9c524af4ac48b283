"""The six protocols: translation, nothing else. Only `base` is known to the rest of keen.

base          what a protocol has to do; `registry` finds one by name, `catalogue` knows models
chat responses codex anthropic google bedrock demo
              one protocol each: encode a request, stream the answer, name the errors
local         the model servers of this machine

Beside them, shared: `_handoff` makes one protocol's history fit another, `_history` encodes only
what is new, `_overflow` (with its table, `_phrases`) tells a refusal for size from any other,
`_transport` names what goes wrong below the protocol, `_waits` reads how long to wait.
"""
