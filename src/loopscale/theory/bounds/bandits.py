"""Bandits: exact regrets and constant-free bounds, as references for simulated and learned players.

Regret here is the regret of play: the expected reward that a player loses, summed over the rounds. Records have this
number as `play_regret`. The regret of a prediction, its error above the floor, is another number. The Bayesian regret
is also averaged over arms drawn from the prior; Bernoulli arms have the uniform prior on [0, 1].
"""

import math
from functools import cache

import numpy as np
import scipy  # scipy loads its submodules at the first use
from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt
from typing_extensions import override

from loopscale.theory.bounds.base import Bound

SYSTEM = "decision making"


class Bandit(Bound):
    """A statement about the regret of play after T rounds."""

    of = "regret of play"
    horizon: PositiveInt = 200
    """T, the number of rounds."""


class RandomRegret(Bandit, kind="random_regret", titled="random play"):
    """Bayesian regret of uniform play on K Bernoulli arms: T (K/(K+1) - 1/2)."""

    claim = "="
    source = "textbook: the largest of K uniforms"
    without_study = "grows with the rounds, and no study varies the rounds"
    arms: PositiveInt = 5
    """K, the number of arms."""

    @override
    def value(self) -> float:
        return self.horizon * (self.arms / (self.arms + 1) - 0.5)


class BayesOptimal2Arm(Bandit, kind="bayes_optimal_2arm", titled="Bayes-optimal play of two arms"):
    """Smallest possible Bayesian regret for two Bernoulli arms, by dynamic programming."""

    claim = "="
    source = "textbook: dynamic programming over the counts of successes and failures"
    without_study = "needs two arms, and the bandits of the studies have five"
    horizon: int = Field(100, ge=1, le=200)
    """T, the number of rounds; the dynamic programme has T⁴/24 states."""

    @override
    def value(self) -> float:
        return self.horizon * 2 / 3 - best_reward(self.horizon)


@cache
def best_reward(horizon: int) -> float:
    """Expected reward of the best player of two Bernoulli arms with uniform priors."""
    # to_go[n, r, s] is the expected reward of the remaining rounds after n plays of the first arm with r successes and
    # t - n plays of the second arm with s successes. Entries with r > n or s > t - n are meaningless; no valid entry
    # depends on them.
    to_go = np.zeros((horizon + 1,) * 3)
    for t in reversed(range(horizon)):
        n, r, s = np.ogrid[: t + 1, : t + 1, : t + 1]
        first, second = (r + 1) / (n + 2), (s + 1) / (t - n + 2)
        failed = to_go[1:, :-1, :-1], to_go[:-1, :-1, :-1]
        won = to_go[1:, 1:, :-1], to_go[:-1, :-1, 1:]
        to_go = np.maximum(
            first * (1 + won[0] - failed[0]) + failed[0], second * (1 + won[1] - failed[1]) + failed[1]
        )
    return float(to_go[0, 0, 0])


class TsBayes(Bandit, kind="ts_bayes", titled="Thompson sampling"):
    """Bayesian regret of Thompson sampling on K arms, rewards in [0, 1], any prior: √(K T ln K / 2)."""

    claim = "<="
    source = "@russo2016, proposition 1 with 3 (from memory)"
    without_study = "grows with the rounds, and no study varies the rounds"
    arms: PositiveInt = 5
    """K, the number of arms."""

    @override
    def value(self) -> float:
        self.require(self.arms >= 2, "arms >= 2")
        return math.sqrt(self.arms * self.horizon * math.log(self.arms) / 2)


class TsLinearBayes(Bandit, kind="ts_linear_bayes", titled="Thompson sampling on linear bandits"):
    """Bayesian regret of Thompson sampling with A actions, mean rewards linear in θ: σ √(2 d T ln A)."""

    claim = "<="
    source = "@russo2016, propositions 1 and 5 (from memory)"
    without_study = "grows with the rounds, and no study varies the rounds"
    dim: PositiveInt = 5
    """d, the dimension of θ."""
    arms: PositiveInt = 10
    """A, the number of actions."""
    scale: PositiveFloat = 1.5
    """σ, such that rewards are σ-subgaussian for a player that does not know θ. σ exceeds the noise of a
    reward: for θ ~ N(0, τ²I), σ² = noise² + τ² |x|², with the longest action x.
    """

    @override
    def value(self) -> float:
        self.require(self.arms >= 2, "arms >= 2")
        return self.scale * math.sqrt(2 * self.dim * self.horizon * math.log(self.arms))


class KnownMeans(Bandit):
    """A statement about Bernoulli arms with given means, without a prior."""

    horizon: PositiveInt = 1000
    """T, the number of rounds."""
    means: tuple[float, ...] = (0.5, 0.6)
    """Mean reward of each arm."""

    @property
    def gaps(self) -> np.ndarray:
        """Δ, the best mean minus the mean of each suboptimal arm."""
        means = np.array(self.means)
        self.require(len(means) > 0 and bool(np.all((means > 0) & (means < 1))), "means within (0, 1)")
        gaps = means.max() - means
        self.require(bool(np.any(gaps > 0)), "means that differ")
        return gaps[gaps > 0]


