"""Principal components: how near a guess, a step of the power method or a sample comes to an eigenvector.

Papers on PCA score against the eigenvectors of the prompt's own XX', where the exact answer has error 0: there
the reference is the power method at equal steps (`power_tan`, and `power_error` on average over prompts). Only
`davis_kahan` and `spiked_cosine` speak of the population's.
"""

import math
from itertools import pairwise
from typing import Literal

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt
from scipy.integrate import quad
from scipy.special import betainc, betaln
from scipy.stats import f
from typing_extensions import override

from loopscale.theory.bounds.base import Bound


class PowerTan(Bound, kind="power_tan"):
    """tan θ_T <= (λ₂/λ₁)^T tan θ_0 after T steps of the power method; equal where λ₂ = ... = λ_d."""

    claim = "<="
    of = "tangent"
    source = "textbook: Golub and Van Loan, power iteration"
    loops: NonNegativeInt = 10
    """T, iterations."""
    ratio: float = Field(0.8, ge=0, lt=1)
    """λ₂/λ₁, of the matrix that is iterated."""
    start: NonNegativeFloat = 1.0
    """tan θ_0."""

    @override
    def value(self) -> float:
        return self.ratio**self.loops * self.start


class PowerTanMedian(Bound, kind="power_tan_median"):
    """(λ₂/λ₁)^T √((d-1) median F(d-1, 1)), from a start uniform on the sphere, if λ₂ = ... = λ_d; else less.

    The median: the mean is infinite, for a start at right angles to the eigenvector never gets there.
    """

    claim = "="
    of = "tangent"
    source = "derived: tan² θ_0 = χ²_{d-1} / χ²_1"
    dim: PositiveInt = 20
    """d, coordinates of a point."""
    loops: NonNegativeInt = 10
    """T, iterations."""
    ratio: float = Field(0.8, ge=0, lt=1)
    """λ₂/λ₁, of the matrix that is iterated."""

    @override
    def value(self) -> float:
        self.require(self.dim >= 2, "dim >= 2")
        start = math.sqrt((self.dim - 1) * float(f.median(self.dim - 1, 1)))
        return self.ratio**self.loops * start


class PowerError(Bound, kind="power_error"):
    """E min |v - v₁|², |v + v₁|² of the power method's v after T steps, from a start uniform on the sphere, if
    λ₂ = ... = λ_d; else less. For d = 3 it is 2a / (1 + a), a = (1 - gap)^T.

    It falls as (1 - gap)^T, not as the square of that, which every single start's does: the share (1 - gap)^T of
    starts that are nearly at right angles to v₁ decides the mean.
    """

    claim = "="
    of = "squared parameter error"
    source = "derived: power_tan over starts uniform on the sphere"
    dim: int = Field(20, ge=2)
    """d, coordinates of a point."""
    loops: NonNegativeInt = 10
    """T, iterations."""
    gap: float = Field(default=0.2, gt=0, lt=1)
    """Δ = 1 - λ₂/λ₁."""

    @override
    def value(self) -> float:
        fall = self.loops * math.log1p(-self.gap)

        def integrand(s: float) -> float:
            """Over s = ln tan θ_0, along which it has one peak, at -T ln(1 - gap) or near 0."""
            left = -math.expm1(-0.5 * math.log1p(math.exp(2 * (s + fall))))
            sine = -0.5 * math.log1p(math.exp(-2 * s))
            return left * math.exp((self.dim - 2) * sine + s - math.log1p(math.exp(2 * s)))

        parts = [-30.0, 0.0, -fall, 60.0 - fall]
        total = sum(quad(integrand, low, high, limit=200)[0] for low, high in pairwise(parts) if low < high)
        return 4 * total * math.exp(-betaln(0.5, (self.dim - 1) / 2))


class InitOverlap(Bound, kind="init_overlap"):
    """P(|v'x| <= δ) for x uniform on the sphere and v fixed; about δ √(2d/π) while that is small, d large.

    In place of He et al.'s lemma 8, whose two displays contradict each other: exp(-C δ^-½) against exp(-C/δ),
    and the second lacks the absolute value, without which half of all starts fail.
    """

    claim = "="
    of = "probability"
    source = "textbook: (v'x)² ~ Beta(1/2, (d-1)/2); corrects He et al. 2025a, lemma 8"
    dim: PositiveInt = 20
    """d, coordinates of a point."""
    overlap: float = Field(0.025, gt=0, le=1)
    """δ."""

    @override
    def value(self) -> float:
        self.require(self.dim >= 2, "dim >= 2")
        return float(betainc(0.5, (self.dim - 1) / 2, self.overlap**2))


class RandomCosine(Bound, kind="random_cosine"):
    """E |cos θ|, or E cos² θ = 1/d, of a guess uniform on the sphere: where an untrained net begins."""

    claim = "="
    of = "cosine"
    source = "textbook: moments of the Beta distribution"
    dim: PositiveInt = 20
    """d, coordinates of a point."""
    power: Literal[1, 2] = 1
    """Of the cosine."""

    @override
    def value(self) -> float:
        if self.power == 2:
            return 1 / self.dim
        return math.exp(math.lgamma(self.dim / 2) - math.lgamma((self.dim + 1) / 2)) / math.sqrt(math.pi)


class DavisKahan(Bound, kind="davis_kahan"):
    """sin θ <= 2 |E| / gap between the eigenvectors of a matrix and of that plus E; vacuous above 1."""

    claim = "<="
    of = "sine"
    source = "Yu, Wang, Samworth 2015, corollary 1 (from memory)"
    perturbation: NonNegativeFloat = 0.1
    """|E|, the spectral norm."""
    gap: PositiveFloat = 1.0
    """From the eigenvalue to the nearest other one, without E."""

    @override
    def value(self) -> float:
        return 2 * self.perturbation / self.gap


class SpikedCosine(Bound, kind="spiked_cosine"):
    """cos² θ between the first eigenvectors of the sample and of the covariance I + ℓvv'; d, N to infinity.

    0 up to ℓ = √γ, γ = d/N: with fewer than d/ℓ² points the sample does not see the spike.
    """

    claim = "~"
    of = "squared cosine"
    source = "Paul 2007, theorem 4; Benaych-Georges and Nadakuditi 2011 (from memory)"
    dim: PositiveInt = 20
    """d, coordinates of a point."""
    points: PositiveInt = 40
    """N, samples."""
    spike: PositiveFloat = 2.0
    """ℓ."""

    @override
    def value(self) -> float:
        gamma = self.dim / self.points
        return max(1 - gamma / self.spike**2, 0.0) / (1 + gamma / self.spike)
