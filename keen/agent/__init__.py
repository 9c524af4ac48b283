"""The turn: one loop for all protocols, which makes room for itself.

conversation  what lasts from turn to turn; it starts each `turn`
turn          ask, run tools, ask again: the one loop
dialogue      its messages and the request they make; `view` says what of them is sent
headroom      makes requests fit before they are sent: `measure`, then a compaction
transaction   one compaction, all of it or nothing: `compaction` asks for it with `prompts`, over a
              history that `flatten` wrote down
sampling      one request until it is answered or refused for good, by the schedule of `retry`
toolbox       the calls of an answer, run; `gate` is what hooks may say to it
stream        from all that to one stream of events
"""
