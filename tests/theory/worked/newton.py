"""Newton's iteration."""

WORKED = [
    ("newton_residual", {"kappa": 2, "loops": 5}, "1.0045e-4"),
    ("newton_coefficients", {"loops": 2, "term": 1}, "4"),
    ("newton_coefficients", {"loops": 2, "term": 2}, "-6"),
    ("newton_coefficients", {"loops": 2, "term": 3}, "4"),
    ("newton_coefficients", {"loops": 2, "term": 4}, "-1"),
    ("newton_is_gd", {"loops": 6}, "64"),
    ("newton_steps", {"kappa": 10, "start": "best"}, "9.4320"),
    ("newton_steps", {"kappa": 100, "start": "best"}, "16.0759"),
]
