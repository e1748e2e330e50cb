"""Tabular Markov decision processes in context: a prompt is a history of episodes, and the target is an action.

Sources: @lin2024 (soft UCB-VI as the expert) and @lee2023 (decision pretraining), in the version of @yang2025slides.
The sizes S = 4, A = 2, H = 4 and 15 episodes are ours. See `bandit` for the settings `context` and `expert`, for play
and for its measures. `points` is the number of episodes, and every step of an episode has a query.

A token holds the stage and the state of a step, and the state, the action and the reward of the step before. So a token
contains a whole transition. With two tokens for each step, the first one holds the stage and the state, and the second
one the state, the action and the reward. One-hot vectors have mean 0.

Random problems have rows of transitions from Dirichlet(1, .. 1), mean rewards uniform on [0, 1], Bernoulli rewards and
uniform first states. In a chain, one unknown action of every state leads to the next state, and slips with a
probability: then the state stays. The other actions lead back to the first state, where every episode starts. The last
state pays 1 for its forward action. For H stages the optimal value is the expected number of stages at the end, Σ_t
P(Bin(t, 1 - slip) >= S - 1).

The regret of play sums V - Q of the optimal policy over all steps. Its expectation is the regret of the episodes, and
the optimal policy has exactly 0. The floor of decision pretraining is P(action is optimal | history). This posterior is
exact for chains. For random problems it is an average over draws, and therefore only a reference.

An easier task has fewer states.
"""

from typing import Literal

import torch
from jaxtyping import Float
from pydantic import Field, PositiveInt
from torch import Tensor
from torch.nn.functional import one_hot, pad
from typing_extensions import override

from loopscale.core.prompt import Batch, Prompt
from loopscale.core.seeds import stream
from loopscale.tasks.bandit_games import pick
from loopscale.tasks.base import FloorRule
from loopscale.tasks.decisions import GAMES, DecisionTask, in_rounds, log_mixed, log_probability, mixed
from loopscale.tasks.mdp_games import Environment, EpisodeGames, Episodes, Luck, MdpRules
from loopscale.tasks.mdp_policies import (
    MDP_POLICIES,
    PRACTICAL_BONUS,
    MdpPolicy,
    MdpPolicyName,
    chain_tables,
    optimistic_policy,
)

Problems = tuple[Float[Tensor, "batch L S A"], Float[Tensor, "batch L S A S"]]
"""Mean rewards and transitions."""


