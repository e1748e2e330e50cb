"""Expected risks of gradient descent."""

WORKED = [
    ("gd_risk_1", {"point": 40, "rate": 1, "noise": 1}, "11.0"),
    ("gd_risk_2", {"point": 40, "rate": 0.5}, "4.6563"),
    ("wishart_moments", {"point": 40, "power": 1}, "20"),
    ("wishart_moments", {"point": 40, "power": 2}, "30.5"),
    ("wishart_moments", {"point": 40, "power": 3}, "57.3"),
    ("wishart_moments", {"point": 40, "power": 4}, "120.9"),
    ("gd_risk_mp", {"point": 40, "rate": 0.5, "loops": 5}, "1.7353"),
    ("first_order_best", {"point": 40, "loops": 1}, "6.6667"),
    ("first_order_best", {"point": 40, "loops": 2}, "2.8571"),
    ("first_order_best", {"point": 40, "loops": 3}, "1.3333"),
    ("first_order_best", {"point": 40, "loops": 5}, ".3175"),
    ("first_order_best", {"dim": 200, "point": 400, "loops": 2}, "28.571"),
    ("first_order_best_2", {"point": 40}, "3.1091"),
]
