"""Bandit problems: the rules that players know, histories of play, and games that pay rewards.

The files of bandits lie flat in this room: `bandit_games`, `policies`, `bandit`, `linear_bandit`. A family finds its
members among the files of its room, and the other parts of a task lie beside the task, as in `clusters`.

All functions run over many problems at once. Random numbers are drawn before a game begins: one number for the reward
and one for the choice of every round. So two players of the same games have the same luck, and a difference of their
regrets has little noise.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import one_hot
from typing_extensions import override

from loopscale.tasks.decisions import GamesInProgress, History, log_probability

Rewards = Literal["bernoulli", "gaussian"]
Prior = Literal["uniform", "normal"]


@dataclass(frozen=True)
class Rules:
    """Everything about a bandit that a net can learn, because it is the same in all prompts."""

    rewards: Rewards
    noise: float
    """Standard deviation of a Gaussian reward."""
    prior: Prior
    """Prior of an arm's mean (uniform on [0, 1], or normal with the same mean and variance). For a linear bandit the
    prior of a coordinate of θ (uniform on [0, 1], or N(0, 1))."""
    arms: int
    """Number of arms that can be played: the first of the K arms."""


@dataclass(frozen=True)
class Tally:
    """Everything that a history tells a player: plays and rewards of every arm. The action sets never change.

    A tally has any number of leading dimensions, such as the prompts and the rounds. Numbers are float64.
    """

    counts: Float[Tensor, "*rows K"]
    """Number of plays of each arm."""
    sums: Float[Tensor, "*rows K"]
    """Sum of the rewards of each arm."""
    rules: Rules
    actions: Float[Tensor, "*#rows K dim"] | None = None
    """Features of the arms of a linear bandit. Dimensions of rounds have size 1."""


@dataclass(frozen=True)
class Interaction(History):
    """Histories of play. Query k follows k rounds, and must not depend on later rounds."""

    plays: Float[Tensor, "batch rounds K"]
    """1 for the arm that is played in a round."""
    ys: Float[Tensor, "batch rounds"]
    """The rewards."""
    means: Float[Tensor, "batch K"]
    """The mean rewards. Players do not know the means."""
    rules: Rules
    actions: Float[Tensor, "batch K dim"] | None = None
    """Features of the arms of a linear bandit: the mean is <θ, action>."""
    first: int = 0
    """Number of rounds before the first query. Every later round has a query too."""

    @override
    def tally(self) -> Tally:
        """The tallies [batch, queries] before every query."""
        plays, rewards = self.plays.double(), self.ys.double()[..., None]
        counts, sums = (before(each)[:, self.first :] for each in (plays, plays * rewards))
        actions = None if self.actions is None else self.actions.double()[:, None]
        return Tally(counts, sums, self.rules, actions)

    @override
    def even(self) -> Float[Tensor, "batch queries K"]:
        batch, rounds, arms = self.plays.shape
        in_play = torch.arange(arms, device=self.plays.device) < self.rules.arms
        return (in_play / self.rules.arms).double().expand(batch, rounds - self.first, arms)

    def best_arms(self) -> Float[Tensor, "batch K"]:
        """1 for the arm with the largest mean. Only oracles and labels may know this arm."""
        best = self.means[:, : self.rules.arms].argmax(-1)
        return one_hot(best, self.means.shape[-1]).to(self.means.dtype)


def before(values: Float[Tensor, "batch rounds *rest"]) -> Float[Tensor, "batch rounds *rest"]:
    """The sum over all earlier rounds. No later value enters, not even by rounding."""
    return torch.cat([torch.zeros_like(values[:, :1]), values[:, :-1]], 1).cumsum(1)


class Games(GamesInProgress):
    """Games in progress, one for each problem. All players are in the same round."""

    def __init__(
        self,
        means: Float[Tensor, "batch K"],
        actions: Float[Tensor, "batch K dim"] | None,
        rules: Rules,
        chances: Float[Tensor, "batch rounds"],
        choices: Float[Tensor, "batch rounds"],
    ) -> None:
        """`chances` decide rewards: uniform on [0, 1] for Bernoulli arms, N(0, 1) for Gaussian rewards. `choices`
        are uniform on [0, 1] and pick an arm from the distribution of a player."""
        self.means, self.actions, self.rules = means, actions, rules
        self.chances, self.choices = chances, choices
        self.round = 0
        self.plays = means.new_zeros(*chances.shape, means.shape[-1])
        self.ys = torch.zeros_like(chances)
        self._counts, self._sums = (torch.zeros_like(means, dtype=torch.float64) for _ in range(2))
        self._features = None if actions is None else actions.double()
        self.log_own = torch.zeros(len(means), dtype=torch.float64)

    @property
    def rounds(self) -> int:
        """Number of rounds of a whole game."""
        return self.chances.shape[1]

    @override
    def tally(self) -> Tally:
        """The tallies [batch] before the next round."""
        return Tally(self._counts, self._sums, self.rules, self._features)

    @override
    def history(self) -> Interaction:
        """The rounds so far, with one query: the next round."""
        rounds = self.round + 1
        return Interaction(
            self.plays[:, :rounds],
            self.ys[:, :rounds],
            self.means,
            self.rules,
            self.actions,
            self.round,
        )

    @override
    def play(self, probabilities: Float[Tensor, "batch K"]) -> None:
        """Play the next round of every game with the given distributions over arms."""
        n = self.round
        played = pick(probabilities, self.choices[:, n])
        rewards = rewarded((self.means * played).sum(-1), self.chances[:, n], self.rules)
        self.plays[:, n], self.ys[:, n] = played, rewards
        self.log_own = self.log_own + log_probability(probabilities.double(), played)
        self._counts = self._counts + played
        self._sums = self._sums + played.double() * rewards.double()[:, None]
        self.round += 1

    def play_all(self, probabilities: Float[Tensor, "batch K"]) -> None:
        """Play all rounds with distributions that do not depend on the history."""
        rows = probabilities[:, None].expand(*self.chances.shape, -1)
        self.plays = pick(rows, self.choices).to(self.means.dtype)
        self.ys = rewarded((self.means[:, None] * self.plays).sum(-1), self.chances, self.rules)
        self.round = self.rounds

    @override
    def whole(self) -> Interaction:
        return Interaction(self.plays, self.ys, self.means, self.rules, self.actions)

    @override
    def regret_of_rounds(self) -> Float[Tensor, "batch rounds"]:
        """The mean reward of the best arm minus that of the played arm."""
        gaps = self.means[:, : self.rules.arms].amax(-1, keepdim=True) - self.means
        return (gaps[:, None] * self.plays).sum(-1)

    @override
    def regrets(self) -> Float[Tensor, " batch"]:
        gaps = self.means[:, : self.rules.arms].amax(-1, keepdim=True) - self.means
        return (gaps[:, None] * self.plays).sum((-1, -2))


def pick(
    probabilities: Float[Tensor, "*rows K"], choices: Float[Tensor, "*rows"]
) -> Float[Tensor, "*rows K"]:
    """One arm from every distribution, as 0 and 1. Equal `choices` and distributions give equal arms.

    nan stays nan, so that the regret of a net that overflows is nan too.
    """
    reached = probabilities.cumsum(-1)
    # Rounding may leave the last sum below 1, so choices are relative to this sum, and end before it.
    arms = (reached <= choices[..., None] * reached[..., -1:]).sum(-1)
    last = (probabilities > 0).long().mul(torch.arange(probabilities.shape[-1], device=probabilities.device))
    picked = one_hot(torch.minimum(arms, last.amax(-1)), probabilities.shape[-1])
    return (picked + 0 * reached[..., -1:]).float()


def rewarded(
    means: Float[Tensor, "*rows"], chances: Float[Tensor, "*rows"], rules: Rules
) -> Float[Tensor, "*rows"]:
    """The rewards of arms with these means."""
    return (chances < means).float() if rules.rewards == "bernoulli" else means + rules.noise * chances