class Mdp(DecisionTask, kind="mdp", titled="MDP", allow_inf_nan=False):
    """Histories of episodes of tabular problems, and the actions of an expert."""

    dim: PositiveInt = 4
    """S, the number of states."""
    points: PositiveInt = 15
    """K, the number of episodes of a prompt. A prompt has K H queries, one before every action."""
    actions: int = Field(2, ge=2)
    """A, the number of actions."""
    horizon: PositiveInt = 4
    """H, the number of stages of an episode."""
    environment: Environment = "random"
    """random: rows of transitions from Dirichlet(1, .. 1), and mean rewards uniform on [0, 1].

    chain: one unknown action of every state leads forward. The others lead back to the start. The end pays 1.
    """
    stationary: bool = True
    """True: rewards and transitions are the same in all stages of an episode. False: every stage has its own, as in the
    theory of @lin2024."""
    slip: float = Field(0.1, ge=0, lt=1)
    """The probability that the forward action of a chain does not move. Random problems ignore this setting."""
    context: Literal["mixed", "uniform"] | MdpPolicyName = "mixed"
    """The policy that plays the episodes of a prompt. mixed: fixed probabilities of the actions in every state, drawn
    from Dirichlet(1, .. 1) and mixed with a favourite action. The weight of all favourites is one of 0, .1 .. 1."""
    expert: Literal["optimal"] | MdpPolicyName = "optimal"
    """The policy whose actions are the targets. optimal: the action of the largest value, by value iteration."""
    round_tokens: Literal[1, 2] = 1
    """Tokens of a step. 1: a token holds the last step and asks for the next action [@lee2023]. 2: a token asks, and
    the next token holds the action and its reward [@lin2024]."""

    @property
    @override
    def arm_count(self) -> int:
        return self.actions

    @property
    @override
    def arms_in_play(self) -> int:
        return self.actions

    @property
    @override
    def rounds(self) -> int:
        return self.points * self.horizon

    @property
    @override
    def rounds_of_episode(self) -> int:
        return self.horizon

    @property
    @override
    def tokens_of_round(self) -> int:
        return self.round_tokens

    @property
    def rules(self) -> MdpRules:
        """The constants of the problems."""
        return MdpRules(
            self.environment,
            self.horizon,
            self.points,
            self.at_work,
            self.actions,
            self.stationary,
            self.slip,
        )

    @property
    @override
    def prompt(self) -> Prompt:
        width = self.horizon + 2 * self.dim + self.actions + 1
        return Prompt(length=self.round_tokens * self.rounds, dim_in=width, dim_out=self.actions)

    @property
    @override
    def nothing_to_learn(self) -> tuple[str, str, str] | None:
        states = self.at_work
        if self.environment != "chain" or states <= self.horizon:
            return None
        what = f"a chain of {states:,} states pays nothing within {self.horizon:,} stages, so every player has regret 0"
        return "horizon", what, f"write horizon: {states:,} or more, or fewer states"

    @property
    @override
    def reference(self) -> MdpPolicyName:
        return "posterior_sampling" if self.expert == "optimal" else self.expert

    @property
    @override
    def floor_rule(self) -> FloorRule:
        """The posterior of random problems is only a reference, because its probabilities come from draws."""
        if self.expert == "optimal" and self.environment == "random":
            return FloorRule("reference", {"kind": self.reference})
        return super().floor_rule

    @override
    def policy(self, name: str) -> MdpPolicy:
        return MDP_POLICIES[name]  # pyright: ignore[reportArgumentType]: a wrong name is a KeyError

    def problems(self, batch_size: int, rng: torch.Generator) -> Problems:
        """Fresh problems."""
        rules = self.rules
        shape = batch_size, rules.layers, self.dim, self.actions
        if self.environment == "chain":
            forward = torch.randint(self.actions, shape[:3], generator=rng)
            moves, means = chain_tables(forward, self.at_work, self.actions, self.slip)
            return means.float(), moves.float()
        means = torch.rand(shape, generator=rng)
        # Exponential variables over their sum are a draw from Dirichlet(1, .. 1).
        sizes = -torch.rand(*shape, self.at_work, generator=rng).clamp_min(1e-12).log()
        return means, pad(sizes / sizes.sum(-1, keepdim=True), (0, self.dim - self.at_work))

    def games_of(self, problems: Problems, rng: torch.Generator) -> EpisodeGames:
        """New games with their luck."""
        batch, shape = len(problems[0]), (len(problems[0]), self.rounds)
        rewards, choices, moves = (torch.rand(shape, generator=rng) for _ in range(3))
        starts = torch.randint(self.at_work, (batch, self.points), generator=rng)
        if self.environment == "chain":
            starts = torch.zeros_like(starts)
        return EpisodeGames(*problems, self.rules, Luck(rewards, choices, moves, starts))

    @override
    def sample(self, batch_size: int, rng: torch.Generator) -> Batch:
        history = self._context(batch_size, rng)
        chances = torch.rand(batch_size, self.rounds, generator=rng)
        expert = self.expert
        probabilities = (
            history.best_actions() if expert == "optimal" else self.policy(expert)(history.tally())
        )
        queries = torch.arange(0, self.prompt.length, self.round_tokens)
        return Batch(self.tokens(history), pick(probabilities, chances), queries, history)

    def _context(self, batch_size: int, rng: torch.Generator) -> Episodes:
        """The histories of the context policy."""
        games = self.games_of(self.problems(batch_size, rng), rng)
        if self.context == "mixed":
            fixed = mixed(batch_size, self.dim, self.actions, self.actions, rng)
            games.play_tables(fixed[:, None].expand(-1, self.rounds, -1, -1))
        elif self.context == "uniform":
            even = torch.full((batch_size, self.rounds, self.dim, self.actions), 1 / self.actions)
            games.play_tables(even)
        elif self.context == "ucb_vi":  # the policy changes between episodes alone
            for _ in range(self.points):
                games.play_tables(optimistic_policy(games.tally().begun, self.rules, PRACTICAL_BONUS))
        else:
            for _ in range(self.rounds):
                games.play(self.policy(self.context)(games.tally()))
        return games.whole()

    @override
    def tokens(self, history: Episodes) -> Float[Tensor, "batch length dim_in"]:
        batch, rounds, actions = history.plays.shape
        stages = one_hot(torch.arange(rounds, device=history.plays.device) % self.horizon, self.horizon)
        stages = (stages - 1 / self.horizon).to(history.plays).expand(batch, -1, -1)
        states = history.states - 1 / self.dim
        asked = torch.cat([stages, states], -1)
        told = torch.cat([states, history.plays - 1 / actions, history.ys[..., None]], -1)
        return in_rounds(asked, told, self.round_tokens)

    @override
    def played_games(self, count: int) -> EpisodeGames:
        rng = stream("games")
        problems = self.problems(GAMES, rng)
        games, copies = self.games_of(problems, rng), torch.arange(count) % GAMES
        luck = games.luck
        drawn = Luck(luck.rewards[copies], luck.choices[copies], luck.moves[copies], luck.starts[copies])
        return EpisodeGames(problems[0][copies], problems[1][copies], self.rules, drawn)

    @override
    def log_context(self, history: Episodes) -> Float[Tensor, " batch"]:
        if self.context == "mixed":
            return log_mixed(torch.einsum("bns,bna->bsa", history.states, history.plays))
        even = self.context == "uniform"
        probabilities = history.even() if even else self.policy(self.context)(history.tally())
        return log_probability(probabilities, history.plays).sum(-1)
