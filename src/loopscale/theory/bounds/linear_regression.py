"""In-context linear regression: excess error of non-iterative methods against the number of pairs.

y = <w, x> + noise, x ~ N(0, x_scale² Λ), w ~ N(0, w_scale² I), noise ~ N(0, noise²). Λ has the
spectrum of the task `linear_regression`, by default two levels. No bound here has a hidden constant, so a trained model
is compared in absolute terms.
"""

import math
from collections.abc import Callable

import numpy as np
import scipy  # scipy loads its submodules at the first use
from jaxtyping import Float
from pydantic import Field, NonNegativeFloat, PositiveFloat
from typing_extensions import override

from loopscale.tasks.spectrum import level_spectrum
from loopscale.theory.bounds.base import InContext
from loopscale.theory.bounds.bayes_risk import prior_variance_left

SYSTEM = "linear regression"


class LinearExcess(InContext):
    """The excess error of a method at the query that follows `point` pairs."""

    of = "excess at a point"
    noise: NonNegativeFloat = 0.0
    """σ, the standard deviation of the label noise."""
    condition: float = Field(1.0, ge=1)
    """κ, the condition number of the covariance of x."""
    spectrum_levels: int = Field(2, ge=2)
    """The number of different eigenvalues of the covariance of x, as in the task."""
    x_scale: PositiveFloat = 1.0
    """Root mean square of a coordinate of x."""
    w_scale: PositiveFloat = 1.0
    """τ, the standard deviation of a coordinate of w."""

    @property
    def signal(self) -> float:
        """Variance that a coordinate of x adds to y: τ² in the formulas, as scaling x acts like scaling w."""
        return (self.w_scale * self.x_scale) ** 2

    @property
    def target_variance(self) -> float:
        """Variance of y. Recorded errors and regrets are shares of this variance."""
        return self.signal * self.dim + self.noise**2

    @property
    def noise_ratio(self) -> float:
        """σ²/τ², the penalty λ of the Bayes predictor for x of unit variance."""
        return self.noise**2 / self.signal

    def require_isotropic(self) -> None:
        self.require(self.condition == 1, "isotropic inputs (condition 1)")

    def bayes_excess(self, pairs: int) -> float:
        """Excess of the Bayes predictor after this number of pairs."""
        self.require_isotropic()
        return self.signal * self.dim * prior_variance_left(pairs, self.dim, self.noise_ratio)

    def averaging_excess(self, scale: float) -> float:
        """Excess of w = (scale/N) Σ y x, which is also one gradient step of this size from 0."""
        self.require_isotropic()
        self.require(self.seen >= 1, "N >= 1")
        c, d, n = scale * self.x_scale**2, self.dim, self.seen
        return self.signal * d * ((1 - c) ** 2 + c**2 * (d + 1) / n) + c**2 * self.noise**2 * d / n


class Zero(LinearExcess, kind="zero", titled="zero prediction"):
    """Excess of the prediction 0: τ² d."""

    claim = "="
    source = "definition"
    without_study = "the constant by which every error is divided"

    @override
    def value(self) -> float:
        return self.signal * self.dim


class OlsMinNorm(LinearExcess, kind="ols_min_norm", titled="minimum-norm least squares"):
    """Excess of the least squares solution of minimum norm.

    With noise the excess is infinite for N in {d-1, d, d+1}, because 1/χ² with 1 or 2 degrees of freedom has
    an infinite mean.
    """

    claim = "="
    source = "textbook: moments of the inverse Wishart; @breiman1983; @belkin2020, theorem 1"
    without_study = "exact risk of a solver that the studies run on the same prompts"

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


class BayesNoiseless(LinearExcess, kind="bayes_noiseless", titled="Bayes predictor without noise"):
    """Smallest possible excess without noise: τ² (d - N) for N < d, then 0."""

    claim = "="
    source = "textbook: the pairs tell nothing about directions outside their span"
    without_study = "exact risk of the floor that the studies run on the same prompts"

    @override
    def value(self) -> float:
        self.require_isotropic()
        self.require(self.noise == 0, "noise 0")
        return self.signal * max(self.dim - self.seen, 0)


class Averaging(LinearExcess, kind="averaging"):
    """Excess of the solver `averaging`, w = (scale/N) Σ y x, and of one gradient step (`gd_risk_1`)."""

    claim = "="
    source = "derived: moments of a Gaussian"
    without_study = "exact risk of a solver that the studies run on the same prompts"
    scale: PositiveFloat = 1.0
    """c, the factor before the mean of y x."""

    @override
    def value(self) -> float:
        return self.averaging_excess(self.scale)


class OneStepBest(LinearExcess, kind="one_step_best", titled="best single gradient step"):
    """Excess of the best `averaging`, c = N/(N + a), a = d + 1 + σ²/τ², and of trained linear attention."""

    claim = "="
    source = "derived; @zhang2023, theorem 4.1"

    @override
    def value(self) -> float:
        self.require_isotropic()
        a = self.dim + 1 + self.noise_ratio
        return self.signal * self.dim * a / (self.seen + a)


