"""Spectral methods by transformers [@he2025spectral]: rates for principal components and for two clusters.

Compare only shapes, because every constant is open. The papers are known here only through @liu2025slides and
@yang2025slides, where some formulas are garbled. The exact references are in `principal_components.py` and
`clustering.py`.
"""

import math
from itertools import pairwise
from typing import Literal

import scipy  # scipy loads its submodules at the first use
from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt
from typing_extensions import override

from loopscale.theory.bounds.base import Bound

SYSTEM = "spectral methods"


class HePca(Bound, kind="he_pca"):
    """Error of eigenvector η+1 after τ = ln(1/(ε₀δ))/ε₀ power steps: τελ₁² + (λ₁√ε₀/Δ) Π_{i<=η} 5λ_{i+1}/Δ.

    Corrected: the product runs to η, but in the paper it runs to k. In the joint bound the root also covers
    ε₀λ₁²/Δ², and the sum includes the term 1 of the first component.

    The bound falls as √(ln τ/τ), but the error of the algorithm is geometric (`power_tan`). Expect
    measurements to fall faster than the bound. The remark "λ₁ ≍ ... ≍ Δ gives √k" hides a factor 5^k and
    cannot hold for many components, because λ₁ >= λ_k + (k-1)Δ.
    """

    claim = "<="
    of = "parameter error"
    source = (
        "@he2024, theorem 7 of @liu2025slides; @he2025spectral, theorem 2.1 (the papers were not readable)"
    )
    hidden_constant = True
    loops: PositiveInt = 100
    """τ, the number of power steps; the transformer has 2τ + 4k + 1 layers."""
    accuracy: NonNegativeFloat = 0.0
    """ε, the approximation error of a layer, which takes λ₁^d/ε² heads."""
    overlap: float = Field(0.1, gt=0, le=1)
    """δ, the overlap of every start with its eigenvector."""
    eigenvalues: tuple[PositiveFloat, ...] = (3.0, 2.0)
    """λ₁, λ₂, ... of XX', in falling order."""
    gap: PositiveFloat = 1.0
    """Δ, the smallest difference between eigenvalues."""
    component: PositiveInt = 1
    """η+1, the number of the eigenvector, from 1. In the joint bound: k, the number of eigenvectors."""
    joint: bool = False
    """Whether the bound is for the first `component` eigenvectors jointly."""
    reading: Literal["corrected", "printed"] = "corrected"
    """`printed`: the product runs over all eigenvalues but one, and in the joint bound the root covers Π
    only.
    """

    @property
    def unconverged(self) -> float:
        """ε₀, the accuracy of τ steps: the solution of τ = ln(1/(ε₀δ))/ε₀ is ε₀ = W(τ/δ)/τ, with Lambert's W."""
        return float(scipy.special.lambertw(self.loops / self.overlap).real) / self.loops

    @override
    def value(self) -> float:
        lam, k = self.eigenvalues, self.component
        self.require(bool(lam) and k <= len(lam), "component <= the number of eigenvalues")
        gaps = [high - low for high, low in pairwise(lam)]
        self.require(min(gaps, default=self.gap) >= self.gap, "eigenvalues that fall by the gap or more")
        factors = [5 * eigenvalue / self.gap for eigenvalue in lam[1:]]
        approximation = self.loops * self.accuracy * lam[0] ** 2 * (k if self.joint else 1)
        first = lam[0] / self.gap * math.sqrt(self.unconverged)
        products = [math.prod(factors[:i]) for i in range(k)]
        if not self.joint:
            return approximation + first * (math.prod(factors) if self.reading == "printed" else products[-1])
        if self.reading == "printed":
            return approximation + first**2 * sum(products[1:])
        return approximation + first * math.hypot(*products)


class HePcaN(Bound, kind="he_pca_n"):
    """Loss above the best of the class after pretraining on n prompts: √((k³ L M d² ln(B+k) + ln(1/ξ)) / n)."""

    claim = "<="
    of = "generalisation gap"
    source = "@he2024, proposition 9 of @liu2025slides"
    hidden_constant = True
    dim: PositiveInt = 20
    """d, the dimension of a point."""
    components: PositiveInt = 1
    """k, the number of eigenvectors."""
    layers: PositiveInt = 12
    """L, the number of layers."""
    heads: PositiveInt = 4
    """M, the number of heads."""
    radius: PositiveFloat = 1.0
    """B, an upper bound of the largest eigenvalue of XX'."""
    prompts: PositiveInt = 1_000_000
    """n, the number of pretraining prompts."""
    failure: float = Field(0.05, gt=0, lt=1)
    """ξ, the probability that the statement fails."""

    @override
    def value(self) -> float:
        size = self.components**3 * self.layers * self.heads * self.dim**2
        complexity = size * math.log(self.radius + self.components)
        return math.sqrt((complexity - math.log(self.failure)) / self.prompts)


class HePcaTuned(Bound, kind="he_pca_tuned"):
    """Sum of `he_pca` and `he_pca_n` at the best ε and ε₀, up to logarithms: n^-a.

    The paper prints a = 1/5. This exponent requires that the number of power steps does not grow as ε₀ falls,
    and that the error is linear in ε₀. The terms of the paper itself, τ = 1/ε₀ and √ε₀, give 1/10 (the
    default here). The two mixed readings give 1/6 and 1/7. Do not base a verdict on one of them.
    """

    claim = "<="
    of = "parameter error"
    source = "derived from theorem 7 and proposition 9; corrects @he2025spectral, corollary 10 of the slides"
    hidden_constant = True
    prompts: PositiveInt = 1_000_000
    """n, the number of pretraining prompts."""
    iterations: Literal["growing", "fixed"] = "growing"
    """`growing` for τ = 1/ε₀, `fixed` for a constant τ."""
    term: Literal["root", "linear"] = "root"
    """Error of finitely many iterations: `root` for √ε₀, `linear` for ε₀."""

    @property
    def exponent(self) -> float:
        """a, from equal terms τε, ε₀^p and (n ε₀ ε²)^-½ with τ = ε₀^-q."""
        p, q = {"root": 0.5, "linear": 1.0}[self.term], {"growing": 1, "fixed": 0}[self.iterations]
        return p / (4 * p + 2 * q + 1)

    @override
    def value(self) -> float:
        return self.prompts**-self.exponent


class HeGmm(Bound, kind="he_gmm"):
    """Misclassified share for two components, N points and n pretraining prompts: (d ln²N/N)^⅓ + C n^(-1/7).

    The source garbles C, a factor of the dimension and the size of the centres. Here C is one number,
    `factor`. The bound is vacuous above 1/2.
    """

    claim = "<="
    of = "misclassification"
    source = "@he2025spectral, theorem 3.2 (from @yang2025slides; the paper was not readable)"
    hidden_constant = True
    dim: PositiveInt = 20
    """d, the dimension of a point."""
    points: PositiveInt = 1000
    """N, the number of points in a prompt."""
    prompts: PositiveInt | None = None
    """n, the number of pretraining prompts; `None` for infinitely many."""
    factor: PositiveFloat = 1.0
    """C, the factor of the second term, which the source leaves open."""

    @override
    def value(self) -> float:
        self.require(self.points >= 2, "points >= 2")
        oracle = (self.dim * math.log(self.points) ** 2 / self.points) ** (1 / 3)
        pretraining = 0.0 if self.prompts is None else self.factor * self.prompts ** (-1 / 7)
        return oracle + pretraining
