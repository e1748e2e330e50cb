"""Worked values of `conditioned_descent`. At condition number 1 they are those of `first_order_best`."""

WORKED = [
    ("first_order_spectrum", {"point": 40, "loops": 1}, "6.6667"),
    ("first_order_spectrum", {"point": 40, "loops": 2}, "2.8571"),
    ("first_order_spectrum", {"point": 40, "loops": 3}, "1.3333"),
    ("first_order_spectrum", {"point": 10, "loops": 5}, "10.1587"),
    ("first_order_spectrum", {"point": 20, "loops": 20}, ".9524"),
    ("first_order_spectrum", {"point": 40, "loops": 5, "condition": 16}, ".886665"),
    ("tied_descent", {"point": 40, "loops": 1}, "6.6667"),
    ("tied_descent", {"point": 40, "loops": 2, "window": 2}, "3.7037"),
    ("tied_descent", {"point": 40, "loops": 5, "window": 5, "condition": 16}, "1.2311"),
]
