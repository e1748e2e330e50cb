"""Bounds of the papers and exact references, as functions of named settings.

Each module covers one problem or one method. To add a bound, add a class with its own `kind` to the matching module,
or add a module with its constant `SYSTEM`; `descent.py` is a good template. A scan of this package finds all bounds,
and `tests/theory/test_bounds.py` tests each of them.
"""
