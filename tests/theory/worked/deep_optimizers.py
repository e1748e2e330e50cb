"""Networks trained in context."""

WORKED = [
    ("deep_icgd", {"heads": 10**4}, ".015937"),  # `inexact_gd` at its ε of .01
    ("deep_icgd_layers", {"trained_layers": 3, "loops": 2}, "20"),  # by hand
    ("deep_icgd_layers", {"trained_layers": 3, "loops": 2, "attention": "softmax"}, "8"),
]
