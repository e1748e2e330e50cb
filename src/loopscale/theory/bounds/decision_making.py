"""Transformers as decision makers (Lin, Bai, Mei 2024): their gap to the expert, their depth, and UCB-VI.

Recalled, with theorem numbers from slides. At the size of experiments the gap and UCB-VI's regret are above the
most there can be (T, and H · episodes): shapes alone. The exact references are in `bandits.py`.
"""

import math
from typing import Literal

from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt
from typing_extensions import override

from loopscale.theory.bounds.base import Bound


class IcrlGap(Bound, kind="icrl_gap"):
    """T² √R (√((ln N_Θ + ln(T/δ))/n) + √ε): reward that the net misses against its expert."""

    claim = "<="
    of = "regret"
    source = "Lin, Bai, Mei 2024, theorem 6 (from memory; the number from slides)"
    hidden_constant = True
    horizon: PositiveInt = 200
    """T."""
    ratio: float = Field(2.0, ge=1)
    """R, of the expert's distribution to that of the algorithm that made the data."""
    log_covering: PositiveFloat = 1000.0
    """ln N_Θ, of the class of nets."""
    prompts: PositiveInt = 100_000
    """n, trajectories of pretraining."""
    failure: float = Field(0.05, gt=0, lt=1)
    """δ, the probability that it does not hold."""
    realizability: NonNegativeFloat = 0.0
    """ε, how far the best net is from the expert."""

    @override
    def value(self) -> float:
        estimation = (self.log_covering + math.log(self.horizon / self.failure)) / self.prompts
        return (
            self.horizon**2 * math.sqrt(self.ratio) * (math.sqrt(estimation) + math.sqrt(self.realizability))
        )


class RidgeDepth(Bound):
    """Layers that do ridge regression by descent, on T rounds' data, whose κ grows as T; logarithms left out."""

    claim = "<="
    of = "layers"
    hidden_constant = True
    horizon: PositiveInt = 200
    """T."""
    descent: Literal["accelerated", "plain"] = "accelerated"
    """√T layers, as in the paper, or T."""

    @override
    def value(self) -> float:
        return math.sqrt(self.horizon) if self.descent == "accelerated" else float(self.horizon)


class SoftLinUcbDepth(RidgeDepth, kind="soft_linucb_depth"):
    """√T layers, of a width of d times the number of actions, act as soft LinUCB."""

    source = "Lin, Bai, Mei 2024, theorem 8 (from slides)"


class TsDepth(RidgeDepth, kind="ts_depth"):
    """√T layers act as Thompson sampling on linear bandits, a matrix square root by Padé's formula included."""

    source = "Lin, Bai, Mei 2024, theorem 10 (from slides; the rate from memory)"


class Episodic(Bound):
    horizon: PositiveInt = 5
    """H, steps of an episode."""


class UcbviDepth(Episodic, kind="ucbvi_depth"):
    """2H + 8 layers do soft UCB-VI exactly, in a tabular MDP."""

    claim = "="
    of = "layers"
    source = "Lin, Bai, Mei 2024, theorem 12 (from slides)"

    @override
    def value(self) -> float:
        return float(2 * self.horizon + 8)


class Ucbvi(Episodic, kind="ucbvi"):
    """H² √(SAK) + H³ S² A: regret of UCB-VI over K episodes."""

    claim = "<="
    of = "regret"
    source = "Lin, Bai, Mei 2024, after theorem 12; Azar, Osband, Munos 2017 (from memory)"
    hidden_constant = True
    states: PositiveInt = 10
    """S."""
    actions: PositiveInt = 3
    """A."""
    episodes: PositiveInt = 1000
    """K."""

    @override
    def value(self) -> float:
        h, s, a = self.horizon, self.states, self.actions
        return h**2 * math.sqrt(s * a * self.episodes) + h**3 * s**2 * a
