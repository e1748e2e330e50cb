"""The command line: one file a verb, and nothing heavy imported until a verb needs it.

To add a verb, copy `query.py`, and name it in `main.py`.
"""
