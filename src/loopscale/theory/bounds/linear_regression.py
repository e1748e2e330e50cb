"""In-context linear regression: the excess error against the number of pairs seen, for methods that do not
iterate.

y = <w, x> + noise, x ~ N(0, x_scale² Λ), w ~ N(0, w_scale² I), noise ~ N(0, noise²). Λ has the two-level
spectrum of the task `linear_regression`. Everything here is free of constants: a trained net is held
against it absolutely.
"""

import math

import numpy as np
from jaxtyping import Float
from pydantic import Field, NonNegativeFloat, PositiveFloat
from scipy.optimize import root_scalar
from typing_extensions import override

from loopscale.tasks.spectrum import two_level_spectrum
from loopscale.theory.bounds.base import InContext
from loopscale.theory.bounds.bayes import bayes_factor


class LinearExcess(InContext):
    """The excess error of a method at the query that has seen `point` pairs."""

    of = "excess at a point"
    noise: NonNegativeFloat = 0.0
    """σ."""
    condition: float = Field(1.0, ge=1)
    """κ of the covariance of x."""
    x_scale: PositiveFloat = 1.0
    """The root mean square of a coordinate of x."""
    w_scale: PositiveFloat = 1.0
    """τ."""

    @property
    def signal(self) -> float:
        """What a coordinate adds to the variance of y, τ²: scaling x does to y what scaling w does."""
        return (self.w_scale * self.x_scale) ** 2

    @property
    def noise_ratio(self) -> float:
        """σ²/τ², the penalty λ of the Bayes predictor for x of unit variance."""
        return self.noise**2 / self.signal

    def isotropic(self) -> None:
        self.require(self.condition == 1, "isotropic inputs (condition 1)")


class Zero(LinearExcess, kind="zero"):
    """Predicting 0: τ² d."""

    claim = "="
    source = "definition"

    @override
    def value(self) -> float:
        return self.signal * self.dim


class OlsMinNorm(LinearExcess, kind="ols_min_norm"):
    """Least squares of minimum norm. Infinite for N within 1 of d under noise: the mean of 1/χ² on 1 or 2
    degrees.
    """

    claim = "="
    source = (
        "textbook: moments of the inverse Wishart; Breiman and Freedman 1983; Belkin, Hsu, Xu 2020, theorem 1"
    )

    @override
    def value(self) -> float:
        n, d = self.seen, self.dim
        if n >= d + 2:
            return self.noise**2 * d / (n - d - 1)
        self.require(self.condition == 1 or self.noise == 0 <= n - d, "N >= d + 2, or isotropic inputs")
        unseen = self.signal * max(d - n, 0)
        if n == 0 or self.noise == 0:
            return unseen
        return unseen + self.noise**2 * n / (d - n - 1) if n <= d - 2 else math.inf


class BayesNoiseless(LinearExcess, kind="bayes_noiseless"):
    """τ² (d - N) while N < d, then 0: without noise no predictor does better."""

    claim = "="
    source = "textbook: what the pairs do not span is as unknown as before"

    @override
    def value(self) -> float:
        self.isotropic()
        self.require(self.noise == 0, "noise 0")
        return self.signal * max(self.dim - self.seen, 0)


class Averaging(LinearExcess, kind="averaging"):
    """w = (scale/N) Σ y x; the solver of that name. Also one gradient step of size `scale` from 0
    (`gd_risk_1`).
    """

    claim = "="
    source = "derived: moments of a Gaussian"
    scale: PositiveFloat = 1.0
    """c."""

    @override
    def value(self) -> float:
        self.isotropic()
        self.require(self.seen >= 1, "N >= 1")
        c, d, n = self.scale * self.x_scale**2, self.dim, self.seen
        return self.signal * d * ((1 - c) ** 2 + c**2 * (d + 1) / n) + c**2 * self.noise**2 * d / n


class OneStepBest(LinearExcess, kind="one_step_best"):
    """The best `averaging`, c = N/(N + a), a = d + 1 + σ²/τ²; also one trained layer of linear attention."""

    claim = "="
    source = "derived; Zhang, Frei, Bartlett 2023, theorem 4.1"

    @override
    def value(self) -> float:
        self.isotropic()
        a = self.dim + 1 + self.noise_ratio
        return self.signal * self.dim * a / (self.seen + a)


