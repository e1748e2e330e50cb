"""Sparse recovery."""

WORKED = [
    ("lista_vm", {}, "6.849e-5"),
    # Not in the catalogue. By hand: 3^-10 + 10 · 3^-9/√10⁵.
    ("lista_readout", {}, "1.8542e-5"),
    ("lista_readout", {"readout": "query"}, "6.849e-5"),
    ("lista_cp", {}, ".0029297"),
    ("l1_threshold", {}, "32.88"),
    ("l1_threshold", {"dim": 20, "nonzero": 3}, "8.558"),
    ("sparse_oracle", {"point": 20, "noise": 1}, ".1875"),
    ("sparse_oracle", {"point": 4, "noise": 1}, "inf"),
    ("sparse_oracle", {"point": 4}, "0"),
]
