"""Bandits in context: a prompt is a history of play, and the target is the action of an expert after every round.

Sources: @lee2023 (decision-pretrained transformers) and @lin2024 (the theory, and algorithm distillation), in the
version of @yang2025slides. The settings `context` and `expert` name the two policies. The context policy plays the
rounds of the prompt. The expert labels every prefix of the history: the target is a draw from the expert's
distribution. `expert: optimal` (the arm with the largest mean) is decision pretraining. An algorithm as the expert is
algorithm distillation. The error is the cross entropy over log K, so zero logits cost 1.

The cross entropy is least at the expert's distribution given the history. For the optimal arm this distribution is
P(arm is best | history), which Thompson sampling plays [@lee2023]. So Thompson sampling is the floor of decision
pretraining, and the expert is the floor of algorithm distillation. `target_kl` is the Kullback-Leibler divergence of a
prediction from the floor's distribution, in nats, averaged over the prefixes.

A net is also judged by play on games of its own. Sampled play draws an arm from the net's distribution in every round,
and greedy play takes the most likely arm. `play_regret` and `play_regret_greedy` are the cumulative pseudo-regrets,
from the means of the arms and without the noise of rewards. `play_regret_ratio` is the sampled regret over that of the
floor's policy with the same luck.

A token holds the arm of a round and its reward. The arm is a one-hot vector with mean 0: a token without a round is 0,
and no token equals a target. The first query precedes all rounds.

The K means are uniform on [0, 1]. The rewards are Bernoulli, or Gaussian with the standard deviation .3 of the code of
@lee2023. An easier task has fewer arms in play.
"""

from abc import abstractmethod
from typing import Literal

import torch
from jaxtyping import Float
from pydantic import Field, PositiveFloat, PositiveInt, model_validator
from torch import Tensor
from typing_extensions import override

from loopscale.core.prompt import Batch, Prompt
from loopscale.core.seeds import stream
from loopscale.tasks.bandit_games import Games, Interaction, Prior, Rewards, Rules, pick
from loopscale.tasks.decisions import GAMES, DecisionTask, in_rounds, log_mixed, log_probability, mixed
from loopscale.tasks.policies import FOR_FEATURES, POLICIES, Policy, PolicyName, uniform

Context = Literal["mixed", "uniform"] | PolicyName
Expert = Literal["optimal"] | PolicyName
Problems = tuple[Float[Tensor, "batch K"], Float[Tensor, "batch K dim"] | None]
"""The means of the arms, and the features of the arms of a linear bandit."""


