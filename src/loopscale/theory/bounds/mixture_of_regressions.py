"""Mixtures of linear regressions: the error of the coefficients against the pairs of the prompt.

y = <β_z, x> + v·noise with a hidden z; of two symmetric components, ±β. η = |β|/v is the SNR. Jin et al. 2024
bound what a transformer can reach by EM inside. With as many prompts as constants of 1 would ask for, every
practical one has "low" SNR: find the threshold by `mlr_fisher`. If z is drawn anew for every pair, the best
prediction of y is 0 under the symmetric mixture: score β up to its sign.
"""

import math
from typing import Literal

import numpy as np
from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt
from typing_extensions import override

from loopscale.theory.bounds.base import Bound, InContext


class MlrLabelled(InContext, kind="mlr_labelled"):
    """v² d/(n-d-1): E |β̂ - β|² of least squares that is told the components; a lower reference."""

    claim = "="
    of = "squared parameter error"
    source = "textbook: mean of the inverse Wishart"
    noise: NonNegativeFloat = 1.0
    """v."""

    @override
    def value(self) -> float:
        self.require(self.seen >= self.dim + 2, "N >= d + 2")
        return self.noise**2 * self.dim / (self.seen - self.dim - 1)


def information(eta: float) -> tuple[float, float]:
    """Fisher information of one pair about β over v²: along β and across it.

    E g² I(ηg) and E I(ηg), g ~ N(0, 1), where I(a) is that about a of y ~ ½N(a, 1) + ½N(-a, 1).
    """
    # The trapezoidal rule, which converges geometrically here. I(ηg) changes over 1/η, the density over 1: both
    # are slow in u.
    wide = max(eta, 1.0)
    u, step = np.linspace(0, math.asinh(9 * wide), 400, retstep=True)
    g = np.sinh(u) / wide
    weights = np.exp(-(g**2) / 2) * np.cosh(u) * step * math.sqrt(2 / math.pi) / wide
    y, apart = np.linspace(-9, 9, 361, retstep=True)
    a = eta * g[:, None]
    # At a + y alone, y ~ N(0, 1): the other component is its mirror image.
    score = (a + y) * np.tanh(a * (a + y)) - a
    about_a = (score**2 * np.exp(-(y**2) / 2)).sum(1) * apart / math.sqrt(2 * math.pi)
    return float(weights @ (g**2 * about_a)), float(weights @ about_a)


class MlrFisher(InContext, kind="mlr_fisher"):
    """(v²/n) (1/E g²I(ηg) + (d-1)/E I(ηg)): mean squared error of maximum likelihood at fixed η, n to infinity.

    1/n at every η; about 1/η² in η while that is small, flat above 1. It says nothing below η of about
    (d/n)^¼, where E |β̂| ∝ (d/n)^¼.
    """

    claim = "~"
    of = "squared parameter error"
    source = "derived: the Fisher information"
    noise: PositiveFloat = 1.0
    """v."""
    snr: PositiveFloat = 1.0
    """η."""

    @override
    def value(self) -> float:
        self.require(self.seen >= 1, "N >= 1")
        along, across = information(self.snr)
        return self.noise**2 / self.seen * (1 / along + (self.dim - 1) / across)


class Symmetric(InContext):
    """What Jin et al. 2024 state for two components ±β, v = 1, by the side of a threshold that η is on.

    Corrected: above the threshold the printed rate has no 1/η and therefore jumps there. Up to η = 1 the rate
    rises by that (`kwon_k2`); from 1 on both are the same.
    """

    claim = "<="
    hidden_constant = True
    points: PositiveInt = 1001
    snr: PositiveFloat = 1.0
    """η."""
    failure: float = Field(0.05, gt=0, lt=1)
    """δ, the probability that it does not hold."""
    threshold: PositiveFloat = 1.0
    """C of both conditions, n >= C d ln²(1/δ) and η against C (d ln² n/n)^¼; the source leaves it open."""
    reading: Literal["corrected", "printed"] = "corrected"
    """`printed` as in the paper, `corrected` where that contradicts itself."""

    @property
    def pairs(self) -> int:
        """n, checked."""
        needed = max(self.threshold * self.dim * math.log(self.failure) ** 2, 2)
        self.require(self.seen >= needed, f"N >= {needed:.0f} = threshold · d ln²(1/failure)")
        return self.seen

    def branch(self, rate: float, limit: float) -> float:
        """√√rate for η within √√limit, else √rate (over η below 1)."""
        if self.snr <= self.threshold * limit**0.25:
            return rate**0.25
        return rate**0.5 / (min(self.snr, 1) if self.reading == "corrected" else 1)


