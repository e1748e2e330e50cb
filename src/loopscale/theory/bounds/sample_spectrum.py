"""The spectrum of the sample covariance of inputs with a two-level covariance Λ, for d and N to infinity.

The constants are γ = d/N and the spectrum H of Λ. The companion Stieltjes transform v(z) of Ŝ = X'X/N solves:

    z = -1/v + γ ∫ s/(1 + s v) dH(s).

The ends of the support are the values z(v) at the real v with dz/dv = 0 (@silverstein1995). A method with
fixed coefficients leaves the excess τ² E tr Λ q(Ŝ)², so the weight of an eigenvalue is its share of tr Λ. The
Stieltjes transform of this weight is (1/d) tr Λ (Ŝ - z)⁻¹ = -(1 + 1/(z v))/γ.
"""

from dataclasses import dataclass
from functools import cache
from itertools import pairwise

import numpy as np
from jaxtyping import Complex128, Float
from numpy.polynomial import polynomial

from loopscale.tasks.spectrum import level_spectrum

MOST_CONDITION = 1e6
"""Beyond, float64 does not resolve the ends of the spectrum."""
NODES = 400
"""Number of nodes in each interval of the support."""
LEAST_SQUARE = 1e-32
"""A mean square below this value is 0 in float64 arithmetic on numbers near 1. More degrees would cost minutes."""
REAL = 1e-7
"""Largest imaginary part, relative to the modulus, of a root that counts as real."""


@dataclass(frozen=True)
class SampleSpectrum:
    """A discrete form of the spectrum of Ŝ, weighted by Λ."""

    ends: tuple[tuple[float, float], ...]
    """The intervals of the support without the eigenvalue 0, in ascending order."""
    nodes: Float[np.ndarray, " nodes"]
    """The eigenvalues."""
    weights: Float[np.ndarray, " nodes"]
    """The share of each eigenvalue of tr Λ. The shares sum to 1."""

    @property
    def condition_number(self) -> float:
        """The largest over the smallest non-zero eigenvalue; infinite if the support begins at 0."""
        low, high = self.ends[0][0], self.ends[-1][1]
        return high / low if low > 1e-9 * high else np.inf

    def least_square(self, degree: int) -> float:
        """The least mean square of a polynomial of this degree with the value 1 at 0.

        This is the Christoffel function at 0: 1/Σ p_k(0)² over the orthonormal polynomials p_0 .. p_degree. The value
        is exact down to `LEAST_SQUARE`. A higher degree gives a value below this limit, and not the least one.
        """
        basis = np.sqrt(self.weights)[None]
        at_zero, before, total = 1.0, 0.0, 1.0
        off_before = 0.0
        for done in range(1, degree + 1):
            last = basis[done - 1]
            diagonal = float(last @ (self.nodes * last))
            vector = self.nodes * last
            for _ in range(2):  # twice, because rounding destroys the orthogonality
                vector = vector - basis[:done].T @ (basis[:done] @ vector)
            off = float(np.linalg.norm(vector))
            if off < 1e-14 * self.nodes.max():
                break  # the spectrum has no more points: the polynomial vanishes on all of them
            at_zero, before = (-diagonal * at_zero - off_before * before) / off, at_zero
            off_before = off
            if done == len(basis):
                basis = np.concatenate([basis, np.empty_like(basis)])
            basis[done] = vector / off
            total += at_zero**2
            if total > 1 / LEAST_SQUARE:
                break
        return 1 / total


@cache
def sample_spectrum(dim: int, seen: int, condition: float, count: int = 2) -> SampleSpectrum:
    """The spectrum for d dimensions, N = `seen` samples and the condition number of Λ, whose trace is d.

    `count` is the number of different eigenvalues of Λ.
    """
    gamma, levels = dim / seen, level_spectrum(dim, condition, count)
    shares = dict.fromkeys(levels, 0.0)
    for level in levels:
        shares[level] += 1 / dim
    s, h = np.array(list(shares)), np.array(list(shares.values()))
    ends = _support(s, h, gamma)
    angles = (np.arange(NODES) + 0.5) * np.pi / NODES
    nodes, weights = list[np.ndarray](), list[np.ndarray]()
    for low, high in ends:
        x = (low + high) / 2 - (high - low) / 2 * np.cos(angles)
        v = _companion(s, h, gamma, x)
        density = -(1 / (x * v)).imag / (gamma * np.pi)
        nodes.append(x)
        weights.append(density * (high - low) / 2 * np.sin(angles) * np.pi / NODES)
    all_nodes, all_weights = np.concatenate(nodes), np.concatenate(weights)
    if gamma > 1:
        all_nodes, all_weights = np.append(all_nodes, 0.0), np.append(all_weights, 1 - all_weights.sum())
    return SampleSpectrum(ends, all_nodes, all_weights / all_weights.sum())


def _support(
    s: Float[np.ndarray, " levels"], h: Float[np.ndarray, " levels"], gamma: float
) -> tuple[tuple[float, float], ...]:
    """The intervals of positive eigenvalues."""
    factors = [np.array([1.0, level]) for level in s]
    product = _product(factors)
    rest = [_product(factors[:place] + factors[place + 1 :]) for place in range(len(s))]
    slope = polynomial.polypow(product, 2)
    for level, share, other in zip(s, h, rest, strict=True):
        term = gamma * share * level**2 * polynomial.polymul([0, 0, 1], polynomial.polypow(other, 2))
        slope = polynomial.polysub(slope, term)
    slope = polynomial.polytrim(slope, 1e-12 * float(np.abs(slope).max()))  # at γ = 1 a root lies at infinity
    roots = polynomial.polyroots(slope)
    real = roots[np.abs(roots.imag) <= REAL * np.abs(roots)].real
    z = np.sort([-1 / v + gamma * float(np.sum(h * s / (1 + s * v))) for v in real])
    z = np.append(0.0, z[z > 0]) if gamma == 1 else z[z > 0]
    pairs = [(float(low), float(high)) for low, high in pairwise(z)]
    return tuple(pair for pair in pairs if _companion(s, h, gamma, np.array([sum(pair) / 2]))[0].imag > REAL)


def _companion(
    s: Float[np.ndarray, " levels"],
    h: Float[np.ndarray, " levels"],
    gamma: float,
    x: Float[np.ndarray, " nodes"],
) -> Complex128[np.ndarray, " nodes"]:
    """v(x + 0i), the root with the largest imaginary part."""
    factors = [np.array([1.0, level]) for level in s]
    product = _product(factors)
    constant = -product
    for place, (level, share) in enumerate(zip(s, h, strict=True)):
        other = _product(factors[:place] + factors[place + 1 :])
        constant = polynomial.polyadd(constant, gamma * level * share * polynomial.polymul([0, 1], other))
    roots = [
        polynomial.polyroots(polynomial.polysub(value * polynomial.polymul([0, 1], product), constant))
        for value in x
    ]
    return np.array([root[np.argmax(root.imag)] for root in roots], dtype=np.complex128)


def _product(factors: list[np.ndarray]) -> np.ndarray:
    product = np.array([1.0])
    for factor in factors:
        product = polynomial.polymul(product, factor)
    return product
