"""Principal components: angles."""

WORKED = [
    ("power_tan", {"start": 6.3391}, ".6807"),
    ("power_tan_median", {"loops": 0}, "6.3391"),
    ("power_tan_median", {}, ".6807"),
    ("init_overlap", {}, ".08566"),
    ("init_overlap", {"overlap": 0.01}, ".03431"),
    ("random_cosine", {}, ".18066"),
    ("random_cosine", {"power": 2}, ".05"),
    ("davis_kahan", {}, ".2"),
    ("spiked_cosine", {}, ".7000"),
]
