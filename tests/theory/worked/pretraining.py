"""Cost of pretraining."""

WORKED = [
    ("bai_pretrain", {"kappa": 2, "steps": 1000, "batch_size": 100, "point": 40}, ".62661"),
    ("bai_crossover", {"kappa": 2, "point": 40}, "6400"),
    ("bai_pretrain_layers", {"kappa": 2, "point": 40}, "8.764"),  # by hand: 2 ln 80
    (
        "bai_capacity",
        {"layers": 12, "heads": 8, "width": 256, "mlp_width": 1024, "steps": 10**4, "batch_size": 100},
        "10.64",
    ),
    ("bai_ls", {"noise": 1, "point": 40}, ".5"),  # by hand
    ("bai_lasso", {"noise": 0.5, "point": 40}, ".1123"),
    ("bai_near_bayes", {"noise": 1, "point": 40, "layers": 30}, ".9501"),  # equals `bayes_ridge`
]
