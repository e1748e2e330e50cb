"""Spectral methods by transformers (He et al.)."""

import math

WORKED = [
    # The catalogue uses ε₀ = ln τ/τ, which solves τ = ln(1/(ε₀δ))/ε₀ for δ = 1/ln τ.
    ("he_pca", {"eigenvalues": (1.0,), "overlap": 1 / math.log(100)}, ".2146"),
    # Not in the catalogue: W(100)/100 = .03386 at δ = 1.
    ("he_pca", {"eigenvalues": (1.0,), "overlap": 1}, ".1840"),
    ("he_pca", {"eigenvalues": (1.0,), "overlap": 1, "accuracy": 0.01}, "1.1840"),
    # Not in the catalogue. By hand: √((12 · 4 · 400 ln 2 + ln 20)/10⁶), and powers of 10⁶.
    ("he_pca_n", {}, ".11538"),
    ("he_pca_tuned", {}, ".2512"),
    ("he_pca_tuned", {"iterations": "fixed", "term": "linear"}, ".0631"),
    ("he_pca_tuned", {"iterations": "fixed"}, ".1"),
    ("he_pca_tuned", {"term": "linear"}, ".1389"),
    # Not in the catalogue. By hand: τ = ln(1000)/.01, 69.0776 + √((ln 10 · 4 ln 2 + ln 20)/100); λ₁²ε₀ · 10 for k = 2.
    ("he_pca_erm", {"eigenvalues": (1.0,), "radius": 1.0}, "69.383818"),
    ("he_pca_erm", {"prompts": 10**40}, "1244.2960"),
    ("he_pca_erm", {"prompts": 10**40, "reading": "corrected"}, "1246.4109"),
    ("he_gmm", {}, ".9845"),
]