class BayesRidge(LinearExcess, kind="bayes_ridge"):
    """The Bayes predictor, ridge with λ = σ²/τ², exactly at finite size: no predictor is below. See
    `bayes.py`.
    """

    claim = "="
    source = "derived: a recursion of independent chi-squares"
    floor_of = "linear_regression"

    @override
    def value(self) -> float:
        self.isotropic()
        return self.signal * self.dim * bayes_factor(self.seen, self.dim, self.noise_ratio)


class DecoderFloor(LinearExcess, kind="decoder_floor"):
    """The mean of `bayes_ridge` over the queries 0 .. points-1: no causal model has less `excess`, at any
    depth.
    """

    claim = ">="
    of = "excess"
    source = "derived from `bayes_ridge`"

    @override
    def value(self) -> float:
        self.isotropic()
        factors = [bayes_factor(n, self.dim, self.noise_ratio) for n in range(self.points)]
        return self.signal * self.dim * math.fsum(factors) / self.points


class BayesRidgeMP(LinearExcess, kind="bayes_ridge_mp"):
    """`bayes_ridge` for d, N to infinity at fixed γ = d/N. No substitute at d = 20: 4 % low at N = 2d, 23 %
    low at N = d.
    """

    claim = "~"
    source = "Dicker 2016, theorem 1; Dobriban and Wager 2018, theorem 2.1 (Marchenko-Pastur law)"

    @override
    def value(self) -> float:
        self.isotropic()
        self.require(self.noise > 0 and self.seen >= 1, "noise > 0 and N >= 1")
        gamma, z = self.dim / self.seen, self.noise_ratio / self.seen
        gap = 1 - gamma + z
        root = math.sqrt(gap**2 + 4 * gamma * z)
        # The two forms of one root of a quadratic; each is used where it does not cancel.
        m = 2 / (gap + root) if gap > 0 else (root - gap) / (2 * gamma * z)
        return self.noise**2 * gamma * m


class RidgeEquivalent(LinearExcess, kind="ridge_equiv"):
    """Ridge with any penalty, for inputs of any condition, d and N to infinity; 12 % low at d = 20, κ =
    100, N = 10.
    """

    claim = "~"
    source = "Hastie, Montanari, Rosset, Tibshirani 2022, theorem 5 (deterministic equivalents)"
    penalty: NonNegativeFloat | None = None
    """λ of the solver `ridge`; by default the Bayes one, σ²/w_scale²."""

    @override
    def value(self) -> float:
        n, penalty = self.seen, self.noise**2 / self.w_scale**2 if self.penalty is None else self.penalty
        s = self.x_scale**2 * np.array(two_level_spectrum(self.dim, self.condition))
        self.require(penalty > 0 or n != self.dim, "penalty > 0, or N other than d")
        if n == 0:
            return self.w_scale**2 * float(s.sum())
        mu = effective_penalty(s, n, penalty)
        bias = self.w_scale**2 * np.sum(s * mu**2 / (s + mu) ** 2)
        freedom = np.sum(s**2 / (s + mu) ** 2)
        return float((bias + self.noise**2 * freedom / n) / (1 - freedom / n))


def effective_penalty(spectrum: Float[np.ndarray, " dim"], n: int, penalty: float) -> float:
    """μ of μ (1 - (1/n) Σ s/(s+μ)) = λ/n: the penalty at which the expectation does what the sample does at
    λ.
    """

    def excess(log_mu: float) -> float:
        mu = math.exp(log_mu)
        return mu * (1 - np.sum(spectrum / (spectrum + mu)) / n) - penalty / n

    if penalty == 0 and n >= len(spectrum):
        return 0.0
    low, high = math.log(spectrum.min()) - 80, math.log((spectrum.sum() + penalty) / n)
    return math.exp(root_scalar(excess, bracket=(low, high + 1e-9), xtol=1e-14).root)