class BayesRidge(LinearExcess, kind="bayes_ridge", titled="Bayes-optimal ridge"):
    """Smallest excess of any predictor, exact at finite size: the Bayes predictor, ridge with λ = σ²/τ²."""

    claim = "="
    source = "derived: a recursion of independent chi-squares"
    floor_of = "linear_regression"

    @override
    def value(self) -> float:
        return self.bayes_excess(self.seen)


class DecoderFloor(LinearExcess, kind="decoder_floor", titled="Bayes floor of a causal model"):
    """Smallest mean excess of a causal model of any depth: mean of `bayes_ridge` over N = 0, ..., points - 1."""

    claim = ">="
    of = "excess"
    source = "derived from `bayes_ridge`"

    @override
    def value(self) -> float:
        return math.fsum(self.bayes_excess(n) for n in range(self.points)) / self.points


class BayesRidgeMP(LinearExcess, kind="bayes_ridge_mp", titled="Bayes-optimal ridge (asymptotic)"):
    """Limit of `bayes_ridge` for d, N to infinity at fixed γ = d/N.

    The limit cannot replace `bayes_ridge` at d = 20: it is 4 % too low at N = 2d and 23 % too low at N = d.
    """

    claim = "~"
    source = "@dicker2016, theorem 1; @dobriban2018, theorem 2.1 (Marchenko-Pastur law)"
    without_study = "the limit of `bayes_ridge`, which is exact at the sizes of the studies"

    @override
    def value(self) -> float:
        self.require_isotropic()
        self.require(self.noise > 0 and self.seen >= 1, "noise > 0 and N >= 1")
        gamma, z = self.dim / self.seen, self.noise_ratio / self.seen
        gap = 1 - gamma + z
        root = math.sqrt(gap**2 + 4 * gamma * z)
        # Two forms of the same root of a quadratic; each sign of the gap takes the form without cancellation.
        m = 2 / (gap + root) if gap > 0 else (root - gap) / (2 * gamma * z)
        return self.noise**2 * gamma * m


class RidgeEquivalent(LinearExcess, kind="ridge_equiv", titled="ridge (asymptotic)"):
    """Excess of ridge with any penalty and inputs of any condition, for d and N to infinity.

    The limit is 12 % too low at d = 20, κ = 100, N = 10.
    """

    claim = "~"
    source = "@hastie2022, theorem 5 (deterministic equivalents)"
    without_study = "the limit of the risk of a solver that the studies run on the same prompts"
    penalty: NonNegativeFloat | None = None
    """λ of the solver `ridge`; by default the Bayes penalty σ²/w_scale²."""

    @override
    def value(self) -> float:
        n, penalty = self.seen, self.noise**2 / self.w_scale**2 if self.penalty is None else self.penalty
        s = self.x_scale**2 * np.array(level_spectrum(self.dim, self.condition, self.spectrum_levels))
        self.require(penalty > 0 or n != self.dim, "penalty > 0, or N other than d")
        if n == 0:
            return self.w_scale**2 * float(s.sum())
        mu = effective_penalty(s, n, penalty)
        bias = self.w_scale**2 * np.sum(s * mu**2 / (s + mu) ** 2)
        freedom = np.sum(s**2 / (s + mu) ** 2)
        return float((bias + self.noise**2 * freedom / n) / (1 - freedom / n))


def effective_penalty(spectrum: Float[np.ndarray, " dim"], n: int, penalty: float) -> float:
    """Solve μ (1 - (1/n) Σ s/(s+μ)) = λ/n for μ, the penalty on the covariance equivalent to λ on the sample."""

    def excess(log_mu: float) -> float:
        mu = math.exp(log_mu)
        return mu * (1 - np.sum(spectrum / (spectrum + mu)) / n) - penalty / n

    if penalty == 0 and n >= len(spectrum):
        return 0.0
    low, high = math.log(spectrum.min()) - 80, math.log((spectrum.sum() + penalty) / n)
    return math.exp(scipy.optimize.root_scalar(excess, bracket=(low, high + 1e-9), xtol=1e-14).root)


def marchenko_pastur_mean(function: Callable[[float], float], gamma: float) -> float:
    """Mean of `function(eigenvalue)` under the Marchenko-Pastur law of ratio γ = dimension / samples.

    For γ > 1 the law has mass 1 - 1/γ at eigenvalue 0.
    """
    middle, radius = 1 + gamma, 2 * math.sqrt(gamma)

    def integrand(angle: float) -> float:
        # With s = middle + radius cos(angle), the square roots of the density become sin²: the integrand is smooth.
        s = middle + radius * math.cos(angle)
        return (radius * math.sin(angle)) ** 2 / (2 * math.pi * gamma * s) * function(s)

    bulk, _ = scipy.integrate.quad(integrand, 0, math.pi, epsabs=1e-12, epsrel=1e-10, limit=200)
    return bulk + (function(0.0) * (1 - 1 / gamma) if gamma > 1 else 0.0)
