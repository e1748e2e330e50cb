"""Transformers as decision makers [@lin2024]: gap to the expert, depth, and regret of play of UCB-VI.

The statements are from memory and the theorem numbers from @yang2025slides. At the size of experiments, the gap and
the regret of UCB-VI exceed their trivial maxima (T, and H · episodes), so compare only shapes. Exact
references are in `bandits.py`.
"""

import math
from typing import Literal

from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt
from typing_extensions import override

from loopscale.theory.bounds.base import Bound

SYSTEM = "decision making"


class IcrlGap(Bound, kind="icrl_gap", titled="imitation gap"):
    """Reward of the expert minus reward of the network: T² √R (√((ln N_Θ + ln(T/δ))/n) + √ε)."""

    claim = "<="
    of = "regret of play"
    source = "@lin2024, theorem 6 (from memory; the number from @yang2025slides)"
    hidden_constant = True
    horizon: PositiveInt = 200
    """T, the number of rounds."""
    ratio: float = Field(2.0, ge=1)
    """R, the ratio of the expert's distribution to that of the algorithm that generated the data."""
    log_covering: PositiveFloat = 1000.0
    """ln N_Θ, the log covering number of the class of networks."""
    prompts: PositiveInt = 100_000
    """n, the number of pretraining trajectories."""
    failure: float = Field(0.05, gt=0, lt=1)
    """δ, the probability that the statement fails."""
    realizability: NonNegativeFloat = 0.0
    """ε, the distance of the best network to the expert."""

    @override
    def value(self) -> float:
        estimation = (self.log_covering + math.log(self.horizon / self.failure)) / self.prompts
        return (
            self.horizon**2 * math.sqrt(self.ratio) * (math.sqrt(estimation) + math.sqrt(self.realizability))
        )


class RidgeDepth(Bound):
    """Layers for ridge regression by descent on the data of T rounds, whose κ grows as T; logarithms dropped."""

    claim = "<="
    of = "layers"
    hidden_constant = True
    horizon: PositiveInt = 200
    """T, the number of rounds."""
    descent: Literal["accelerated", "plain"] = "accelerated"
    """`accelerated` takes √T layers, as in the paper. `plain` takes T layers."""

    @override
    def value(self) -> float:
        return math.sqrt(self.horizon) if self.descent == "accelerated" else float(self.horizon)


class SoftLinUcbDepth(RidgeDepth, kind="soft_linucb_depth", titled="layers for soft LinUCB"):
    """Layers for soft LinUCB, with a width of d times the number of actions: √T.

    The construction `lin_ucb` builds the net. Its Newton solver needs only about log2(T) layers. The regret of LinUCB
    is `linucb`.
    """

    source = "@lin2024, theorem 8 (from @yang2025slides)"


class TsDepth(RidgeDepth, kind="ts_depth", titled="layers for Thompson sampling"):
    """Layers for Thompson sampling on linear bandits, with a matrix square root by Padé's formula: √T.

    The construction `thompson_sampling` has a net with another square root.
    """

    source = "@lin2024, theorem 10 (from @yang2025slides; the rate from memory)"


class Episodic(Bound):
    horizon: PositiveInt = 5
    """H, the number of steps of an episode."""


class UcbviDepth(Episodic, kind="ucbvi_depth", titled="layers for UCB-VI"):
    """Layers for exact soft UCB-VI in a tabular MDP: 2H + 8. The construction `ucb_vi` builds the net."""

    claim = "="
    of = "layers"
    source = "@lin2024, theorem 12 (from @yang2025slides)"

    @override
    def value(self) -> float:
        return float(2 * self.horizon + 8)


class Ucbvi(Episodic, kind="ucbvi", titled="UCB-VI"):
    """Regret of UCB-VI over K episodes: H² √(SAK) + H³ S² A."""

    claim = "<="
    of = "regret of play"
    source = "@lin2024, after theorem 12; @azar2017 (from memory)"
    hidden_constant = True
    without_study = "above the largest possible regret at the episodes of the studies"
    states: PositiveInt = 10
    """S, the number of states."""
    actions: PositiveInt = 3
    """A, the number of actions."""
    episodes: PositiveInt = 1000
    """K, the number of episodes."""

    @override
    def value(self) -> float:
        h, s, a = self.horizon, self.states, self.actions
        return h**2 * math.sqrt(s * a * self.episodes) + h**3 * s**2 * a
