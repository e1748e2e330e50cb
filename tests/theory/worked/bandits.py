"""Regret of bandits."""

WORKED = [
    ("random_regret", {}, "66.667"),
    ("bayes_optimal_2arm", {"horizon": 2}, ".2500"),
    ("bayes_optimal_2arm", {"horizon": 10}, ".6449"),
    ("bayes_optimal_2arm", {"horizon": 50}, "1.3366"),
    ("bayes_optimal_2arm", {}, "1.7482"),
    ("ts_bayes", {}, "28.37"),
    ("ts_linear_bayes", {}, "101.8"),
    ("lai_robbins", {}, "33.843"),  # 4.8993 ln T in the catalogue
    ("ucb1", {}, "553.05"),
    ("minimax", {}, "1.0476"),
    ("linucb", {}, "1417.2"),
    ("dpt_target", {}, ".8788"),
]
