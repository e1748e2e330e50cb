"""Policies for tabular Markov decision processes as solvers: see `loopscale.solvers.bandits` for the predictions.

The source of the comparison is @lin2024. `uniform_play` also plays these problems.
"""

from abc import abstractmethod
from typing import ClassVar, Literal

from jaxtyping import Float64
from pydantic import NonNegativeFloat, PositiveInt
from torch import Tensor
from typing_extensions import override

from loopscale.solvers.bandits import Policy
from loopscale.tasks import mdp_policies
from loopscale.tasks.mdp_games import Episodes


class MdpPolicy(Policy, allow_inf_nan=False):
    solves: ClassVar[type] = Episodes

    @override
    @abstractmethod
    def probabilities(self, history: Episodes) -> Float64[Tensor, "batch queries K"]: ...


class UcbVi(MdpPolicy, kind="ucb_vi", titled="UCB-VI"):
    """The action with the largest optimistic value, by value iteration with a bonus, once an episode [@azar2017].

    The regret is at most the bound `ucbvi`. The construction `ucb_vi` is the softmax of the same values [@lin2024].
    """

    bonus: NonNegativeFloat | Literal["theory"] = mdp_policies.PRACTICAL_BONUS
    """c, in the bonus c / √N after N plays, with values of at most the number of stages left. theory: the bonus
    2 H √(ι / N) with ι = ln(2 S A H K / δ) and δ = .1, and values of at most H. The constants of ι are from memory."""

    @override
    def probabilities(self, history: Episodes) -> Float64[Tensor, "batch queries K"]:
        return mdp_policies.ucb_vi(history.tally(), self.bonus)


class PosteriorSampling(MdpPolicy, kind="posterior_sampling"):
    """Posterior sampling: an action has the probability that it is optimal, given the history [@osband2013].

    For chains this is the exact posterior. For random problems the probabilities are shares of quasi-random draws from
    the posterior. Decision pretraining imitates this policy [@lee2023].
    """

    draws: PositiveInt = mdp_policies.DRAWS
    """Problems that are drawn from the posterior. Chains need no draws."""

    @override
    def probabilities(self, history: Episodes) -> Float64[Tensor, "batch queries K"]:
        return mdp_policies.posterior_sampling(history.tally(), self.draws)


class ValueIteration(MdpPolicy, kind="value_iteration"):
    """The optimal action by value iteration, for a player that knows the problem. Its regret is 0 [@azar2017]."""

    oracle: ClassVar[bool] = True

    @override
    def probabilities(self, history: Episodes) -> Float64[Tensor, "batch queries K"]:
        return history.best_actions()
