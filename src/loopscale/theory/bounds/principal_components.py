"""Principal components: angles between an eigenvector and a guess, a power iterate or a sample eigenvector.

Papers on PCA measure the error against the eigenvectors of the prompt's own XX', where the exact solution has
error 0. The reference there is the power method with the same number of steps: `power_tan`, or `power_error`
on average over prompts. Only `davis_kahan` and `spiked_cosine` concern the eigenvectors of the population.
"""

import math
from itertools import pairwise
from typing import Literal

import scipy  # scipy loads its submodules at the first use
from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt
from typing_extensions import override

from loopscale.theory.bounds.base import Bound

SYSTEM = "spectral methods"


class PowerTan(Bound, kind="power_tan", titled="power method (tangent)"):
    """tan θ_T after T steps of the power method: at most (λ₂/λ₁)^T tan θ_0, with equality if λ₂ = ... = λ_d."""

    claim = "<="
    of = "tangent"
    source = "textbook: @golub2013, power iteration"
    without_study = "concerns one start; trials record means over starts"
    loops: NonNegativeInt = 10
    """T, the number of iterations."""
    ratio: float = Field(0.8, ge=0, lt=1)
    """λ₂/λ₁ of the iterated matrix."""
    start: NonNegativeFloat = 1.0
    """tan θ_0."""

    @override
    def value(self) -> float:
        return self.ratio**self.loops * self.start


class PowerTanMedian(Bound, kind="power_tan_median", titled="power method (median tangent)"):
    """Median tangent after T power steps from a uniform start: (λ₂/λ₁)^T √((d-1) median F(d-1, 1)).

    Exact if λ₂ = ... = λ_d, otherwise an upper bound. The mean is infinite, because a start orthogonal to the
    eigenvector never converges.
    """

    claim = "="
    of = "tangent"
    source = "derived: tan² θ_0 = χ²_{d-1} / χ²_1"
    without_study = "concerns a median of tangents; trials record means of squared distances"
    dim: PositiveInt = 20
    """d, the dimension of a point."""
    loops: NonNegativeInt = 10
    """T, the number of iterations."""
    ratio: float = Field(0.8, ge=0, lt=1)
    """λ₂/λ₁ of the iterated matrix."""

    @override
    def value(self) -> float:
        self.require(self.dim >= 2, "dim >= 2")
        start = math.sqrt((self.dim - 1) * float(scipy.special.fdtri(self.dim - 1, 1, 0.5)))
        return self.ratio**self.loops * start


class PowerError(Bound, kind="power_error", titled="power method"):
    """Mean squared error E min(|v - v₁|², |v + v₁|²) of the power method after T steps from a uniform start.

    Exact if λ₂ = ... = λ_d, otherwise an upper bound. For d = 3 the value is 2a / (1 + a) with a = (1 -
    gap)^T. The mean falls as (1 - gap)^T, although the error of every single start falls as the square of
    this. The reason: a share (1 - gap)^T of the starts is nearly orthogonal to v₁ and dominates the mean.
    """

    claim = "="
    of = "squared parameter error"
    source = "derived: power_tan over starts uniform on the sphere"
    without_study = (
        "the error of one algorithm, the solver `power_method`, which the studies run on the same prompts"
    )
    dim: int = Field(20, ge=2)
    """d, the dimension of a point."""
    loops: NonNegativeInt = 10
    """T, the number of iterations."""
    gap: float = Field(default=0.2, gt=0, lt=1)
    """Δ = 1 - λ₂/λ₁."""

    @override
    def value(self) -> float:
        log_ratio = self.loops * math.log1p(-self.gap)

        def integrand(s: float) -> float:
            """Error times density over s = ln tan θ_0, with one peak at -T ln(1 - gap) or near 0."""
            error = -math.expm1(-0.5 * math.log1p(math.exp(2 * (s + log_ratio))))
            log_sine = -0.5 * math.log1p(math.exp(-2 * s))
            return error * math.exp((self.dim - 2) * log_sine + s - math.log1p(math.exp(2 * s)))

        ends = [-30.0, 0.0, -log_ratio, 60.0 - log_ratio]
        total = sum(
            scipy.integrate.quad(integrand, low, high, limit=200)[0]
            for low, high in pairwise(ends)
            if low < high
        )
        return 4 * total * math.exp(-scipy.special.betaln(0.5, (self.dim - 1) / 2))


