"""Whether a fitted rate agrees with a predicted rate, and what would decide an open question."""

import math
from dataclasses import dataclass
from typing import Literal

from loopscale.stats.contrasts import MOST_REPLICATES
from loopscale.stats.forms.base import Form
from loopscale.stats.intervals import student

LEAST_VALUES = 4
"""Fewer values on the axis decide nothing."""
Word = Literal["agrees", "faster", "slower", "undecided"]


@dataclass(frozen=True)
class Verdict:
    """A verdict on a rate.

    Attributes
    ----------
    because
        The reason. If the verdict is undecided, what would decide it.
    replicates, values
        How many of each would decide it; None if the number is not known, or above `MOST_REPLICATES`.
    flat
        True if the interval holds 0 too: a flat line would agree as well.
    """

    word: Word
    because: str
    replicates: int | None = None
    values: int | None = None
    flat: bool = False


def compare_rates(
    rate: float,
    low: float | None,
    high: float | None,
    predicted: float,
    values: int,
    runs: int,
    curves: int = 0,
    form: str = "power",
) -> Verdict:
    """The verdict on a rate with its interval.

    Parameters
    ----------
    values, runs
        The number of values on the axis, and of replicates at each.
    curves
        If each run gives a whole curve, the number of laws over which the noise was pooled. Only more runs can then
        narrow the interval.
    """
    if values < LEAST_VALUES:
        because = f"{values} values on the axis are too few; {LEAST_VALUES} could decide it"
        return Verdict("undecided", because, values=LEAST_VALUES)
    if low is None or high is None:
        return Verdict("undecided", "one replicate gives no interval; two would", replicates=2)
    margin = Form.choices()[form].margin(predicted)
    if predicted - margin <= low and high <= predicted + margin:
        flat = low <= 0 <= high
        because = f"the interval lies within {margin:.2g} of the predicted {predicted:.3g}"
        because += "; the interval holds 0, so a flat line would agree as well" * flat
        return Verdict("agrees", because, flat=flat)
    if low > predicted:
        return Verdict("faster", f"the interval lies above the predicted {predicted:.3g}")
    if high < predicted:
        return Verdict("slower", f"the interval lies below the predicted {predicted:.3g}")
    return _undecided(rate, low, high, predicted, margin, values, runs, curves)


def _undecided(
    rate: float, low: float, high: float, predicted: float, margin: float, values: int, runs: int, curves: int
) -> Verdict:
    width, off = high - low, abs(rate - predicted)
    if not math.isfinite(width):
        because = "the data do not bound the rate; a longer axis would"
        return Verdict("undecided", because, values=2 * values)
    target = 2 * margin if width > 2 * margin else 2 * max(margin - off, off)
    replicates = _enough_replicates(width / target, runs, curves or values)
    more_values = None if curves else math.ceil(values * (width / target) ** 2)
    if more_values is not None and more_values > MOST_REPLICATES:
        more_values = None
    remedies = [
        f"{f'about {replicates}' if replicates else f'over {MOST_REPLICATES}'} replicates (now {runs})"
    ]
    if not curves:
        remedies.append(f"{more_values or f'over {MOST_REPLICATES}'} values (now {values})")
    because = f"the interval is {width:.2g} wide; {' or '.join(remedies)} would bring it below {target:.2g}"
    return Verdict("undecided", because, replicates, more_values)


def _enough_replicates(shrink: float, runs: int, groups: int) -> int | None:
    """How many replicates make an interval `shrink` times narrower, Student's t included; None above the most.

    The noise is pooled over `groups` groups of replicates.
    """
    now = student(max(groups * (runs - 1), 1)) / math.sqrt(runs)
    for count in range(runs + 1, MOST_REPLICATES + 1):
        if now / (student(groups * (count - 1)) / math.sqrt(count)) >= shrink:
            return count
    return None
