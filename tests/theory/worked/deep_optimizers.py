"""Gradient descent on a network inside a transformer."""

WORKED = [
    ("deep_icgd", {"heads": 10**4}, ".015937"),  # equals `inexact_gd` with ε = .01
    ("deep_icgd_layers", {"trained_layers": 3, "loops": 2}, "20"),  # by hand
    ("deep_icgd_layers", {"trained_layers": 3, "loops": 2, "attention": "softmax"}, "8"),
]
