"""What a study will need and can show, before the first step: `plan` joins all parts.

`room` says how far settings can move the error, `power` gives the chances of verdicts, `noise` the spread between
replicates, and `learning_times` the share of nets that learn. The tables `noise.csv` and `emergence.csv` come from the
recorded studies of the project; the command `make noise` writes them.
"""
