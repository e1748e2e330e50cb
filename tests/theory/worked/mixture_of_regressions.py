"""Mixtures of linear regressions."""

WORKED = [
    ("mlr_labelled", {"dim": 5, "point": 2000}, ".002508"),
    ("mlr_fisher", {"point": 1, "snr": 0.25}, "201.35"),
    ("mlr_fisher", {"point": 1, "snr": 0.5}, "76.26"),
    # The catalogue has 39.70, 27.64 and 22.71 from a rule with too few nodes. Adaptive quadrature gives 39.7053,
    # 27.7590 and 23.3748. 4 million draws give 39.77, 27.77 and 23.36.
    ("mlr_fisher", {"point": 1, "snr": 1}, "39.71"),
    ("mlr_fisher", {"point": 1, "snr": 2}, "27.76"),
    ("mlr_fisher", {"point": 1, "snr": 4}, "23.37"),
    ("jin_k2", {"snr": 0.5}, "1.1835"),
    ("jin_k2", {}, "1.4006"),
    ("jin_k2", {"reading": "printed"}, "1.4006"),
    # Not in the catalogue. By hand: d ln² n/n = .95434 and its square root.
    ("jin_excess", {"snr": 0.5}, ".97690"),
    ("jin_excess", {"snr": 2}, ".95434"),
    ("jin_general", {}, "7.855"),
    ("jin_prompts", {}, ".12"),
    ("kwon_k2", {"point": 1000, "snr": 0.05}, ".3761"),
    ("kwon_k2", {"point": 1000}, ".1414"),
    # Not in the catalogue. By hand: ln 50, 4 ln 50, √50.
    ("em_iterations", {"point": 1000}, "3.9120"),
    ("em_iterations", {"point": 1000, "snr": 0.5}, "15.648"),
    ("em_iterations", {"point": 1000, "snr": 0.05}, "7.0711"),
    # Labels. By hand for one coordinate and one pair: E 1/(1+g²) = √(π/2) e^½ erfc(√½) = .65568.
    ("mixture_told", {"dim": 3, "point": 0}, "1.5"),
    ("mixture_told", {"dim": 1, "point": 1, "snr": 1}, ".41392"),
    ("mixture_told", {"dim": 1, "point": 1, "snr": 1, "weights": (3, 1), "symmetric": True}, ".16392"),
    ("mixture_told", {"dim": 3, "point": 12, "prior": "sphere"}, "0"),
]
