"""The command line: the verbs of `loopscale`, with their options and their output.

`loopscale --help` answers within 0.3 s, and `loopscale best` needs no torch. Modules here therefore import other
packages inside the functions that use them, and annotate with `"types.Study"` (see `interface.types`).

To add a verb, copy `query.py` and register the verb in `main.py`.
"""
