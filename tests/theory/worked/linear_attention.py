"""One layer of linear attention."""

LEVELS = {"dim": 8, "spectrum": (4,) * 3 + (0.5,) * 5, "noise": 0.5, "basis": "fixed"}

WORKED = [
    ("lsa_matrix", {"trained": 40}, "1.525"),
    ("lsa_risk", {"trained": 40, "point": 40}, "6.8852"),
    ("lsa_risk", {"trained": 40, "point": 80}, "4.6278"),
    ("lsa_risk", {"trained": 40, "point": 10**9}, "2.3703"),
    ("lsa_risk", LEVELS | {"trained": 16, "point": 32}, "3.0252"),
    ("lsa_min", {"point": 40, "noise": 1}, "7.0968"),
    ("lsa_min", {"spectrum": (100,) * 10 + (1,) * 10, "basis": "fixed", "point": 40}, "226.84"),
    ("lsa_min", LEVELS | {"point": 16}, "4.3588"),
    ("lsa_zhang", {"trained": 40, "point": 40}, "16.0125"),
    (
        "lsa_general",
        {
            "dim": 3,
            "spectrum": (2, 1, 0.5),
            "basis": "fixed",
            "weights": (0.3, -1, 0.8),
            "trained": 7,
            "point": 11,
        },
        ".45742",
    ),
]
