"""Policies for bandits as solvers: the answer to a history is a distribution over arms.

A prediction is the logarithm of K times the probability of every arm, so that the uniform distribution is 0. A
probability below 1e-9 counts as 1e-9. A policy that puts all probability on one arm therefore has a large cross entropy
where the expert takes another arm. Compare such policies by the regrets of play (`play_regret`).

The steps of a policy are all equal, because a policy has a closed form. The policies are those that @lin2024 compare.
"""

from abc import abstractmethod
from typing import Any, ClassVar, Literal

from jaxtyping import Float64
from pydantic import NonNegativeFloat, PositiveFloat, PositiveInt
from torch import Tensor
from typing_extensions import override

from loopscale.core.prompt import Batch
from loopscale.solvers.base import Solver
from loopscale.tasks import policies
from loopscale.tasks.bandit_games import Interaction
from loopscale.tasks.base import Task
from loopscale.tasks.decisions import LEAST_PROBABILITY, DecisionTask, History


class Policy(Solver, allow_inf_nan=False):
    solves: ClassVar[type] = History

    @abstractmethod
    def probabilities(self, history: Any) -> Float64[Tensor, "batch queries K"]:
        """The distribution over arms at every query."""

    @property
    @override
    def guesses_from_prior(self) -> bool:
        """True, because a policy may prefer arms with long features before the first round."""
        return True

    @override
    def room_below(self, task: Task) -> float | None:
        """0 if the targets are draws from this policy, or from the posterior that this policy knows."""
        rule = task.floor_rule
        if not isinstance(task, DecisionTask) or rule is None or rule.how != "bound" or rule.solver is None:
            return None
        return 0.0 if Solver.model_validate(rule.solver) == self else None

    @override
    def predict(self, batch: Batch, steps: int) -> Float64[Tensor, "steps batch points K"]:
        return as_logits(self.probabilities(batch.problem)).expand(steps, -1, -1, -1)


def as_logits(probabilities: Float64[Tensor, "*rows K"]) -> Float64[Tensor, "*rows K"]:
    """log(K p), with p at least `LEAST_PROBABILITY`."""
    return (probabilities.shape[-1] * probabilities.clamp_min(LEAST_PROBABILITY)).log()


class BanditPolicy(Policy):
    solves: ClassVar[type] = Interaction

    @override
    @abstractmethod
    def probabilities(self, history: Interaction) -> Float64[Tensor, "batch queries K"]: ...


class UniformPlay(Policy, kind="uniform_play"):
    """All arms are equally likely."""

    uses_pairs: ClassVar[bool] = False

    @override
    def probabilities(self, history: History) -> Float64[Tensor, "batch queries K"]:
        return history.even()


class EmpiricalMean(BanditPolicy, kind="empirical_mean"):
    """The arm with the largest mean reward, after one play of every arm. Features of arms are ignored."""

    @override
    def probabilities(self, history: Interaction) -> Float64[Tensor, "batch queries K"]:
        return policies.empirical_mean(history.tally())


class Ucb1(BanditPolicy, kind="ucb1", titled="UCB1"):
    """The arm with the largest upper confidence bound of its mean [@auer2002]. Features of arms are ignored.

    The regret for given means is at most the bound `ucb1`, if rewards lie in [0, 1].
    """

    constant: Literal["theory", "authors"] = "theory"
    """The bonus after t rounds with n plays of the arm. theory: √(2 ln t / n), as in the theorem. authors:
    1 / √(1 + n), as in the code of @lin2024, where the mean counts one more play without reward."""

    @override
    def probabilities(self, history: Interaction) -> Float64[Tensor, "batch queries K"]:
        return policies.ucb1(history.tally(), self.constant)


class FeaturePolicy(BanditPolicy):
    """A policy for arms with features."""

    exploration: NonNegativeFloat | Literal["theory"] = policies.AUTHORS_EXPLORATION
    """α, the factor of the bonus √(x'V⁻¹x). 2 in the code of @lin2024. theory: the width of the confidence set of
    @abbasi2011 (theorem 2) with δ = .1 and |θ| <= √d."""

    @override
    def takes(self, problem: Any) -> bool:
        return super().takes(problem) and problem.actions is not None


class LinUcb(FeaturePolicy, kind="lin_ucb", titled="LinUCB"):
    """The arm with the largest upper confidence bound of a ridge regression with penalty 1 [@abbasi2011].

    The regret is at most the bound `linucb`.
    """

    @override
    def probabilities(self, history: Interaction) -> Float64[Tensor, "batch queries K"]:
        return policies.lin_ucb(history.tally(), self.exploration)


class SoftLinUcb(FeaturePolicy, kind="soft_lin_ucb", titled="soft LinUCB"):
    """The softmax of LinUCB's upper confidence bounds [@lin2024]. The construction `lin_ucb` is this policy."""

    temperature: PositiveFloat = policies.TEMPERATURE
    """τ, the divisor of the bounds."""

    @override
    def probabilities(self, history: Interaction) -> Float64[Tensor, "batch queries K"]:
        return policies.soft_lin_ucb(history.tally(), self.exploration, self.temperature)


class Thompson(BanditPolicy, kind="thompson", titled="Thompson sampling"):
    """Thompson sampling: an arm has the probability that it is the best one, given the history.

    For independent arms this is the exact posterior. For linear bandits the prior is θ ~ N(0, I), and the probabilities
    are shares of quasi-random draws from the posterior. The value for given counts is the bound `dpt_target`.
    """

    draws: PositiveInt = policies.DRAWS
    """Draws of θ for a linear bandit. Independent arms need no draws."""

    @override
    def probabilities(self, history: Interaction) -> Float64[Tensor, "batch queries K"]:
        return policies.thompson(history.tally(), self.draws)


class BestArm(BanditPolicy, kind="best_arm"):
    """The arm with the largest mean, for a player that knows the means. Its regret is 0."""

    oracle: ClassVar[bool] = True
    uses_pairs: ClassVar[bool] = False

    @override
    def probabilities(self, history: Interaction) -> Float64[Tensor, "batch queries K"]:
        queries = history.plays.shape[1] - history.first
        return history.best_arms().double()[:, None].expand(-1, queries, -1)
