"""Bandits: regret that is exact, or bounded free of constants, to hold simulated and learned players against.

K = `arms` arms, T = `horizon` rounds. The Bayesian regret is over arms drawn from the prior as well; Bernoulli
arms have the uniform prior.
"""

import math
from functools import cache

import numpy as np
from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt
from scipy.special import rel_entr
from scipy.stats import beta
from typing_extensions import override

from loopscale.theory.bounds.base import Bound


class Bandit(Bound):
    """A statement about the regret after T rounds."""

    of = "regret"
    horizon: PositiveInt = 200
    """T."""


class RandomRegret(Bandit, kind="random_regret"):
    """T (K/(K+1) - 1/2): playing uniformly, Bernoulli arms drawn from U[0, 1]."""

    claim = "="
    source = "textbook: the largest of K uniforms"
    arms: PositiveInt = 5
    """A."""

    @override
    def value(self) -> float:
        return self.horizon * (self.arms / (self.arms + 1) - 0.5)


class BayesOptimal2Arm(Bandit, kind="bayes_optimal_2arm"):
    """The least Bayesian regret of any player: two Bernoulli arms drawn from U[0, 1], by dynamic programming."""

    claim = "="
    source = "textbook: dynamic programming over the counts of successes and failures"
    horizon: int = Field(100, ge=1, le=200)
    """T; the programme has T⁴/24 states."""

    @override
    def value(self) -> float:
        return self.horizon * 2 / 3 - best_reward(self.horizon)


@cache
def best_reward(horizon: int) -> float:
    """Expected reward of the best player of two Bernoulli arms, uniform priors."""
    # ahead[n, r, s]: with n plays of the first arm, r and s successes of the two. Beyond r <= n, s <= t - n lie
    # numbers without meaning, from which no state within takes anything.
    ahead = np.zeros((horizon + 1,) * 3)
    for t in reversed(range(horizon)):
        n, r, s = np.ogrid[: t + 1, : t + 1, : t + 1]
        first, second = (r + 1) / (n + 2), (s + 1) / (t - n + 2)
        failed = ahead[1:, :-1, :-1], ahead[:-1, :-1, :-1]
        won = ahead[1:, 1:, :-1], ahead[:-1, :-1, 1:]
        ahead = np.maximum(
            first * (1 + won[0] - failed[0]) + failed[0], second * (1 + won[1] - failed[1]) + failed[1]
        )
    return float(ahead[0, 0, 0])


class TsBayes(Bandit, kind="ts_bayes"):
    """√(K T ln K / 2): Bayesian regret of Thompson sampling, rewards in [0, 1], any prior."""

    claim = "<="
    source = "Russo and Van Roy 2016, proposition 1 with 3 (from memory)"
    arms: PositiveInt = 5
    """A."""

    @override
    def value(self) -> float:
        self.require(self.arms >= 2, "arms >= 2")
        return math.sqrt(self.arms * self.horizon * math.log(self.arms) / 2)


class TsLinearBayes(Bandit, kind="ts_linear_bayes"):
    """σ √(2 d T ln A): Bayesian regret of Thompson sampling, A actions whose means are linear in θ of d
    dimensions.
    """

    claim = "<="
    source = "Russo and Van Roy 2016, propositions 1 and 5 (from memory)"
    dim: PositiveInt = 5
    """d, of θ."""
    arms: PositiveInt = 10
    """A."""
    scale: PositiveFloat = 1.5
    """σ: rewards are σ-subgaussian as the player sees them, who does not know θ. That of noise alone is less: for
    θ ~ N(0, τ²I), σ² = noise² + τ² |x|², x the longest action."""

    @override
    def value(self) -> float:
        self.require(self.arms >= 2, "arms >= 2")
        return self.scale * math.sqrt(2 * self.dim * self.horizon * math.log(self.arms))


class KnownMeans(Bandit):
    """A statement about given Bernoulli arms, not about an average over a prior."""

    horizon: PositiveInt = 1000
    """T."""
    means: tuple[float, ...] = (0.5, 0.6)
    """Of every arm."""

    @property
    def gaps(self) -> np.ndarray:
        """Δ, how far the mean of each arm that is not the best falls behind it."""
        means = np.array(self.means)
        self.require(len(means) > 0 and bool(np.all((means > 0) & (means < 1))), "means within (0, 1)")
        gaps = means.max() - means
        self.require(bool(np.any(gaps > 0)), "means that differ")
        return gaps[gaps > 0]


