"""Sparse recovery in context, by l1 minimisation and learned iterations (LISTA).

y = Xβ, where β has S non-zero coordinates. The prompt has n pairs, and K = `layers`. @liu2025 prove
that a transformer does one LISTA step per layer, with measurements X that differ between prompts. Gaussian
inputs violate the bound on |x| in their theorem and must be clipped.
"""

import math
from typing import Literal

import scipy  # scipy loads its submodules at the first use
from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt
from typing_extensions import override

from loopscale.theory.bounds.base import Bound, InContext

SYSTEM = "sparse recovery"


class Sparse(InContext):
    nonzero: PositiveInt = 3
    """S, the number of non-zero coordinates of β."""

    def require_conditions(self) -> None:
        self.require(self.nonzero <= self.dim, "nonzero <= dim")


class VaryingMeasurements(Sparse):
    """A statement of @liu2025 for n >= N₀ = 8 (4S-2)² ln(dS/δ)/c pairs, without noise.

    Corrected: the last root of e^-α has the factor γ. Without γ, α is negative at n = N₀ for small γ.
    """

    claim = "<="
    hidden_constant = True
    dim: PositiveInt = 100
    points: PositiveInt = 100_001
    layers: PositiveInt = 10
    """K, the number of layers."""
    gamma: float = Field(1.0, gt=0, le=1.5)
    """γ, the step size."""
    concentration: PositiveFloat = 1.0
    """c, the concentration of the inputs, which the source leaves open."""
    failure: float = Field(0.05, gt=0, lt=1)
    """δ, the probability that the statement fails."""

    @property
    def error_factor(self) -> float:
        """e^-α, the factor of the error per layer; 1 - ⅔γ for n to infinity."""
        self.require_conditions()
        d, s, n, c = self.dim, self.nonzero, self.seen, self.concentration
        least = 8 * (4 * s - 2) ** 2 * math.log(d * s / self.failure) / c
        self.require(n >= least, f"N >= {least:.1f}")
        others = (2 * s - 1) * math.sqrt(math.log(d / self.failure) / (n * c))
        own = math.sqrt(math.log(s / self.failure) / (n * c))
        return 1 - self.gamma * (2 / 3 - others - own)


class ListaVM(VaryingMeasurements, kind="lista_vm", titled="LISTA with varying measurements"):
    """|β̂ - β| after K layers: b e^(-αK), geometric in K with a rate α that rises with n up to -ln(1 - ⅔γ)."""

    of = "parameter error"
    source = "@liu2025, theorem 5.1 (theorem 13 of @liu2025slides), corrected"
    without_study = "up to constants, and for more pairs than the studies have"
    w_norm: PositiveFloat = 1.0
    """b, the largest |β|₁."""

    @override
    def value(self) -> float:
        return self.w_norm * self.error_factor**self.layers


class ListaReadout(VaryingMeasurements, kind="lista_readout", titled="LISTA with a read-out"):
    """|ŷ - y| after K layers, with a linear read-out or a query token.

    Linear: b(1 - ⅔γ)^K + c₄ (K/√n) (1 - ⅔γ)^(K-1). Query: c₅ e^(-αK). A common claim is that the linear
    read-out adds a floor and the query does not. The claim does not follow: the term in 1/√n also decays in
    K, and the expansion of e^(-αK) has the same term.
    """

    of = "prediction error"
    source = "@liu2025, theorem 14 of @liu2025slides"
    without_study = "up to constants, and for more pairs than the studies have"
    readout: Literal["linear", "query"] = "linear"
    """`linear`: from the state of the last layer. `query`: from a query token."""
    x_norm: PositiveFloat = 1.0
    """b, the largest |x|."""

    @override
    def value(self) -> float:
        factor, limit = self.error_factor, 1 - 2 / 3 * self.gamma
        if self.readout == "query":
            return factor**self.layers
        drift = self.layers / math.sqrt(self.seen) * limit ** (self.layers - 1)
        return self.x_norm * limit**self.layers + drift


class ListaCP(Bound, kind="lista_cp", titled="LISTA-CP"):
    """|β̂ - β| after K layers of LISTA-CP: s B ((2s-1)μ)^K + Cσ, C = 2 s C_W/(1 - (2s-1)μ), weights of the proof."""

    claim = "<="
    of = "parameter error"
    source = "@chen2018, theorem 2 (from memory; C derived)"
    without_study = "bounds the largest error of an answer; trials record the mean square error"
    nonzero: PositiveInt = 3
    """s, the number of non-zero coordinates of β."""
    layers: NonNegativeInt = 10
    """K, the number of layers."""
    coherence: PositiveFloat = 0.1
    """μ, the largest product of a column of the weights with another column of X; with its own column it is
    1.
    """
    largest: PositiveFloat = 1.0
    """B, the largest coordinate of β."""
    noise_norm: NonNegativeFloat = 0.0
    """σ of the paper: the l1 norm of the noise vector, not the standard deviation of one y."""
    weight: PositiveFloat = 1.0
    """C_W, the largest entry of the weights; used only with noise."""

    @override
    def value(self) -> float:
        rate = (2 * self.nonzero - 1) * self.coherence
        self.require(rate < 1, "nonzero < (1 + 1/coherence)/2")
        noise = 2 * self.nonzero * self.weight * self.noise_norm / (1 - rate)
        return self.nonzero * self.largest * rate**self.layers + noise


class L1Threshold(Bound, kind="l1_threshold", titled="threshold of l1 minimisation"):
    """Number of pairs from which l1 minimisation returns β: inf_t s(1+t²) + 2(d-s) [(1+t²)Φ(-t) - tφ(t)].

    The statement is for Gaussian inputs without noise. The change from failure to success is about √d wide.
    """

    claim = "~"
    of = "threshold"
    source = "@amelunxen2014, theorem II and proposition 4.5 (from memory)"
    dim: PositiveInt = 100
    """d, the dimension of β."""
    nonzero: PositiveInt = 10
    """s, the number of non-zero coordinates of β."""

    @override
    def value(self) -> float:
        self.require(self.nonzero <= self.dim, "nonzero <= dim")

        d, s = self.dim, self.nonzero

        def tail_and_density(t: float) -> tuple[float, float]:
            return float(scipy.special.ndtr(-t)), math.exp(-t * t / 2) / math.sqrt(2 * math.pi)

        def derivative(t: float) -> float:
            tail, density = tail_and_density(t)
            return s * t + 2 * (d - s) * (t * tail - density)

        t = scipy.optimize.root_scalar(derivative, bracket=(0, 40), xtol=1e-13).root
        tail, density = tail_and_density(t)
        return s * (1 + t * t) + 2 * (d - s) * ((1 + t * t) * tail - t * density)


class SparseOracle(Sparse, kind="sparse_oracle", titled="least squares with known support"):
    """Excess of least squares with known support: σ² s/(n-s-1), and 0 without noise. A lower reference."""

    claim = "="
    of = "excess at a point"
    source = "textbook: mean of the inverse Wishart"
    without_study = "exact risk of the solver `oracle_support`, which the studies run on the same prompts"
    noise: NonNegativeFloat = 0.0
    """σ, the standard deviation of the label noise."""

    @override
    def value(self) -> float:
        self.require_conditions()
        self.require(self.seen >= self.nonzero, "N >= nonzero")
        spare = self.seen - self.nonzero - 1
        if self.noise == 0:
            return 0.0
        return self.noise**2 * self.nonzero / spare if spare > 0 else math.inf
