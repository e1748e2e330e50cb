"""The papers' bounds and the exact references, as functions of named settings; one file a system.

To add one, add a class with its own `kind` to the file of its system, or a file for a system that is new;
`descent.py` is the one to copy. Nothing lists the bounds: they are found by scanning, and
`tests/theory/test_bounds.py` tests every one.
"""
