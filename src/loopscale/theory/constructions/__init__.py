"""Weights that provably run an algorithm: nets of `models/`, set by a formula; one file a theorem family.

To add one, add a class with its own `kind` to the file of its family, or a file for a family that is new;
`regression.py` is the one to copy. Nothing lists the constructions: they are found by scanning, and
`tests/theory/constructions/` holds every one against the algorithm that it is to run.
"""
