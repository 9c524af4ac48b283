"""The parts of scripts/bench: rows, what they run, and the table they fill."""
