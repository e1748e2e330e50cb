"""Labels of mixtures; of one coordinate and one pair by hand: E 1/(1+g²) = √(π/2) e^½ erfc(√½) = .65568."""

WORKED = [
    ("mixture_told", {"dim": 3, "point": 0}, "1.5"),
    ("mixture_told", {"dim": 1, "point": 1, "snr": 1}, ".41392"),
    ("mixture_told", {"dim": 1, "point": 1, "snr": 1, "weights": (3, 1), "symmetric": True}, ".16392"),
    ("mixture_told", {"dim": 3, "point": 12, "prior": "sphere"}, "0"),
]
