"""Tabular Markov decision processes: the rules that players know, histories of episodes, and games in progress.

All functions run over many problems at once. Random numbers are drawn before a game begins: one number for the action,
the reward and the next state of every step, and a state for the start of every episode. So two players of the same
games have the same luck.

A problem has L layers of rewards and transitions: one layer for all stages of a stationary problem, else one for each
stage. The state after the last stage of an episode is not drawn, because a new episode starts.
"""

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import one_hot, pad
from typing_extensions import override

from loopscale.tasks.bandit_games import before, pick
from loopscale.tasks.decisions import GamesInProgress, History, log_probability

Environment = Literal["random", "chain"]
TIE = 1e-9
"""Values that differ by less are equal, so that rounding decides nothing."""


@dataclass(frozen=True)
class MdpRules:
    """Everything about a problem that a net can learn, because it is the same in all prompts."""

    environment: Environment
    horizon: int
    """H, the number of stages of an episode."""
    episodes: int
    """K, the number of episodes of a whole game."""
    states: int
    """Number of states that can be visited: the first of the S states."""
    actions: int
    """A, the number of actions."""
    stationary: bool
    """True if rewards and transitions are the same in all stages."""
    slip: float
    """The probability that the forward action of a chain does not move."""

    @property
    def layers(self) -> int:
        """L, the number of different rewards and transitions of a state and an action."""
        return 1 if self.stationary else self.horizon


@dataclass(frozen=True)
class Counts:
    """Sums over plays, float64, with any number of leading dimensions."""

    visits: Float[Tensor, "*rows L S A"]
    gains: Float[Tensor, "*rows L S A"]
    """Sums of the rewards."""
    moves: Float[Tensor, "*rows L S A S"]
    """Numbers of transitions. The last stage of an episode has no transition."""


@dataclass(frozen=True)
class MdpTally:
    """Everything that a history tells a player before a step."""

    now: Counts
    """All plays before the step."""
    begun: Counts
    """All plays before the episode of the step."""
    stage: Int[Tensor, "*#rows"]
    """The stage of the step, from 0."""
    state: Float[Tensor, "*rows S"]
    """The state of the step, one-hot."""
    rules: MdpRules

    def at_state(self, tables: Float[Tensor, "*rows H S A"]) -> Float[Tensor, "*rows A"]:
        """The rows of tables for the stage and the state of the step."""
        stage = one_hot(self.stage, self.rules.horizon).to(tables.dtype).expand(*tables.shape[:-3], -1)
        return torch.einsum("...h,...s,...hsa->...a", stage, self.state.to(tables.dtype), tables)


@dataclass(frozen=True)
class Episodes(History):
    """Histories of episodes. Query k follows k steps and shows the state of the next step."""

    states: Float[Tensor, "batch rounds S"]
    """1 for the state of a step."""
    plays: Float[Tensor, "batch rounds A"]
    """1 for the action of a step."""
    ys: Float[Tensor, "batch rounds"]
    """The rewards."""
    means: Float[Tensor, "batch L S A"]
    """The mean rewards. Players do not know the means."""
    transitions: Float[Tensor, "batch L S A S"]
    """Probabilities of the next states. Players do not know these."""
    rules: MdpRules
    first: int = 0
    """Number of steps before the first query. Every later step has a query too."""

    @override
    def tally(self) -> MdpTally:
        """The tallies [batch, queries] before every query."""
        rounds, horizon = self.plays.shape[1], self.rules.horizon
        states, plays = self.states.double(), self.plays.double()
        steps = torch.arange(rounds, device=plays.device)
        stage = steps % horizon
        layer = one_hot(stage * (not self.rules.stationary), self.rules.layers).to(plays)
        cells = torch.einsum("nl,bns,bna->bnlsa", layer, states, plays)
        following = pad(states, (0, 0, 0, 1))[:, 1:] * (stage < horizon - 1)[:, None]
        moves = cells[..., None] * following[:, :, None, None, None]
        rewards = self.ys.double()[:, :, None, None, None]
        sums = [before(each) for each in (cells, cells * rewards, moves)]
        asked = steps[self.first :]
        now, begun = (Counts(*(each[:, at] for each in sums)) for at in (asked, asked - asked % horizon))
        return MdpTally(now, begun, stage[self.first :], states[:, self.first :], self.rules)

    @override
    def even(self) -> Float[Tensor, "batch queries K"]:
        return torch.full_like(self.plays[:, self.first :], 1 / self.rules.actions, dtype=torch.float64)

    def best_actions(self) -> Float[Tensor, "batch queries A"]:
        """The optimal actions, with equal probabilities for equal values. Only oracles and labels may know these."""
        tables = largest(optimal_values(self.means, self.transitions, self.rules.horizon))
        rounds = torch.arange(self.first, self.plays.shape[1], device=tables.device)
        stage = one_hot(rounds % self.rules.horizon, self.rules.horizon).to(tables)
        # A row of `states` may be no state, as after a change by a test: the largest coordinate counts.
        state = one_hot(self.states[:, self.first :].argmax(-1), self.states.shape[-1]).to(tables)
        return torch.einsum("nh,bns,bhsa->bna", stage, state, tables)