class LaiRobbins(KnownMeans, kind="lai_robbins"):
    """ln T · Σ Δ/KL(μ, μ*): as T grows, no player that is good at all means has less at these.

    A limit, not a bound at any one T: at means .5 and .6 and T = 1000 it is 33.8, and UCB1 has 24.8.
    """

    claim = "~"
    source = "Lai and Robbins 1985, theorem 1 (from memory)"

    @override
    def value(self) -> float:
        gaps, best = self.gaps, max(self.means)
        means = best - gaps
        divergence = rel_entr(means, best) + rel_entr(1 - means, 1 - best)
        return math.log(self.horizon) * float(np.sum(gaps / divergence))


class Ucb1(KnownMeans, kind="ucb1"):
    """8 ln T Σ 1/Δ + (1 + π²/3) Σ Δ: UCB1, at every T."""

    claim = "<="
    source = "Auer, Cesa-Bianchi, Fischer 2002, theorem 1 (from memory)"

    @override
    def value(self) -> float:
        gaps = self.gaps
        return float(8 * math.log(self.horizon) * np.sum(1 / gaps) + (1 + math.pi**2 / 3) * np.sum(gaps))


class Minimax(Bandit, kind="minimax"):
    """√((K-1)T)/27: some arms with means in [0, 1] and N(0, 1) noise cost any player as much."""

    claim = ">="
    source = "Lattimore and Szepesvári 2020, theorem 15.2 (from memory)"
    arms: PositiveInt = 5
    """A."""

    @override
    def value(self) -> float:
        self.require(2 <= self.arms <= self.horizon + 1, "2 <= arms <= horizon + 1")
        return math.sqrt((self.arms - 1) * self.horizon) / 27


class LinUcb(Bandit, kind="linucb"):
    """4 √(T d ln(λ + TL²/d)) (√λ S + R √(2 ln(1/δ) + d ln(1 + TL²/(λd)))): d √T with logarithms.

    The paper prints L in place of L², which its own determinant of λI + X'X does not give; at L = 1 they agree.
    """

    claim = "<="
    source = "Abbasi-Yadkori, Pál, Szepesvári 2011, theorem 3 (from memory)"
    dim: PositiveInt = 5
    """d, of θ."""
    penalty: float = Field(1.0, ge=1)
    """λ, of the ridge regression."""
    x_norm: PositiveFloat = 1.0
    """L, that no action is longer than."""
    w_norm: PositiveFloat = 1.0
    """S, that θ is no longer than; all means are within 1 of 0."""
    noise: PositiveFloat = 1.0
    """R, the noise being R-subgaussian."""
    failure: float = Field(0.1, gt=0, lt=1)
    """δ, the probability that it does not hold."""

    @override
    def value(self) -> float:
        total = self.horizon * self.x_norm**2 / self.dim
        self.require(self.penalty >= self.x_norm**2, "penalty >= x_norm²")
        width = math.sqrt(self.dim * math.log(1 + total / self.penalty) - 2 * math.log(self.failure))
        explored = math.sqrt(self.horizon * self.dim * math.log(self.penalty + total))
        return 4 * explored * (math.sqrt(self.penalty) * self.w_norm + self.noise * width)


class DptTarget(Bound, kind="dpt_target"):
    """P(arm is the best | history): what a net learns to play whose expert is the optimal action.

    So it plays as Thompson sampling does; with LinUCB as the expert it would be LinUCB. Bernoulli arms drawn from
    U[0, 1].
    """

    claim = "="
    of = "probability"
    source = "derived: cross entropy is least at the posterior; Lin, Bai, Mei 2024; Lee et al. 2023"
    successes: tuple[NonNegativeInt, ...] = (3, 1)
    """Of every arm so far."""
    failures: tuple[NonNegativeInt, ...] = (2, 4)
    """Of every arm so far."""
    arm: NonNegativeInt = 0
    """Counted from 0."""

    @override
    def value(self) -> float:
        self.require(
            len(self.successes) == len(self.failures) > self.arm, "as many successes as failures > arm"
        )
        # The integrand is a polynomial, on which so many nodes are exact.
        nodes, weights = np.polynomial.legendre.leggauss(
            (sum(self.successes) + sum(self.failures) + len(self.successes)) // 2 + 1
        )
        x, others = (1 + nodes) / 2, [i for i in range(len(self.successes)) if i != self.arm]
        below = [beta.cdf(x, self.successes[i] + 1, self.failures[i] + 1) for i in others]
        density = beta.pdf(x, self.successes[self.arm] + 1, self.failures[self.arm] + 1)
        return float(weights / 2 @ (density * np.prod(below, axis=0)))
