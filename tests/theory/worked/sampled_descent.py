"""Worked values of `sampled_descent`, which are those of the exact formulas for one and two steps: 1.25 and 3.1091."""

WORKED = [
    ("first_order_sampled", {"dim": 4, "point": 11, "loops": 1}, "1.25"),
    ("first_order_sampled", {"dim": 20, "point": 40, "loops": 2}, "3.11"),
    ("tied_descent_sampled", {"dim": 4, "point": 11, "loops": 1}, "1.25"),
]