def largest(values: Float[Tensor, "*rows A"]) -> Float[Tensor, "*rows A"]:
    """All probability on the actions with the largest value."""
    best = (values >= values.amax(-1, keepdim=True) - TIE).to(values.dtype)
    return best / best.sum(-1, keepdim=True)


def optimal_values(
    means: Float[Tensor, "*rows L S A"], transitions: Float[Tensor, "*rows L S A S"], horizon: int
) -> Float[Tensor, "*rows horizon S A"]:
    """Q of the optimal policy at every stage, by value iteration, in float64."""
    means, transitions = means.double(), transitions.double()
    layers, value = means.shape[-3], torch.zeros_like(means[..., 0, :, 0])
    values = list[Tensor]()
    for stage in reversed(range(horizon)):
        layer = stage if layers > 1 else 0
        later = torch.einsum("...saz,...z->...sa", transitions[..., layer, :, :, :], value)
        values.append(means[..., layer, :, :] + later)
        value = values[-1].amax(-1)
    return torch.stack(values[::-1], -3)


@dataclass(frozen=True)
class Luck:
    """Random numbers of games, drawn before the games begin. Uniform on [0, 1], besides the states."""

    rewards: Float[Tensor, "batch rounds"]
    choices: Float[Tensor, "batch rounds"]
    moves: Float[Tensor, "batch rounds"]
    starts: Int[Tensor, "batch episodes"]
    """The first states of the episodes."""


