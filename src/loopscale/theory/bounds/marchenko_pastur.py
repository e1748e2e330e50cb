"""Expectations over the eigenvalues of a large sample covariance (the Marchenko-Pastur law)."""

import math
from collections.abc import Callable

from scipy.integrate import quad


def marchenko_pastur_mean(function: Callable[[float], float], gamma: float) -> float:
    """Mean of `function(eigenvalue)` under the law of ratio γ = dimension / samples.

    For γ > 1 the law has mass 1 - 1/γ at eigenvalue 0.
    """
    middle, radius = 1 + gamma, 2 * math.sqrt(gamma)

    def integrand(angle: float) -> float:
        # With s = middle + radius cos(angle), the square roots of the density become sin²: the integrand is smooth.
        s = middle + radius * math.cos(angle)
        return (radius * math.sin(angle)) ** 2 / (2 * math.pi * gamma * s) * function(s)

    bulk, _ = quad(integrand, 0, math.pi, epsabs=1e-12, epsrel=1e-10, limit=200)
    return bulk + (function(0.0) * (1 - 1 / gamma) if gamma > 1 else 0.0)
