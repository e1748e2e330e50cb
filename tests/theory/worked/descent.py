"""First-order methods in the worst case."""

WORKED = [
    ("gd_contraction", {"kappa": 10, "loops": 1}, ".8182"),
    ("gd_contraction", {"kappa": 10, "loops": 5}, ".3666"),
    ("gd_steps", {"kappa": 10}, "68.85"),
    ("gd_steps", {"kappa": 100}, "690.8"),
    ("chebyshev", {"kappa": 10, "loops": 5}, ".07556"),
    ("chebyshev", {"kappa": 100, "loops": 10}, ".2641"),
    ("gd_smooth", {}, ".02381"),
    ("gd_smooth", {"form": "textbook"}, ".05"),
    ("gd_smooth", {"form": "nesterov"}, ".1429"),
    ("ista", {}, ".05"),
    ("fista", {}, ".01653"),
    ("inexact_gd", {}, ".015937"),
    ("inexact_gd", {"curvature": "convex"}, ".01"),
    ("inexact_gd", {"curvature": "strongly_convex"}, ".008025"),
]