class EpisodeGames(GamesInProgress):
    """Games in progress, one for each problem."""

    def __init__(
        self,
        means: Float[Tensor, "batch L S A"],
        transitions: Float[Tensor, "batch L S A S"],
        rules: MdpRules,
        luck: Luck,
    ) -> None:
        self.means, self.transitions, self.rules, self.luck = means, transitions, rules, luck
        batch, rounds = luck.rewards.shape
        self.round = 0
        # One more state than steps: the last one stays empty.
        self.states = means.new_zeros(batch, rounds + 1, means.shape[2])
        self.states[:, 0] = one_hot(luck.starts[:, 0], means.shape[2])
        self.plays = means.new_zeros(batch, rounds, rules.actions)
        self.ys = torch.zeros_like(luck.rewards)
        self.log_own = torch.zeros(batch, dtype=torch.float64, device=means.device)
        cells = means.shape[1:]
        self._counts = Counts(
            *(
                means.new_zeros(batch, *size, dtype=torch.float64)
                for size in (cells, cells, (*cells, cells[1]))
            )
        )
        self._begun = self._counts

    @cached_property
    def _losses(self) -> Float[Tensor, "batch H S A"]:
        """V - Q of the optimal policy: the value that an action loses. The oracle loses exactly 0."""
        values = optimal_values(self.means, self.transitions, self.rules.horizon)
        losses = values.amax(-1, keepdim=True) - values
        return torch.where(losses < TIE, 0.0, losses)

    @override
    def tally(self) -> MdpTally:
        stage = torch.tensor(self.round % self.rules.horizon, device=self.plays.device)
        return MdpTally(self._counts, self._begun, stage, self.states[:, self.round].double(), self.rules)

    @override
    def history(self) -> Episodes:
        return self._seen(self.round + 1, self.round)

    @override
    def whole(self) -> Episodes:
        return self._seen(self.plays.shape[1], 0)

    def _seen(self, rounds: int, first: int) -> Episodes:
        seen = (self.states[:, :rounds], self.plays[:, :rounds], self.ys[:, :rounds])
        return Episodes(*seen, self.means, self.transitions, self.rules, first)

    @override
    def play(self, probabilities: Float[Tensor, "batch K"]) -> None:
        self.play_tables(probabilities[:, None, None].expand(-1, 1, self.states.shape[-1], -1))

    def play_tables(self, tables: Float[Tensor, "batch steps S A"]) -> None:
        """Play the next steps with policies that depend on the step and the state alone.

        Actions and next states are drawn for all states at once. Then only the path remains, step by step.
        """
        start, horizon = self.round, self.rules.horizon
        steps, states = tables.shape[1], tables.shape[2]
        end = start + steps
        rounds = torch.arange(start, end, device=tables.device)
        layers = rounds % horizon * (not self.rules.stationary)
        choices, moves = (
            each[:, start:end, None].expand(-1, -1, states) for each in (self.luck.choices, self.luck.moves)
        )
        actions = pick(tables, choices)
        transitions = torch.einsum("bnsaz,bnsa->bnsz", self.transitions[:, layers], actions.nan_to_num(0.0))
        onward = pick(transitions, moves).argmax(-1)
        last = rounds % horizon == horizon - 1
        episodes = self.luck.starts.shape[1]
        new = self.luck.starts[:, ((rounds + 1) // horizon).clamp_max(episodes - 1)]
        onward = torch.where(last[:, None], new[..., None], onward)
        path = [self.states[:, start].argmax(-1, keepdim=True)]
        for step in range(steps):
            path.append(onward[:, step].gather(1, path[-1]))
        visited = torch.stack(path, 1)
        here = one_hot(visited[..., 0], states).to(self.means.dtype)
        at = visited[:, :-1, :, None].expand(-1, -1, -1, self.rules.actions)
        played = actions.gather(2, at)[:, :, 0]
        own = tables.gather(2, at.to(tables.device))[:, :, 0].double()
        self.log_own = self.log_own + log_probability(own, played).sum(-1)
        means = torch.einsum("bnsa,bns,bna->bn", self.means[:, layers], here[:, :-1], played)
        ys = (self.luck.rewards[:, start:end] < means).to(means.dtype)
        self.states[:, start + 1 : end + 1] = here[:, 1:]
        self.plays[:, start:end], self.ys[:, start:end] = played, ys
        self._count(start, end)
        self.round = end

    def _count(self, start: int, end: int) -> None:
        """Add the plays of these steps, all of one episode, or of whole games without a reader of the counts."""
        horizon = self.rules.horizon
        rounds = torch.arange(start, end, device=self.plays.device)
        layer = one_hot(rounds % horizon * (not self.rules.stationary), self.rules.layers).double()
        cells = torch.einsum(
            "nl,bns,bna->bnlsa", layer, self.states[:, start:end].double(), self.plays[:, start:end].double()
        )
        following = self.states[:, start + 1 : end + 1].double() * (rounds % horizon < horizon - 1)[:, None]
        counts = self._counts
        gains = torch.einsum("bnlsa,bn->blsa", cells, self.ys[:, start:end].double())
        moves = counts.moves + torch.einsum("bnlsa,bnz->blsaz", cells, following)
        self._counts = Counts(counts.visits + cells.sum(1), counts.gains + gains, moves)
        if end % horizon == 0:
            self._begun = self._counts

    @override
    def regret_of_rounds(self) -> Float[Tensor, "batch rounds"]:
        """V - Q of the optimal policy. Its sum over an episode is V minus the player's value, in expectation."""
        rounds = torch.arange(self.plays.shape[1], device=self.plays.device)
        losses, states = self._losses, self.states[:, : self.plays.shape[1]]
        at = losses[:, rounds % self.rules.horizon]
        return torch.einsum("bnsa,bns,bna->bn", at, states.double(), self.plays.double())
