"""A study in simulated time: the real decisions, and recorded or made-up learning curves."""
