"""Sparse recovery in context: y = Xβ with S non-zero coordinates of β, by l1 and by learned iterations (LISTA).

n pairs are seen, K = `layers`. Liu et al. 2025 prove that a transformer does one step of LISTA a layer, with
measurements that differ from prompt to prompt. Gaussian inputs violate its bound on |x|: clip them.
"""

import math
from typing import Literal

from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt
from scipy.optimize import root_scalar
from scipy.special import ndtr
from typing_extensions import override

from loopscale.theory.bounds.base import Bound, InContext


class Sparse(InContext):
    nonzero: PositiveInt = 3
    """S, of the `dim` coordinates of β."""

    def check(self) -> None:
        self.require(self.nonzero <= self.dim, "nonzero <= dim")


class VaryingMeasurements(Sparse):
    """What Liu et al. 2025 state for n >= N₀ = 8 (4S-2)² ln(dS/δ)/c pairs, without noise.

    Corrected: the last root of e^-α has the factor γ, without which α < 0 at n = N₀ for small γ.
    """

    claim = "<="
    hidden_constant = True
    dim: PositiveInt = 100
    points: PositiveInt = 100_001
    layers: PositiveInt = 10
    """K."""
    gamma: float = Field(1.0, gt=0, le=1.5)
    """γ, of the step."""
    concentration: PositiveFloat = 1.0
    """c, of the inputs, which the source leaves open."""
    failure: float = Field(0.05, gt=0, lt=1)
    """δ, the probability that it does not hold."""

    @property
    def left(self) -> float:
        """e^-α, what a layer leaves of the error; 1 - ⅔γ for n to infinity."""
        self.check()
        d, s, n, c = self.dim, self.nonzero, self.seen, self.concentration
        least = 8 * (4 * s - 2) ** 2 * math.log(d * s / self.failure) / c
        self.require(n >= least, f"N >= {least:.1f}")
        others = (2 * s - 1) * math.sqrt(math.log(d / self.failure) / (n * c))
        own = math.sqrt(math.log(s / self.failure) / (n * c))
        return 1 - self.gamma * (2 / 3 - others - own)


class ListaVM(VaryingMeasurements, kind="lista_vm"):
    """b e^(-αK): geometric in the layers, at a rate that rises with n up to -ln(1 - ⅔γ)."""

    of = "parameter error"
    source = "Liu et al. 2025, theorem 5.1 (theorem 13 of the slides), corrected"
    w_norm: PositiveFloat = 1.0
    """b, that |β|₁ is at most."""

    @override
    def value(self) -> float:
        return self.w_norm * self.left**self.layers


class ListaReadout(VaryingMeasurements, kind="lista_readout"):
    """|ŷ - y|: b(1 - ⅔γ)^K + c₄ (K/√n) (1 - ⅔γ)^(K-1) of a linear read-out, c₅ e^(-αK) of a query's.

    The term in 1/√n decays in K too, and expanding e^(-αK) gives the same: that a linear read-out adds a floor and
    a query's does not, as is said of it, does not follow.
    """

    of = "prediction error"
    source = "Liu et al. 2025, theorem 14 of the slides"
    readout: Literal["linear", "query"] = "linear"
    """`linear` of the last layer's state, or that of a `query` token."""
    x_norm: PositiveFloat = 1.0
    """b, that |x| is at most."""

    @override
    def value(self) -> float:
        left, limit = self.left, 1 - 2 / 3 * self.gamma
        if self.readout == "query":
            return left**self.layers
        drift = self.layers / math.sqrt(self.seen) * limit ** (self.layers - 1)
        return self.x_norm * limit**self.layers + drift


class ListaCP(Bound, kind="lista_cp"):
    """s B ((2s-1)μ)^K + Cσ, C = 2 s C_W/(1 - (2s-1)μ): LISTA-CP with the weights of its proof."""

    claim = "<="
    of = "parameter error"
    source = "Chen et al. 2018, theorem 2 (from memory; C derived)"
    nonzero: PositiveInt = 3
    """s."""
    layers: NonNegativeInt = 10
    """K."""
    coherence: PositiveFloat = 0.1
    """μ, the largest product of a column of the weights with another one of X, with its own being 1."""
    largest: PositiveFloat = 1.0
    """B, of a coordinate of β."""
    noise_norm: NonNegativeFloat = 0.0
    """σ there: the l1 norm of all the noise, not the deviation of one y."""
    weight: PositiveFloat = 1.0
    """C_W, the largest entry of the weights; it matters under noise alone."""

    @override
    def value(self) -> float:
        rate = (2 * self.nonzero - 1) * self.coherence
        self.require(rate < 1, "nonzero < (1 + 1/coherence)/2")
        noise = 2 * self.nonzero * self.weight * self.noise_norm / (1 - rate)
        return self.nonzero * self.largest * rate**self.layers + noise


class L1Threshold(Bound, kind="l1_threshold"):
    """inf_t s(1+t²) + 2(d-s) [(1+t²)Φ(-t) - tφ(t)]: the pairs from which the least |β|₁ is β itself.

    Without noise, Gaussian inputs. The change from failure to success is about √d wide.
    """

    claim = "~"
    of = "threshold"
    source = "Amelunxen, Lotz, McCoy, Tropp 2014, theorem II and proposition 4.5 (from memory)"
    dim: PositiveInt = 100
    """d, coordinates of β."""
    nonzero: PositiveInt = 10
    """s."""

    @override
    def value(self) -> float:
        self.require(self.nonzero <= self.dim, "nonzero <= dim")

        d, s = self.dim, self.nonzero

        def parts(t: float) -> tuple[float, float]:
            return float(ndtr(-t)), math.exp(-t * t / 2) / math.sqrt(2 * math.pi)

        def slope(t: float) -> float:
            tail, density = parts(t)
            return s * t + 2 * (d - s) * (t * tail - density)

        t = root_scalar(slope, bracket=(0, 40), xtol=1e-13).root
        tail, density = parts(t)
        return s * (1 + t * t) + 2 * (d - s) * ((1 + t * t) * tail - t * density)


class SparseOracle(Sparse, kind="sparse_oracle"):
    """σ² s/(n-s-1): least squares that is told the support; 0 without noise. A lower reference."""

    claim = "="
    of = "excess at a point"
    source = "textbook: mean of the inverse Wishart"
    noise: NonNegativeFloat = 0.0
    """σ."""

    @override
    def value(self) -> float:
        self.check()
        self.require(self.seen >= self.nonzero, "N >= nonzero")
        spare = self.seen - self.nonzero - 1
        if self.noise == 0:
            return 0.0
        return self.noise**2 * self.nonzero / spare if spare > 0 else math.inf
