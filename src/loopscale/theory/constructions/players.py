"""Constructions that play: the tokens of a history of play, and the distribution over actions that a net answers with.

A net runs once for each query, on the rounds before the query. So a construction with full attention sees no later
round. The policies of `loopscale.solvers` answer the same queries in closed form.
"""

from abc import abstractmethod
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from typing_extensions import override

from loopscale.tasks.bandit_games import Interaction
from loopscale.tasks.decisions import History
from loopscale.theory.constructions.base import Construction
from loopscale.theory.constructions.ridge import pair_and_arm_tokens


class Player(Construction):
    """A construction whose last tokens output the probabilities of actions. These probabilities are its answer."""

    def takes(self, history: History) -> bool:
        """True if the construction can play these problems, with the right settings."""
        return isinstance(history, self.solves or ())

    @override
    @abstractmethod
    def tokens_before(self, problem: Any, query: int, /) -> Float[Tensor, "batch tokens dim_in"]:
        """The tokens of all rounds before a query, and those that ask for the action. Float64."""


def plays_and_arms(
    history: Interaction, query: int, bound: float, name: str, more: Tensor | None = None
) -> Float[Tensor, "batch tokens dim_in"]:
    """Pairs (features of the played arm, reward, 0), then the arms (0, 0, a), then (0, 0, ξ) for every ξ of `more`.

    Features are in [-1, 1], so √d bounds their length. Raises ValueError if `bound` is below.
    """
    assert history.actions is not None, "bandits without features have no such tokens"
    arms = history.actions.double()
    longest = arms.shape[-1] ** 0.5
    if bound < longest:
        raise ValueError(
            f"construction {name}: bound {bound:g} is below the length of the longest features, √{arms.shape[-1]}; "
            f"write bound: {longest + 0.005:.2f} or more"
        )
    xs = history.plays[:, :query].double() @ arms
    others = arms if more is None else torch.cat([arms, more.to(arms).expand(len(arms), -1, -1)], 1)
    return pair_and_arm_tokens(xs, history.ys[:, :query].double(), others)
