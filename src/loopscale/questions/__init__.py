"""The questions of a study: what a claim or a law says, its evidence, and its verdict.

`claim` and `law` have what a study's file says, and `measures` the measures of curves. `runs` has the noun: cells
with their runs. `claim_evidence` compares the two sides of a claim, and `claim_verdict` gives the verdict. The looks
of a running study and the reports call the same functions, so they cannot disagree.
"""