class BanditTask(DecisionTask):
    """Histories of play of bandits, and the actions of an expert. `points` is H, the number of rounds."""

    points: PositiveInt = 40
    """H, the number of rounds. Query k follows k rounds."""
    context: Context = "mixed"
    """The policy that plays the rounds of a prompt. mixed: fixed probabilities of the arms, drawn for every prompt from
    Dirichlet(1, .. 1) and mixed with one favourite arm, with a weight from 0, .1 .. 1, as in the code of @lee2023."""
    expert: Expert = "optimal"
    """The policy whose actions are the targets. optimal: the arm with the largest mean."""
    round_tokens: Literal[1, 2] = 1
    """Tokens of a round. 1: a token holds the last round and asks for the next arm [@lee2023]. 2: a token asks, and the
    next token holds the answer and its reward [@lin2024]."""

    @property
    @abstractmethod
    def rules(self) -> Rules:
        """The constants of the bandits."""

    @abstractmethod
    def problems(self, batch_size: int, rng: torch.Generator) -> Problems:
        """Fresh bandits."""

    @property
    def features(self) -> int:
        """Coordinates that describe an arm; 0 if arms are only told apart by their numbers."""
        return 0

    @model_validator(mode="after")
    def _policies_fit(self) -> "BanditTask":
        for name, policy in (("context", self.context), ("expert", self.expert)):
            if policy in FOR_FEATURES and not self.features:
                raise ValueError(
                    f"{name} {policy} needs arms with features; write task: linear_bandit, or {name}: ucb1"
                )
        return self

    @property
    @override
    def prompt(self) -> Prompt:
        width = (self.arm_count + 1) * (self.features + 1)
        return Prompt(length=self.round_tokens * self.points, dim_in=width, dim_out=self.arm_count)

    @property
    @override
    def rounds(self) -> int:
        return self.points

    @property
    @override
    def tokens_of_round(self) -> int:
        return self.round_tokens

    @property
    @override
    def arms_in_play(self) -> int:
        return self.rules.arms

    @property
    @override
    def nothing_to_learn(self) -> tuple[str, str, str] | None:
        if self.arms_in_play > 1:
            return None
        return "active", "one arm is in play, so every player has regret 0", "write active: 2 or more"

    @property
    @override
    def reference(self) -> PolicyName:
        return "thompson" if self.expert == "optimal" else self.expert

    @override
    def policy(self, name: str) -> Policy:
        return POLICIES[name]  # pyright: ignore[reportArgumentType]: a wrong name is a KeyError

    @override
    def sample(self, batch_size: int, rng: torch.Generator) -> Batch:
        history = self._context(batch_size, rng)
        if self.expert == "optimal":
            targets = history.best_arms()[:, None].expand(-1, self.points, -1).clone()
        else:
            probabilities = POLICIES[self.expert](history.tally())
            targets = pick(probabilities, torch.rand(batch_size, self.points, generator=rng))
        queries = torch.arange(0, self.prompt.length, self.round_tokens)
        return Batch(self.tokens(history), targets, queries, history)

    def _context(self, batch_size: int, rng: torch.Generator) -> Interaction:
        """The histories of the context policy."""
        means, actions = self.problems(batch_size, rng)
        games = self._games(means, actions, batch_size, rng)
        if self.context == "mixed":
            games.play_all(mixed(batch_size, 1, self.rules.arms, means.shape[-1], rng)[:, 0])
        elif self.context == "uniform":
            games.play_all(uniform(games.tally()).float())
        else:
            for _ in range(self.points):
                games.play(POLICIES[self.context](games.tally()))
        return games.whole()

    def _games(
        self,
        means: Float[Tensor, "batch K"],
        actions: Float[Tensor, "batch K dim"] | None,
        batch_size: int,
        rng: torch.Generator,
    ) -> Games:
        """New games with their luck."""
        draw = torch.rand if self.rules.rewards == "bernoulli" else torch.randn
        chances = draw(batch_size, self.points, generator=rng)
        return Games(means, actions, self.rules, chances, torch.rand(batch_size, self.points, generator=rng))

    @override
    def tokens(self, history: Interaction) -> Float[Tensor, "batch length dim_in"]:
        """The tokens of histories with H rounds."""
        batch, rounds, arms = history.plays.shape
        parts = [(history.plays - 1 / arms), history.ys[..., None]]
        asked = history.plays.new_zeros(batch, rounds, 0)
        if history.actions is not None:
            parts = [history.plays @ history.actions, *parts]
            asked = history.actions.flatten(1)[:, None].expand(-1, rounds, -1)
        told = torch.cat(parts, -1)
        return in_rounds(asked, told, self.round_tokens)

    @override
    def log_context(self, history: Interaction) -> Float[Tensor, " batch"]:
        if self.context == "mixed":
            return log_mixed(history.plays.sum(1, keepdim=True)[..., : self.rules.arms])
        probabilities = (
            history.even() if self.context == "uniform" else self.policy(self.context)(history.tally())
        )
        return log_probability(probabilities, history.plays).sum(-1)

    @override
    def played_games(self, count: int) -> Games:
        rng = stream("games")
        means, actions = self.problems(GAMES, rng)
        games = self._games(means, actions, GAMES, rng)
        copies = torch.arange(count) % GAMES
        features = None if actions is None else actions[copies]
        return Games(means[copies], features, self.rules, games.chances[copies], games.choices[copies])


class Bandit(BanditTask, kind="bandit", allow_inf_nan=False):
    dim: int = Field(5, ge=2)
    """K, the number of arms."""
    rewards: Rewards = "bernoulli"
    """bernoulli: 0 or 1. gaussian: the mean of the arm plus noise."""
    reward_noise: PositiveFloat = 0.3
    """Standard deviation of a Gaussian reward. Bernoulli rewards ignore this setting."""
    prior: Prior = "uniform"
    """Distribution of the means of Gaussian arms. uniform: on [0, 1]. normal: with the same mean and variance.
    Bernoulli arms need the uniform prior."""

    @model_validator(mode="after")
    def _means_are_probabilities(self) -> "Bandit":
        if self.rewards == "bernoulli" and self.prior == "normal":
            raise ValueError(
                "the means of Bernoulli arms are probabilities; write prior: uniform, or rewards: gaussian"
            )
        return self

    @property
    @override
    def arm_count(self) -> int:
        return self.dim

    @property
    @override
    def rules(self) -> Rules:
        return Rules(self.rewards, self.reward_noise, self.prior, self.at_work)

    @override
    def problems(self, batch_size: int, rng: torch.Generator) -> Problems:
        shape = batch_size, self.dim
        if self.prior == "uniform":
            return torch.rand(shape, generator=rng), None
        return 0.5 + 12**-0.5 * torch.randn(shape, generator=rng), None
