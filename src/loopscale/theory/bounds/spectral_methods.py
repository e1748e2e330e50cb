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
Reading = Literal["corrected", "printed"]


def finite_iterations(
    eigenvalues: tuple[float, ...], gap: float, unconverged: float, reading: Reading, first: int
) -> float:
    """The second term of the joint bound of theorem 7, for the `first` eigenvectors.

    Corrected, the root covers ε₀λ₁²/Δ² too, and the sum includes the term 1 of the first component.
    """
    scale = eigenvalues[0] / gap * math.sqrt(unconverged)
    products = [math.prod(5 * each / gap for each in eigenvalues[1 : i + 1]) for i in range(first)]
    return scale**2 * sum(products[1:]) if reading == "printed" else scale * math.hypot(*products)


class Spectrum(Bound):
    """The eigenvalues of XX' in theorem 7 and corollary 10."""

    eigenvalues: tuple[PositiveFloat, ...] = (3.0, 2.0)
    """λ₁, λ₂, ... of XX', in falling order."""
    gap: PositiveFloat = 1.0
    """Δ, the smallest difference between eigenvalues."""
    accuracy: NonNegativeFloat = 0.0
    """ε, the approximation error of a layer, which takes λ₁^d/ε² heads."""
    overlap: float = Field(0.1, gt=0, le=1)
    """δ, the overlap of every start with its eigenvector."""

    def require_falling(self) -> None:
        """Raises ValueError unless the eigenvalues fall by the gap or more."""
        gaps = [high - low for high, low in pairwise(self.eigenvalues)]
        self.require(min(gaps, default=self.gap) >= self.gap, "eigenvalues that fall by the gap or more")


class HePca(Spectrum, kind="he_pca", titled="power-method bound (He et al.)"):
    """Error of eigenvector η+1 after τ = ln(1/(ε₀δ))/ε₀ power steps: τελ₁² + (λ₁√ε₀/Δ) Π_{i<=η} 5λ_{i+1}/Δ.

    Corrected: the product runs to η, but in the paper it runs to k. `finite_iterations` corrects the joint bound.

    The construction `principal_components` has a net without the error τελ₁² in the direction.

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
    without_study = "depends on ε and ε₀ of the proof, which no trained net has"
    loops: PositiveInt = 100
    """τ, the number of power steps; the transformer has 2τ + 4k + 1 layers."""
    component: PositiveInt = 1
    """η+1, the number of the eigenvector, from 1. In the joint bound: k, the number of eigenvectors."""
    joint: bool = False
    """Whether the bound is for the first `component` eigenvectors jointly."""
    reading: Reading = "corrected"
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
        self.require_falling()
        approximation = self.loops * self.accuracy * lam[0] ** 2
        if self.joint:
            rest = finite_iterations(lam, self.gap, self.unconverged, self.reading, first=k)
            return k * approximation + rest
        factors = [5 * each / self.gap for each in (lam[1:] if self.reading == "printed" else lam[1:k])]
        return approximation + lam[0] / self.gap * math.sqrt(self.unconverged) * math.prod(factors)


class HePcaN(Bound, kind="he_pca_n", titled="generalisation bound (He et al.)"):
    """Loss above the best of the class after pretraining on n prompts: √((k³ L M d² ln(B+k) + ln(1/ξ)) / n)."""

    claim = "<="
    of = "generalisation gap"
    source = "@he2024, proposition 9 of @liu2025slides"
    hidden_constant = True
    without_study = "needs the best loss of the class, and no study of PCA varies the distinct prompts"
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


class HePcaErm(Spectrum, kind="he_pca_erm", titled="pretraining bound (He et al.)"):
    """Error of k eigenvectors after pretraining: the bounds of theorem 7 and proposition 9, summed.

    The terms are τεkλ₁², the finite iterations (`finite_iterations`) and √((k³ ln(1/(ε₀δ)) B^d d² ln(B+k) +
    ln(1/ξ)) / (n ε₀ ε²)), with τ = ln(1/(ε₀δ))/ε₀. As printed, the logarithm in the root is ln(δ/ε₀), which is positive
    for ε₀ < δ only. The statement fails with probability ξ + k `he_init`.

    Heads, which number B^d/ε², make the bound vacuous unless n is huge. `he_pca_tuned` has the exponents in n.
    """

    claim = "<="
    of = "parameter error"
    source = "@he2024, corollary 10 of @liu2025slides"
    hidden_constant = True
    without_study = "depends on ε and ε₀ of the proof, which no trained net has"
    dim: PositiveInt = 2
    """d, the dimension of a point."""
    prompts: PositiveInt = 1_000_000
    """n, the number of pretraining prompts."""
    accuracy: PositiveFloat = 0.1
    """ε, the approximation error of a layer."""
    unconverged: float = Field(0.01, gt=0, lt=1)
    """ε₀, the error of finitely many iterations."""
    radius: PositiveFloat = 3.0
    """B, an upper bound of the largest eigenvalue of XX'."""
    failure: float = Field(0.05, gt=0, lt=1)
    """ξ, the probability of failure without that of the starts."""
    reading: Reading = "printed"
    """`corrected`: the logarithm of τ in the root, and the joint bound as in `he_pca`."""

    @override
    def value(self) -> float:
        lam, k = self.eigenvalues, len(self.eigenvalues)
        self.require(0 < k <= self.dim, "1 <= the number of eigenvalues <= d")
        self.require_falling()
        self.require(lam[0] <= self.radius, "eigenvalues up to the radius")
        self.require(self.overlap < 1 / self.dim, "overlap < 1 / d")
        printed = self.reading == "printed"
        self.require(not printed or self.unconverged < self.overlap, "unconverged < overlap as printed")
        steps = -math.log(self.unconverged * self.overlap)
        log = math.log(self.overlap / self.unconverged) if printed else steps
        size = k**3 * log * self.radius**self.dim * self.dim**2 * math.log(self.radius + k)
        pretraining = (size - math.log(self.failure)) / (self.prompts * self.unconverged * self.accuracy**2)
        approximation = steps / self.unconverged * self.accuracy * k * lam[0] ** 2
        iterations = finite_iterations(lam, self.gap, self.unconverged, self.reading, first=k)
        return approximation + iterations + math.sqrt(pretraining)


class HePcaTuned(Bound, kind="he_pca_tuned", titled="tuned pretraining bound (He et al.)"):
    """Least `he_pca_erm` over ε and ε₀, up to logarithms: n^-a.

    The paper prints a = 1/5 (`iterations: fixed`, `term: linear`). This exponent requires that the number of power
    steps does not grow as ε₀ falls, and that the error is linear in ε₀. The terms of theorem 7, τ = 1/ε₀ and √ε₀, give
    1/10 (the default here). The printed sum, with τ = 1/ε₀ and a term linear in ε₀, gives 1/7. The fourth reading
    gives 1/6. Do not base a verdict on one of them.
    """

    claim = "<="
    of = "parameter error"
    source = "derived from theorem 7 and proposition 9; corrects @he2025spectral, corollary 10 of the slides"
    hidden_constant = True
    without_study = "the sources give four exponents, so a verdict would rest on a reading"
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


class HeGmm(Bound, kind="he_gmm", titled="clustering bound (He et al.)"):
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
