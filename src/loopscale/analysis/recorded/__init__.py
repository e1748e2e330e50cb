"""Recorded results as a reader needs them: `load` finds them, and `results` has cells, trials and curves."""
