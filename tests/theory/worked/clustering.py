"""Clustering of Gaussian mixtures."""

WORKED = [
    ("gmm2_bayes", {}, ".15866"),
    ("gmm2_bayes", {"snr": 4}, ".02275"),
    ("gmm_bayes", {"snr": 4}, ".04145"),
    ("gmm_bayes", {"snr": 4, "components": 5}, ".07155"),
    ("gmm_bayes", {"snr": 6}, ".002618"),
    ("gmm_bayes", {"components": 2}, ".15866"),
    ("gmm2_plugin", {}, ".1990"),
    ("gmm2_plugin", {"snr": 4}, ".02827"),
    ("exact_recovery", {}, "8.2055"),
    ("gmm_ce_floor", {"snr": 1}, ".5817"),
    ("gmm_ce_floor", {}, ".3563"),
    ("gmm_ce_floor", {"snr": 4}, ".06043"),
    ("ari_of_error", {}, ".4661"),
    ("ari_of_error", {"snr": 4}, ".9111"),
    ("nmi_of_error", {}, ".3689"),
    ("nmi_of_error", {"snr": 4}, ".8434"),
    ("gmm_minimax", {"snr": 4}, ".1353"),
]