class InitOverlap(Bound, kind="init_overlap", titled="overlap of a random start"):
    """P(|v'x| <= δ) for x uniform on the sphere and v fixed: about δ √(2d/π) for small δ and large d.

    This replaces lemma 8 of @he2024, which `he_init` has as printed.
    """

    claim = "="
    of = "probability"
    source = "textbook: (v'x)² ~ Beta(1/2, (d-1)/2); corrects @he2024, lemma 8 of @liu2025slides"
    without_study = "the chance of a bad start; trials record means over starts"
    dim: PositiveInt = 20
    """d, the dimension of a point."""
    overlap: float = Field(0.025, gt=0, le=1)
    """δ."""

    @override
    def value(self) -> float:
        self.require(self.dim >= 2, "dim >= 2")
        return float(scipy.special.betainc(0.5, (self.dim - 1) / 2, self.overlap**2))


class HeInit(Bound, kind="he_init", titled="bound of the start (He et al.)"):
    """P(a start overlaps its eigenvector by at most δ), as printed in lemma 8: √(δ/π) + exp(-C δ^-½).

    With `components: k` the second display of the lemma: k √(δ/π) + k exp(-C/δ) for any of k starts with an overlap of
    at most δ/√d. The displays contradict each other in the exponent. The second one also lacks the absolute value, and
    without the absolute value half of all starts fail. The exact probability is `init_overlap`: for small δ the
    exact probability falls as δ, and this bound as √δ only.
    """

    claim = "<="
    of = "probability"
    source = "@he2024, lemma 8 of @liu2025slides"
    hidden_constant = True
    without_study = "the chance of a bad start; trials record means over starts"
    dim: PositiveInt = 20
    """d, the dimension of a point."""
    overlap: float = Field(0.01, gt=0)
    """δ, below 1/(2d)."""
    components: PositiveInt | None = None
    """k, the number of starts, for the second display. `None` for the first display."""

    @override
    def value(self) -> float:
        self.require(self.overlap < 0.5 / self.dim, "overlap < 1 / (2 d)")
        root, k = math.sqrt(self.overlap / math.pi), self.components
        return (
            root + math.exp(-(self.overlap**-0.5)) if k is None else k * (root + math.exp(-1 / self.overlap))
        )


class RandomCosine(Bound, kind="random_cosine", titled="random direction"):
    """E |cos θ| or E cos² θ = 1/d of a uniform guess on the sphere: the score of an untrained network."""

    claim = "="
    of = "cosine"
    source = "textbook: moments of the Beta distribution"
    without_study = "the score of a random guess, which no learnt net keeps"
    dim: PositiveInt = 20
    """d, the dimension of a point."""
    power: Literal[1, 2] = 1
    """Power of the cosine."""

    @override
    def value(self) -> float:
        if self.power == 2:
            return 1 / self.dim
        return math.exp(math.lgamma(self.dim / 2) - math.lgamma((self.dim + 1) / 2)) / math.sqrt(math.pi)


class DavisKahan(Bound, kind="davis_kahan", titled="Davis-Kahan theorem"):
    """sin θ between the eigenvectors of a matrix and of the matrix plus E: 2 |E| / gap; vacuous above 1."""

    claim = "<="
    of = "sine"
    source = "@yu2015, corollary 1 (from memory)"
    without_study = "compares two matrices, and no trial perturbs one"
    perturbation: NonNegativeFloat = 0.1
    """|E|, the spectral norm."""
    gap: PositiveFloat = 1.0
    """Distance from the eigenvalue to the nearest other eigenvalue of the matrix without E."""

    @override
    def value(self) -> float:
        return 2 * self.perturbation / self.gap


class SpikedCosine(Bound, kind="spiked_cosine", titled="spiked covariance"):
    """cos² θ between the first eigenvectors of the sample covariance and of the covariance I + ℓvv'.

    The limit is d, N to infinity. It is 0 for ℓ up to √γ, γ = d/N: fewer than d/ℓ² points do not show the
    spike.
    """

    claim = "~"
    of = "squared cosine"
    source = "@paul2007, theorem 4; @benaych2011 (from memory)"
    without_study = "a limit for a target of the population; the studies ask for eigenvectors of the sample"
    dim: PositiveInt = 20
    """d, the dimension of a point."""
    points: PositiveInt = 40
    """N, the number of samples."""
    spike: PositiveFloat = 2.0
    """ℓ."""

    @override
    def value(self) -> float:
        gamma = self.dim / self.points
        return max(1 - gamma / self.spike**2, 0.0) / (1 + gamma / self.spike)
