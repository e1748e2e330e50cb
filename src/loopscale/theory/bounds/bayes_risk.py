"""The exact Bayes risk of linear regression at finite size, without simulation.

With λ = σ²/τ² and isotropic Gaussian inputs X [N, d], let F(N, d) = [(I + X'X/λ)⁻¹]₁₁. The excess error of
the Bayes predictor is τ² d E F(N, d). F has the same distribution as the recursion

    F(N, d) = 1 / (1 + A / (1 + B F(N-1, d-1))),  A = χ²_N / λ,  B = χ²_{d-1} / λ,
    F(0, d) = 1,  F(N, 1) = 1 / (1 + χ²_N / λ),

with independent chi-squares. The reason: a Householder rotation reduces X to one row, one column and a matrix
of size [N-1, d-1]. The expectation is computed backwards from h(u) = u, from the largest size to the
smallest. Chebyshev polynomials interpolate each function h, and a quadrature rule replaces each chi-square.
"""

from collections.abc import Callable
from functools import cache

import numpy as np
import scipy  # scipy loads its submodules at the first use
from jaxtyping import Float
from numpy.polynomial import chebyshev

NODES = 120
"""Number of nodes of the quadrature rule for a chi-square."""
COEFFICIENTS = 48
"""Number of coefficients of an interpolating polynomial. 64 coefficients change no risk by more than 1e-11 of it."""

Function = Callable[[np.ndarray], np.ndarray]


@cache
def prior_variance_left(pairs: int, dim: int, noise_ratio: float) -> float:
    """E F(pairs, dim), the share of the prior variance of w that is left; `noise_ratio` is σ²/τ²."""
    if noise_ratio == 0:
        return max(dim - pairs, 0) / dim
    offset = 0.1 * noise_ratio / (noise_ratio + max(pairs, dim))
    h: Function = np.asarray
    while pairs > 0 and dim > 1:
        h = _reduce_size(h, pairs, dim, noise_ratio, offset)
        pairs, dim = pairs - 1, dim - 1
    if pairs == 0:
        return h(np.array(1.0)).item()
    a, weights = chi_square_rule(pairs)
    return float(weights @ h(1 / (1 + a / noise_ratio)))


def _reduce_size(h: Function, pairs: int, dim: int, noise_ratio: float, offset: float) -> Function:
    """The function u -> E h(1 / (1 + A / (1 + B u))), with the expectation over A before the one over B."""
    a, a_weights = chi_square_rule(pairs)
    b, b_weights = chi_square_rule(dim - 1)
    a, b = a / noise_ratio, b / noise_ratio
    over_a = interpolate(lambda v: h(v[:, None] / (v[:, None] + a)) @ a_weights, 1.0, 1 + b.max(), 0.0)
    return interpolate(lambda u: over_a(1 + u[:, None] * b) @ b_weights, 0.0, 1.0, offset)


def interpolate(function: Function, low: float, high: float, offset: float) -> Function:
    """`function` on [low, high] as a polynomial in log(x + offset)."""
    ends = np.log([low + offset, high + offset])
    centre, radius = ends.mean(), (ends[1] - ends[0]) / 2
    nodes, inverse = _chebyshev_nodes(COEFFICIENTS)
    coefficients = inverse @ function(np.exp(centre + radius * nodes) - offset)
    return lambda x: chebyshev.chebval((np.log(x + offset) - centre) / radius, coefficients)


@cache
def _chebyshev_nodes(count: int) -> tuple[Float[np.ndarray, " nodes"], Float[np.ndarray, "count nodes"]]:
    """Chebyshev's nodes, and the matrix from values at the nodes to coefficients. The polynomials are orthogonal."""
    nodes = chebyshev.chebpts1(count)
    inverse = chebyshev.chebvander(nodes, count - 1).T * (2 / count)
    inverse[0] /= 2
    return nodes, inverse


@cache
def chi_square_rule(freedom: int) -> tuple[Float[np.ndarray, " nodes"], Float[np.ndarray, " nodes"]]:
    """Nodes and weights for the expectation over a chi-square: the trapezoidal rule in its logarithm.

    The density and x/(x + λ) are analytic in the logarithm, so the rule converges geometrically.
    Gauss-Laguerre quadrature misses a λ far below 1 with one or two degrees of freedom: 40 nodes give an
    error of 0.2 % at N = d = 20, λ = .01.
    """
    logs = np.linspace(
        np.log(scipy.stats.chi2.ppf(1e-14, freedom)), np.log(scipy.stats.chi2.isf(1e-16, freedom)), NODES
    )
    weights = scipy.stats.chi2.pdf(np.exp(logs), freedom) * np.exp(logs)
    return np.exp(logs), weights / weights.sum()
