"""Principal components: angles."""

WORKED = [
    ("power_tan", {"start": 6.3391}, ".6807"),
    ("power_tan_median", {"loops": 0}, "6.3391"),
    ("power_tan_median", {}, ".6807"),
    ("power_error", {"dim": 3, "loops": 0}, "1.0000"),
    ("power_error", {"dim": 3, "loops": 3, "gap": 0.5}, ".2222"),
    ("init_overlap", {}, ".08566"),
    ("init_overlap", {"overlap": 0.01}, ".03431"),
    ("random_cosine", {}, ".18066"),
    ("random_cosine", {"power": 2}, ".05"),
    ("davis_kahan", {}, ".2"),
    ("spiked_cosine", {}, ".7000"),
    # Not in the catalogue. By hand: √(.01/π) + exp(-10), and 2 √(.01/π) + 2 exp(-100).
    ("he_init", {}, ".0564644"),
    ("he_init", {"components": 2}, ".1128379"),
]
