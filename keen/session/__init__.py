"""Sessions on disk: append-only logs and what is made of them.

records       the lines of a file, the only schema that is kept
log           appends to one; `lock`, `files` and `reading` hold it together whatever happens
checkpoint    records a turn while it runs, from its events: `segments`, `turns`, `bounds`
projection    from records to what a model is sent and to what a screen replays
store         where sessions are; `listing` and `export` show them, `snapshots` keeps edited files
"""
