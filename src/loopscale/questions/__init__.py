"""The questions of a study: the evidence and the verdict of a claim, for a running study and for recorded results.

`runs` has the noun: cells with their runs. `claim_evidence` compares the two sides of a claim, and `claim_verdict`
gives the word. The looks of a running study and the reports call the same functions, so they cannot disagree.
"""
