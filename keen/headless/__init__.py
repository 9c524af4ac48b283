"""`keen run`: `run` consumes a turn's events, `output` writes them in one of three formats."""
