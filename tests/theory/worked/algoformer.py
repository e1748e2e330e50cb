"""Loops of AlgoFormer, and errors of softmax attention."""

WORKED = [
    # The catalogue drew its score. The score 2.5694 gives the catalogued bound and the catalogued error (.03329).
    ("softmax_linear", {"small": 0.01, "score": 2.5694}, ".03387"),
    # The catalogue has errors of one draw without the scores. By hand: only the c-term, then only the sink term.
    ("lemma_a2_error", {"point": 1, "small": 0.1, "score": 2, "sink": 800}, ".2442806"),
    ("lemma_a2_error", {"point": 2, "small": 1e-9, "score": 3, "sink": 0}, "24.00000"),
    ("newton_loops", {"loops": 7}, "7"),
]
