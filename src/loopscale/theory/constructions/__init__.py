"""Constructions: formulas for weights with which a net of `models/` runs an algorithm. One file per theorem family.

To add a construction, add a class with its own `kind` to the file of its family, or add a file for a new family.
Copy `regression.py`. No list of constructions exists: the package is scanned for them. `tests/contracts/` and
`tests/theory/constructions/` compare every construction with its algorithm.
"""