class LaiRobbins(KnownMeans, kind="lai_robbins", titled="Lai-Robbins bound"):
    """Smallest regret of a uniformly good player as T grows: ln T · Σ Δ/KL(μ, μ*).

    This is no bound at finite T: for means .5 and .6 and T = 1000 it is 33.8, but UCB1 has regret 24.8.
    """

    claim = "~"
    source = "@lai1985, theorem 1 (from memory)"
    without_study = "a limit for fixed arms; the studies draw new arms for every prompt"

    @override
    def value(self) -> float:
        gaps, best = self.gaps, max(self.means)
        means = best - gaps
        divergence = scipy.special.rel_entr(means, best) + scipy.special.rel_entr(1 - means, 1 - best)
        return math.log(self.horizon) * float(np.sum(gaps / divergence))


class Ucb1(KnownMeans, kind="ucb1", titled="UCB1"):
    """Regret of UCB1 at every T: 8 ln T Σ 1/Δ + (1 + π²/3) Σ Δ."""

    claim = "<="
    source = "@auer2002, theorem 1 (from memory)"
    without_study = "concerns fixed arms; the studies draw new arms for every prompt"

    @override
    def value(self) -> float:
        gaps = self.gaps
        return float(8 * math.log(self.horizon) * np.sum(1 / gaps) + (1 + math.pi**2 / 3) * np.sum(gaps))


class Minimax(Bandit, kind="minimax", titled="minimax regret"):
    """Regret of any player on its worst arms, means in [0, 1] and N(0, 1) noise: √((K-1)T)/27."""

    claim = ">="
    source = "@lattimore2020, theorem 15.2 (from memory)"
    without_study = "concerns the worst arms; the studies draw arms from a prior"
    arms: PositiveInt = 5
    """K, the number of arms."""

    @override
    def value(self) -> float:
        self.require(2 <= self.arms <= self.horizon + 1, "2 <= arms <= horizon + 1")
        return math.sqrt((self.arms - 1) * self.horizon) / 27


class LinUcb(Bandit, kind="linucb", titled="LinUCB"):
    """Regret of LinUCB: 4 √(T d ln(λ + TL²/d)) (√λ S + R √(2 ln(1/δ) + d ln(1 + TL²/(λd)))).

    Up to logarithms the regret is d √T. The paper prints L instead of L². Its own determinant of λI + X'X
    gives L²; for L = 1 the two agree.
    """

    claim = "<="
    source = "@abbasi2011, theorem 3 (from memory)"
    without_study = "above the largest possible regret at the rounds of the studies"
    dim: PositiveInt = 5
    """d, the dimension of θ."""
    penalty: float = Field(1.0, ge=1)
    """λ, the penalty of the ridge regression."""
    x_norm: PositiveFloat = 1.0
    """L, the largest norm of an action."""
    w_norm: PositiveFloat = 1.0
    """S, the largest norm of θ; all means are in [-1, 1]."""
    noise: PositiveFloat = 1.0
    """R, such that the noise is R-subgaussian."""
    failure: float = Field(0.1, gt=0, lt=1)
    """δ, the probability that the statement fails."""

    @override
    def value(self) -> float:
        total = self.horizon * self.x_norm**2 / self.dim
        self.require(self.penalty >= self.x_norm**2, "penalty >= x_norm²")
        width = math.sqrt(self.dim * math.log(1 + total / self.penalty) - 2 * math.log(self.failure))
        explored = math.sqrt(self.horizon * self.dim * math.log(self.penalty + total))
        return 4 * explored * (math.sqrt(self.penalty) * self.w_norm + self.noise * width)


class DptTarget(Bound, kind="dpt_target", titled="posterior of the best arm"):
    """Probability that an arm is the best, given the history.

    A network that is trained with the optimal action as expert learns this probability. It then plays like
    Thompson sampling. With LinUCB as expert it would play like LinUCB. The arms are Bernoulli with means from
    U[0, 1].
    """

    claim = "="
    of = "probability"
    source = "derived: cross entropy is least at the posterior; @lin2024; @lee2023"
    without_study = (
        "the floor of `target_kl`; the policy of Thompson sampling stands for the bound on the same prompts"
    )
    successes: tuple[NonNegativeInt, ...] = (3, 1)
    """Number of successes of each arm."""
    failures: tuple[NonNegativeInt, ...] = (2, 4)
    """Number of failures of each arm."""
    arm: NonNegativeInt = 0
    """The arm, counted from 0."""

    @override
    def value(self) -> float:
        self.require(
            len(self.successes) == len(self.failures) > self.arm, "as many successes as failures > arm"
        )
        # The rule is exact, because the integrand is a polynomial.
        nodes, weights = np.polynomial.legendre.leggauss(
            (sum(self.successes) + sum(self.failures) + len(self.successes)) // 2 + 1
        )
        x, others = (1 + nodes) / 2, [i for i in range(len(self.successes)) if i != self.arm]
        below = [scipy.stats.beta.cdf(x, self.successes[i] + 1, self.failures[i] + 1) for i in others]
        density = scipy.stats.beta.pdf(x, self.successes[self.arm] + 1, self.failures[self.arm] + 1)
        return float(weights / 2 @ (density * np.prod(below, axis=0)))
