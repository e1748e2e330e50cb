"""Transformers as decision makers (Lin, Bai, Mei)."""

WORKED = [
    ("icrl_gap", {}, "5680"),
    ("soft_linucb_depth", {}, "14.142"),
    ("soft_linucb_depth", {"descent": "plain"}, "200"),
    ("ts_depth", {}, "14.142"),
    ("ucbvi_depth", {}, "18"),
    ("ucbvi", {}, "41830"),
]
