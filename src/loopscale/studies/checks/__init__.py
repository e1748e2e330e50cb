"""Faults of a study that only its parts together show. `study` has the order of all checks."""
