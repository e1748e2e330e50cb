"""Layers of transformers that imitate an algorithm for linear regression."""

WORKED = [
    ("bai_ridge_layers", {"kappa": 10}, "126"),
    ("bai_icgd", {"loops": 5}, "6"),
    ("fu_newton", {"loops": 5}, "13"),
    ("oswald_gd", {"loops": 5}, "5"),
]