class JinK2(Symmetric, kind="jin_k2"):
    """|β̂ - β|: r^¼ at low SNR, r^½/min(η, 1) at high, r = d ln²(n/δ)/n."""

    of = "parameter error"
    source = (
        "Jin et al. 2024, theorem 3.2 (from slides; the rates in its abstract); corrected by Kwon et al. 2021"
    )

    @override
    def value(self) -> float:
        n = self.pairs
        log, sure = math.log(n), math.log(n / self.failure)
        return self.branch(self.dim * sure**2 / n, self.dim * log**2 / n)


class JinExcess(Symmetric, kind="jin_excess"):
    """Excess risk: √r at low SNR, r/min(η, 1)² at high, r = d ln² n/n; the square of `jin_k2` up to logs."""

    of = "excess at a point"
    source = "Jin et al. 2024, theorem 3.3 (from slides); corrected by Kwon et al. 2021"

    @override
    def value(self) -> float:
        n = self.pairs
        log, sure = math.log(n), math.log(n / self.failure)
        return self.branch(self.dim * log**2 / n, self.dim * sure**2 / n) ** 2


class JinGeneral(InContext, kind="jin_general"):
    """√ln(d/δ) (√(dKρ² ln²(nK²/δ)/n) + √(dK/n)): from the prediction of an oracle that knows β_1 .. β_K."""

    claim = "<="
    of = "prediction error"
    source = "Jin et al. 2024, theorem 3.1 (from slides)"
    hidden_constant = True
    points: PositiveInt = 1001
    components: PositiveInt = 3
    """K."""
    imbalance: float = Field(1.0, ge=1)
    """ρ, of the most likely component over the least."""
    snr: PositiveFloat = 4.0
    """η; it matters in the condition alone."""
    failure: float = Field(0.05, gt=0, le=1 / 9)
    """δ; it does not hold with probability 9δ."""
    threshold: PositiveFloat = 1.0
    """C of the condition η >= CKρ ln(Kρ), which the source leaves open."""

    @override
    def value(self) -> float:
        n, mass = self.seen, self.components * self.imbalance
        least = self.threshold * mass * math.log(mass)
        self.require(n >= 1, "N >= 1")
        self.require(self.snr >= least, f"snr >= {least:.3g} = threshold · Kρ ln(Kρ)")
        spread = self.imbalance * math.log(n * self.components**2 / self.failure)
        shape = math.sqrt(self.dim * self.components / n)
        return math.sqrt(math.log(self.dim / self.failure)) * shape * (spread + 1)


class JinPrompts(Bound, kind="jin_prompts"):
    """L/√B: what L layers lose by pretraining on B prompts."""

    claim = "<="
    of = "generalisation gap"
    source = "Jin et al. 2024 (abstract alone)"
    hidden_constant = True
    layers: PositiveInt = 12
    """L."""
    prompts: PositiveInt = 10_000
    """B, of pretraining."""

    @override
    def value(self) -> float:
        return self.layers / math.sqrt(self.prompts)


class KwonK2(InContext, kind="kwon_k2"):
    """min((d/n)^¼, (d/n)^½/min(η, 1)): the rate of |β̂ - β| for ±β, from above by EM and from below for anybody.

    Three regimes: n^-¼ while η is below (d/n)^¼, then n^-½/η, then n^-½ from η = 1 on.
    """

    claim = "<="
    of = "parameter error"
    source = "Kwon, Ho, Caramanis 2021 (abstract alone)"
    hidden_constant = True
    snr: PositiveFloat = 1.0
    """η."""

    @override
    def value(self) -> float:
        self.require(self.seen >= self.dim, "N >= d")
        rate = self.dim / self.seen
        return min(rate**0.25, rate**0.5 / min(self.snr, 1))


class EmIterations(InContext, kind="em_iterations"):
    """Iterations of EM until its error is `kwon_k2`: ln(n/d)/min(η, 1)², or √(n/d) below η = (d/n)^¼."""

    claim = "<="
    of = "steps"
    source = "Kwon, Ho, Caramanis 2021 (abstract alone)"
    hidden_constant = True
    snr: PositiveFloat = 1.0
    """η."""

    @override
    def value(self) -> float:
        self.require(self.seen > self.dim, "N > d")
        ratio = self.seen / self.dim
        if self.snr <= ratio**-0.25:
            return math.sqrt(ratio)
        return math.log(ratio) / min(self.snr, 1) ** 2
