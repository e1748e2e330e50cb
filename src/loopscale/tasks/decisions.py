"""Tasks whose answers are actions: an expert labels every prefix of a history of play, and the net also plays itself.

Sources: @lee2023 and @lin2024, in the version of @yang2025slides. `bandit` and `mdp` are such tasks. The context policy
plays the rounds of the prompt, and the expert labels every prefix. The error is the cross entropy over log K, so zero
logits cost 1.

Play. A net plays 512 games with arms drawn from its distribution, and 512 games with its most likely arm. The games
and their luck are the same for all players, so differences of regrets have little noise. `play_regret_ratio` is the
sampled regret over that of the floor's policy on the same games. Its standard error is that of the ratio, in which the
part of a game that is hard for both players cancels. `play_gap` is the sampled regret less that of the floor's policy:
the reward that a net loses against the policy, such as the expert of algorithm distillation. `play_exponent` is the
slope of log regret against log rounds, over the last three quarters of the game. The regret of good players grows as a
logarithm or as √H, with exponents below 1, and that of uniform play grows as H.

Mismatch. R is the mean over games of P(actions | player) / P(actions | context policy), if the player plays the games.
For the expert as the player this is the ratio of theorem 6 of @lin2024: R = 1 if the roll-in is the expert's. A mean of
such ratios has heavy tails, so `play_log_ratio` is ln R, and `play_kl` is the mean of the logarithm. `play_kl` is the
divergence of the player's games from those of the prompts, and a lower bound of ln R.

Exponents and ln R are no means over games. Their numbers per game are the pseudo-values of the jackknife: their mean is
the estimate, and their standard error is that of the jackknife [@efron1982]. The numbers of the ratio per game are
those of the delta method, with the same property.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import one_hot
from typing_extensions import override

from loopscale.core.prompt import Batch
from loopscale.tasks.base import Answer, Errors, FloorRule, GradedTask, Measures, Prediction, Task

LEAST_PROBABILITY = 1e-9
"""The least probability of an arm in logits, because the logarithm of 0 is infinite."""
GAMES = 512
"""Games in which a net plays, once sampled and once greedily."""
MIXTURES = 11
"""Weights 0, .1 .. 1 of the favourite arm in the mixed context policy."""
EARLY = 0.25
"""The share of a game that the exponent of the regret leaves out."""
LEAST_EPISODES = 2
"""Rounds of a bandit, or episodes, from which a game has an exponent of the regret."""


class History(ABC):
    """Histories of play with the information of oracles. Query k follows k rounds, and depends on no later round."""

    plays: Float[Tensor, "batch rounds K"]
    """1 for the arm that is played in a round."""

    @abstractmethod
    def tally(self) -> Any:
        """Everything that the history tells a player before every query, with dimensions [batch, queries]."""

    @abstractmethod
    def even(self) -> Float[Tensor, "batch queries K"]:
        """The same probability for all arms in play."""


class GamesInProgress(ABC):
    """Games of all prompts in the same round."""

    log_own: Float[Tensor, " batch"]
    """The logarithm of the probability that the players gave to all their actions so far."""

    @abstractmethod
    def tally(self) -> Any:
        """Everything that players know before the next round, with dimensions [batch]."""

    @abstractmethod
    def history(self) -> History:
        """The rounds so far, with one query: the next round."""

    @abstractmethod
    def whole(self) -> History:
        """All rounds of the games, with a query before each. Rounds of the future are 0."""

    @abstractmethod
    def play(self, probabilities: Float[Tensor, "batch K"]) -> None:
        """Play the next round of every game with the given distributions over arms."""

    @abstractmethod
    def regret_of_rounds(self) -> Float[Tensor, "batch rounds"]:
        """The pseudo-regret of every round: the lost value in expectation, without the luck of the game."""

    def regrets(self) -> Float[Tensor, " batch"]:
        """The cumulative pseudo-regret of every game."""
        return self.regret_of_rounds().sum(-1)


class DecisionTask(GradedTask):
    """Histories of play, and the actions of an expert."""

    @property
    @abstractmethod
    def arm_count(self) -> int:
        """K, the number of arms or actions."""

    @property
    @abstractmethod
    def arms_in_play(self) -> int:
        """Arms that can be played: the first of the K arms."""

    @property
    @abstractmethod
    def rounds(self) -> int:
        """Decisions of a prompt."""

    @property
    def rounds_of_episode(self) -> int:
        """Decisions between two starts of the environment."""
        return 1

    @property
    @abstractmethod
    def tokens_of_round(self) -> int:
        """Tokens of a round. The first one asks for the arm."""

    @property
    @abstractmethod
    def reference(self) -> str:
        """The policy with the least error, or the best known one. The solver of the policy has the same name."""

    @abstractmethod
    def policy(self, name: str) -> Callable[[Any], Float[Tensor, "*rows K"]]:
        """The policy of this name, as a function of a tally."""

    @abstractmethod
    def tokens(self, history: Any) -> Float[Tensor, "batch length dim_in"]:
        """The tokens of histories."""

    @abstractmethod
    def played_games(self, count: int) -> GamesInProgress:
        """The first `count` of endless copies of the same `GAMES` games."""

    @abstractmethod
    def log_context(self, history: Any) -> Float[Tensor, " batch"]:
        """The logarithm of the probability that the context policy takes the actions of whole histories."""

    @property
    @override
    def seen(self) -> tuple[int, ...]:
        return tuple(range(self.rounds))

    @property
    @override
    def variance(self) -> float:
        return math.log(self.arm_count)

    @property
    @override
    def noise_variance(self) -> float:
        """0, so `excess` equals the error. The unpredictable part of the actions has no formula here."""
        return 0.0

    @property
    @override
    def floor_rule(self) -> FloorRule:
        return FloorRule("bound", {"kind": self.reference})

    @property
    @override
    def fixed_guess(self) -> Float[Tensor, "points dim_out"]:
        """The arms in play are exchangeable, so all of them are equally likely."""
        arms = torch.arange(self.arm_count)
        return (
            torch.where(arms < self.arms_in_play, 0.0, math.log(LEAST_PROBABILITY))
            .expand(self.rounds, -1)
            .clone()
        )

    @override
    def raw_error(self, prediction: Prediction, batch: Batch) -> Errors:
        """The cross entropy, in nats."""
        return -(prediction.log_softmax(-1) * batch.targets.to(prediction.dtype)).sum(-1)

    @override
    def measures(self, prediction: Prediction, batch: Batch) -> Measures:
        """`target_kl`: the divergence from the distribution of the floor's policy."""
        history: History = batch.problem
        target = self.policy(self.reference)(history.tally())
        own = prediction.double().log_softmax(-1)
        divergence = (
            (torch.xlogy(target, target) - target * own).sum(-1).clamp_min(0)
        )  # not -1e-17 by rounding
        return {"target_kl": divergence.mean(-1)}

    @property
    @override
    def games(self) -> int:
        return 2 * GAMES

    @property
    @override
    def outcome_names(self) -> tuple[str, ...]:
        return (
            "play_regret",
            "play_regret_greedy",
            "play_regret_ratio",
            "play_gap",
            *(("play_exponent",) if self.rounds // self.rounds_of_episode >= LEAST_EPISODES else ()),
            "play_kl",
            "play_log_ratio",
        )

    @override
    def outcomes(self, answer: Answer) -> Measures:
        """The regrets of play after every round, sampled and greedy, in 512 games each; the exponent of the regret; the
        mismatch.

        A decoder keeps the keys and values of earlier rounds (`Net.answerer`), so all rounds of a game cost about three
        forward passes of its whole prompt. For H = 30 and 2,000 steps of 64 prompts, play is 1 % of the training. Other
        nets compute the whole prefix in every round, about H / 2 passes of the whole prompt.
        """
        games = self.played_games(2 * GAMES)
        for n in range(self.rounds):
            games.play(self._next(games, answer, n))
        regrets = games.regret_of_rounds().double().cumsum(-1)
        sampled, greedy = regrets.split(GAMES)
        logs = (games.log_own - self.log_context(games.whole()).to(games.log_own))[:GAMES]
        values = {
            "play_regret": sampled,
            "play_regret_greedy": greedy,
            "play_regret_ratio": paired_ratio(sampled[:, -1], self.reference_regrets()),
            "play_gap": sampled[:, -1] - self.reference_regrets(),
            "play_exponent": growth(sampled[:, self.rounds_of_episode - 1 :: self.rounds_of_episode]),
            "play_kl": logs,
            "play_log_ratio": log_mean_ratio(logs),
        }
        return {name: values[name] for name in self.outcome_names}

    def reference_regrets(self) -> Float[Tensor, " games"]:
        """The regrets of the floor's policy on the games in which nets play."""
        return _reference_regrets(self.model_dump_json())

    def _next(self, games: GamesInProgress, answer: Answer, round: int) -> Float[Tensor, "games K"]:
        """The distributions over arms in a round: sampled play in the first half of the games, then greedy play."""
        whole, query = games.whole(), torch.tensor([round * self.tokens_of_round])
        targets = torch.zeros(len(whole.plays), 1, self.arm_count)
        batch = Batch(self.tokens(whole), targets, query, games.history())
        logits = answer(batch)[:, 0].cpu().double()
        logits[:, self.arms_in_play :] = -torch.inf
        sampled, likely = logits.softmax(-1).split(GAMES)
        greedy = one_hot(likely.argmax(-1), self.arm_count) + 0 * likely.sum(-1, keepdim=True)
        return torch.cat([sampled, greedy])

    def play(self, policy: Callable[[Any], Float[Tensor, "*rows K"]]) -> Float[Tensor, " games"]:
        """The regrets of a policy on the games in which nets play."""
        games = self.played_games(GAMES)
        for _ in range(self.rounds):
            games.play(policy(games.tally()))
        return games.regrets().double()


@lru_cache(maxsize=16)
def _reference_regrets(settings: str) -> Float[Tensor, " games"]:
    task = Task.model_validate_json(settings)
    assert isinstance(task, DecisionTask)
    return task.play(task.policy(task.reference))


def paired_ratio(
    regrets: Float[Tensor, " games"], reference: Float[Tensor, " games"]
) -> Float[Tensor, " games"]:
    """Numbers whose mean is the ratio of the mean regrets, and whose scatter is that of the ratio (delta method)."""
    scale = reference.mean()
    ratio = regrets.mean() / scale
    return ratio + (regrets - ratio * reference) / scale


def growth(curves: Float[Tensor, "games rounds"]) -> Float[Tensor, " games"]:
    """Pseudo-values of the exponent α of mean regret ~ rounds^α, over the last three quarters of the rounds.

    The values are 0 for players without regret, and nan if the game is too short for a slope.
    """
    games, rounds = curves.shape
    late = torch.arange(1, rounds + 1) > EARLY * rounds
    times, kept = torch.arange(1, rounds + 1, dtype=torch.float64)[late].log(), curves[:, late]
    if (kept == 0).all():
        return kept.new_zeros(games)
    x = times - times.mean()
    total = kept.sum(0)

    def slope(means: Tensor) -> Tensor:
        # A mean of 0 early in the game has no logarithm.
        least = 1e-6 * means[..., -1:].clamp_min(1e-300)
        return (torch.maximum(means, least).log() * x).sum(-1) / x.square().sum()

    return _pseudo_values(slope(total / games), slope((total - kept) / (games - 1)))


def log_mean_ratio(logs: Float[Tensor, " games"]) -> Float[Tensor, " games"]:
    """Pseudo-values of the logarithm of the mean of exp(logs)."""
    games, total = len(logs), logs.logsumexp(0)
    share = (logs - total).exp().clamp_max(1 - 1e-12)
    others = total + torch.log1p(-share) - math.log(games - 1)
    return _pseudo_values(total - math.log(games), others)


def _pseudo_values(whole: Tensor, without_one: Float[Tensor, " games"]) -> Float[Tensor, " games"]:
    games = len(without_one)
    return games * whole - (games - 1) * without_one


def log_probability(
    probabilities: Float[Tensor, "*rows K"], plays: Float[Tensor, "*rows K"]
) -> Float[Tensor, "*rows"]:
    """The logarithm of the probability of the played arms, each at least `LEAST_PROBABILITY`."""
    return (probabilities * plays.to(probabilities.dtype)).sum(-1).clamp_min(LEAST_PROBABILITY).log()


def mixed(
    batch_size: int, situations: int, arms: int, count: int, rng: torch.Generator
) -> Float[Tensor, "batch situations count"]:
    """The mixed context policy: fixed probabilities of the first `arms` of `count` arms, in every situation.

    They are a draw from Dirichlet(1, .. 1), mixed with one favourite arm. The weight of the favourites is a number of
    0, .1 .. 1 for the whole prompt.
    """
    # Gaps of exponential variables over their sum are a draw from Dirichlet(1, .. 1).
    sizes = -torch.rand(batch_size, situations, arms, generator=rng).clamp_min(1e-12).log()
    favourite = one_hot(torch.randint(arms, (batch_size, situations), generator=rng), arms)
    weight = torch.randint(MIXTURES, (batch_size, 1, 1), generator=rng) / (MIXTURES - 1)
    probabilities = torch.zeros(batch_size, situations, count)
    probabilities[..., :arms] = (1 - weight) * sizes / sizes.sum(-1, keepdim=True) + weight * favourite
    return probabilities


def log_mixed(counts: Float[Tensor, "batch situations arms"]) -> Float[Tensor, " batch"]:
    """ln P(actions) under `mixed`, exact, from the plays of every arm in every situation.

    For a favourite f and a weight w, the powers of (1-w) p_f + w are expanded. Every term is a moment of
    Dirichlet(1, .. 1): E Π p_a^m_a = Γ(K) Π Γ(1 + m_a) / Γ(K + Σ m_a).
    """
    counts = counts.double()
    arms = counts.shape[-1]
    taken = torch.arange(int(counts.max().nan_to_num(0.0)) + 1, dtype=torch.float64)  # of p_f, in one term
    own, others = counts[..., None], (counts.sum(-1, keepdim=True) - counts)[..., None]
    rest = (own - taken).clamp_min(0)
    choose = torch.lgamma(own + 1) - torch.lgamma(taken + 1) - torch.lgamma(rest + 1)
    moment = torch.lgamma(taken + 1) - torch.lgamma(arms + taken + others) + math.lgamma(arms)
    moment = moment + (torch.lgamma(counts + 1).sum(-1, keepdim=True) - torch.lgamma(counts + 1))[..., None]
    terms = (choose + moment).masked_fill(taken > own, -torch.inf)
    logs = list[Tensor]()
    for n in range(MIXTURES):
        weight = torch.tensor(n / (MIXTURES - 1), dtype=torch.float64)
        powers = torch.xlogy(rest, weight) + torch.xlogy(taken + others, 1 - weight)
        of_favourite = (terms + powers).logsumexp(-1)
        logs.append((of_favourite.logsumexp(-1) - math.log(arms)).sum(-1))
    return torch.stack(logs).logsumexp(0) - math.log(MIXTURES)


def in_rounds(
    asked: Float[Tensor, "batch rounds asked"], told: Float[Tensor, "batch rounds told"], tokens: int
) -> Float[Tensor, "batch length dim_in"]:
    """The tokens of rounds: two tokens for each round, or one token with what the round before has told."""
    if tokens == 2:
        asking = torch.cat([asked, torch.zeros_like(told)], -1)
        telling = torch.cat([torch.zeros_like(asked), told], -1)
        return torch.stack([asking, telling], 2).flatten(1, 2)
    before = torch.cat([torch.zeros_like(told[:, :1]), told[:, :-1]], 1)
    return torch.cat([asked, before], -1)
