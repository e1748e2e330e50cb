"""Statistics: intervals, contrasts, fits and their uncertainty. Arrays in, small dataclasses out."""
