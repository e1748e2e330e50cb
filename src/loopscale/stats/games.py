"""The noise of a comparison that comes from the games of play, which all replicates share.

A net plays a fixed set of games: environments with their luck. All nets and all policies of a task play the same games.
Let e be the relative error of a mean regret because these games are not all games. The replicates of a cell have nearly
the same e, so the scatter of replicates does not show e. A ratio of two players has the error e₁ - e₂.

- The part that a game does to all players alike cancels in e₁ - e₂. Hard environments cost every player regret.
- The part that a game does to one player and not to the other stays, however many replicates there are.

Records have two standard errors of every player: s of the regret itself, and p of the ratio to the task's reference
policy on the same games. Two estimates of Var(e₁ - e₂) follow, and both are upper bounds:

- s₁² + s₂², if e₁ and e₂ do not oppose each other.
- p₁² + p₂², if the parts of e₁ and e₂ that the reference lacks do not oppose each other. Beside the reference itself p
  is 0, and this is exact.

The smaller bound counts. Players of different games have the first bound alone.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

SAME_GAMES = 1e-6
"""Relative difference of the reference's mean regret below which two players have played the same games."""


@dataclass(frozen=True)
class GameNoise:
    """The relative standard errors of one player over games, or of the replicates of one cell."""

    own: float
    """s: of the measure itself. NaN if the records do not say."""
    paired: float = math.nan
    """p: of the ratio to the reference policy on the same games. NaN if unknown."""
    reference: float = math.nan
    """The mean regret of the reference on the games, which tells sets of games apart. NaN if unknown."""

    @classmethod
    def of_replicates(cls, players: Sequence["GameNoise"]) -> "GameNoise":
        """The noise of the mean over replicates. Replicates share their games, so a mean has the noise of one net."""
        if not players:
            return cls(math.nan)
        own, paired = (
            math.sqrt(float(np.mean(np.square([getattr(player, name) for player in players]))))
            for name in ("own", "paired")
        )
        return cls(own, paired, players[0].reference)

    def beside(self, other: "GameNoise") -> float:
        """The variance of the logarithm of the ratio of both players that comes from the games; 0 if unknown."""
        bounds = [self.own**2 + other.own**2]
        if math.isclose(self.reference, other.reference, rel_tol=SAME_GAMES):
            bounds.append(self.paired**2 + other.paired**2)
        return min((bound for bound in bounds if math.isfinite(bound)), default=0.0)


def shared_variance(pairs: Sequence[tuple[GameNoise, GameNoise]]) -> float:
    """The part of the squared standard error of a mean over pairs that comes from the games.

    Different pairs may have the same games, so their errors do not average out.
    """
    return float(np.mean([math.sqrt(first.beside(second)) for first, second in pairs])) ** 2 if pairs else 0.0
