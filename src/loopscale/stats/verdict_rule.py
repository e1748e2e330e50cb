"""The rules that turn an interval into a verdict.

A difference is less, more, level or undecided. The rate of a law agrees with a theory, is faster or slower than the
theory, or is undecided.

Two questions about a difference have different rules. The question "has the first less?" has an answer as soon as the
interval leaves out 0. The question "are both alike?" has the answer no only if the whole interval lies outside of the
margin of equivalence. A small real difference is no evidence against equality.
"""

import math
from dataclasses import dataclass
from typing import Any, Literal, cast, get_args

import numpy as np
import scipy  # pyright: ignore[reportMissingTypeStubs]: scipy has no stubs; it loads submodules at the first use
from numpy.typing import NDArray

Array = NDArray[np.float64]
Verdicts = NDArray[Any]
"""An array of verdicts."""
DifferenceVerdict = Literal["less", "more", "level", "undecided"]
DIFFERENCE_VERDICTS: tuple[DifferenceVerdict, ...] = get_args(DifferenceVerdict)
LEAST_VALUES = 4
"""A law with fewer values on its axis has no verdict."""
RateVerdict = Literal["agrees", "faster", "slower", "undecided"]
RATE_VERDICTS: tuple[RateVerdict, ...] = get_args(RateVerdict)


@dataclass(frozen=True)
class VerdictRule:
    """Which intervals of a difference give a verdict. Differences of claims are differences of log errors."""

    room: float | None = None
    """An interval from above -room to below room is "level" (two one-sided tests; @schuirmann1987), even if the
    interval leaves out 0. None: level is no verdict."""
    edge: float = 0.0
    """An interval below -edge is "less", and an interval above edge is "more"."""

    @classmethod
    def difference(cls, margin: float | None = None) -> "VerdictRule":
        """The rule of the question which side has less. Ratios from 1/(1 + margin) to 1 + margin are level."""
        return cls(None if margin is None else math.log1p(margin))

    @classmethod
    def equality(cls, margin: float) -> "VerdictRule":
        """The rule of the question whether both sides are level, within ratios from 1/(1 + margin) to 1 + margin."""
        return cls(math.log1p(margin), math.log1p(margin))

    def judge(self, low: float, high: float) -> DifferenceVerdict:
        """The verdict of the interval from low to high."""
        return cast(DifferenceVerdict, str(self.judge_all(np.asarray(low), np.asarray(high))))

    def judge_all(self, low: Array, high: Array) -> Verdicts:
        """The verdicts of many intervals."""
        room = self.room or 0.0
        within = (-room < low) & (high < room)
        return np.select([within, high < -self.edge, low > self.edge], ["level", "less", "more"], "undecided")

    def reach(self, difference: Array | float) -> Array:
        """An interval with a smaller half width than this gives a verdict."""
        off = np.abs(np.asarray(difference, dtype=np.float64))
        beyond = off - self.edge
        return np.asarray(beyond if self.room is None else np.maximum(beyond, self.room - off))

    def chance(self, difference: Array | float, spread: Array | float, bar: Array | float) -> Array:
        """The chance that an interval, `difference` plus or minus `bar`, will give a verdict.

        Parameters
        ----------
        difference
            The present estimate.
        spread
            The standard deviation of the last estimate about the present one.
        bar
            Half the width of the last interval.
        """
        beyond = bar + self.edge
        chance = normal((difference - beyond) / spread) + normal((-difference - beyond) / spread)
        if self.room is not None:
            room = np.maximum(self.room - bar, 0.0)
            level = normal((room - difference) / spread) - normal((-room - difference) / spread)
            chance = np.where(room >= beyond, 1.0, chance + level)
        return np.asarray(chance)


DIFFERENCE = VerdictRule()
"""The first side has less or more, and level is no verdict."""


def normal(z: Array | float) -> Array:
    return np.asarray(scipy.special.ndtr(z))


def judge_rates(low: Array, high: Array, predicted: float, margin: float) -> Verdicts:
    """The verdicts of many intervals of a rate.

    Parameters
    ----------
    low, high
        The ends of the intervals.
    predicted
        The rate of the theory.
    margin
        The tolerance. A rate agrees if the whole interval lies within `margin` of the predicted rate.
    """
    agrees = (predicted - margin <= low) & (high <= predicted + margin)
    return np.select([agrees, low > predicted, high < predicted], RATE_VERDICTS[:3], RATE_VERDICTS[3])


def judge_rate(
    low: float | None, high: float | None, predicted: float, margin: float, values: int
) -> RateVerdict:
    """The verdict of one interval of a rate, see `judge_rates`.

    Undecided without an interval, and if the axis has fewer than `LEAST_VALUES` values.
    """
    if values < LEAST_VALUES or low is None or high is None:
        return "undecided"
    return cast(RateVerdict, str(judge_rates(np.asarray(low), np.asarray(high), predicted, margin)))
