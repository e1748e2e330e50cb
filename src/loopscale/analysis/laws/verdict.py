"""Whether a fitted rate agrees with a predicted one, and if that is open, what would decide it."""

import math
from dataclasses import dataclass
from typing import Literal

from loopscale.stats.forms.base import Form
from loopscale.stats.intervals import student

LEAST_VALUES = 4
"""Fewer values on the axis than this decide nothing."""
MOST = 1000
"""Of replicates or values that are still named: beyond it nobody would."""
Word = Literal["agrees", "faster", "slower", "undecided"]


@dataclass(frozen=True)
class Verdict:
    """`because` says what would decide it if it is undecided, else what it rests on."""

    word: Word
    because: str
    replicates: int | None = None
    values: int | None = None
    flat: bool = False
    """Whether the interval holds 0 too: the data agree, and would with no fall at all."""


def margin(predicted: float, form: str = "power") -> float:
    """How far a rate of this form may be from the predicted rate and still agree."""
    return Form.choices()[form].margin(predicted)


def judge(
    rate: float,
    low: float | None,
    high: float | None,
    predicted: float,
    values: int,
    runs: int,
    curves: int = 0,
    form: str = "power",
) -> Verdict:
    """The verdict on a rate that has an interval from `runs` replicates at each of `values` places on the
    axis.

    Where each run gives a whole curve, only more runs can narrow it: `curves` says over how many laws their noise was
    pooled.
    """
    if values < LEAST_VALUES:
        because = f"{values} values on the axis; at least {LEAST_VALUES} would decide it"
        return Verdict("undecided", because, values=LEAST_VALUES)
    if low is None or high is None:
        return Verdict("undecided", "one replicate gives no interval; at least 2 would", replicates=2)
    room = margin(predicted, form)
    if predicted - room <= low and high <= predicted + room:
        because = f"the whole interval is within {room:.2g} of the predicted {predicted:.3g}"
        flat = low <= 0 <= high
        because += "; it holds 0 too, so a flat line would agree as well" * flat
        return Verdict("agrees", because, flat=flat)
    if low > predicted:
        return Verdict("faster", f"the whole interval is above the predicted {predicted:.3g}")
    if high < predicted:
        return Verdict("slower", f"the whole interval is below the predicted {predicted:.3g}")
    return _undecided(rate, low, high, predicted, room, values, runs, curves)


def _undecided(
    rate: float, low: float, high: float, predicted: float, room: float, values: int, runs: int, curves: int
) -> Verdict:
    width, off = high - low, abs(rate - predicted)
    if not math.isfinite(width):
        return Verdict("undecided", "nothing bounds the rate; a longer axis would", values=2 * values)
    target = 2 * room if width > 2 * room else 2 * max(room - off, off)
    more_runs = _enough(width / target, runs, curves or values)
    more_values = None if curves else math.ceil(values * (width / target) ** 2)
    words = [
        f"about {more_runs} replicates (now {runs})" if more_runs else f"over {MOST} replicates (now {runs})"
    ]
    if more_values is not None:
        words.append(f"{more_values} values (now {values})" if more_values <= MOST else f"over {MOST} values")
    because = f"the interval is {width:.2g} wide; it would be under {target:.2g} with {' or '.join(words)}"
    return Verdict(
        "undecided",
        because,
        replicates=more_runs,
        values=more_values if more_values and more_values <= MOST else None,
    )


def _enough(shrink: float, runs: int, groups: int) -> int | None:
    """The replicates that make an interval so much narrower, Student's t included; `None` beyond `MOST`.

    Of so many groups of replicates from which the noise is learnt together.
    """
    now = student(max(groups * (runs - 1), 1)) / math.sqrt(runs)
    enough = (
        n for n in range(runs + 1, MOST + 1) if now / (student(groups * (n - 1)) / math.sqrt(n)) >= shrink
    )
    return next(enough, None)
