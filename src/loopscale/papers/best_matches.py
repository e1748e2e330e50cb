"""The best-matching iterate of every step, and its growth: along a line, exponentially, or not at all.

@fu2023, section 4: the best-matching steps of Newton's iteration lie on a line, those of
gradient descent on an exponential. k Newton steps from a multiple of the identity are 2^k gradient steps.

Both forms are fitted to the logarithm of the matches by least squares. Each replicate has its own level and rate, and
all replicates share one noise. AICc [@hurvich1989] compares the two forms with each other and with no growth.
A match is a whole number, so the noise is at least that of rounding.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from scipy.optimize import least_squares

from loopscale.stats.best_matches import LEAST_SIMILARITY, Matches
from loopscale.stats.contrasts import Array, contrast_with_value

FEWEST_STEPS = 4
"""The smallest number of steps of a trend."""
CLEAR = 2.0
"""If AICc differs by less, neither form is preferred [@burnham2002, section 2.6]."""
Kind = Literal["linear", "exponential", "none", "undecided"]


@dataclass(frozen=True)
class TrendFit:
    """One form, with a level and a rate for every replicate."""

    form: str
    aicc: float
    levels: tuple[float, ...]
    rates: tuple[float, ...]

    @property
    def rate(self) -> float:
        """The mean rate: iterates per step of a line, powers of e per step of an exponential."""
        return float(np.mean(self.rates))

    @property
    def interval(self) -> tuple[float, float] | None:
        """The 95 % interval of the rate over replicates (Student's t); None for fewer than two."""
        compared = contrast_with_value(np.array([self.rates]), 0, 1.0)
        return compared.interval() if compared else None

    def iterates(self, steps: Array) -> Array:
        """The iterate at each step, with the mean level and rate; NaN where a line is not positive."""
        values = np.mean(self.levels) + self.rate * steps
        return np.where(values > 0, values, np.nan) if self.form == "linear" else np.exp(values)


@dataclass(frozen=True)
class MatchTrend:
    """The growth of the best match of one net with the iterates of one solver."""

    kind: Kind
    why: str
    """The reason of a kind without growth; ends a sentence."""
    replicates: int
    steps: tuple[int, ...] = ()
    """The steps that were fitted."""
    fits: Mapping[str, TrendFit] = field(default_factory=dict)
    """By form: linear, exponential, constant."""

    @property
    def span(self) -> tuple[int, int]:
        """The first and the last fitted step; zeros without any."""
        return (self.steps[0], self.steps[-1]) if self.steps else (0, 0)

    @property
    def fit(self) -> TrendFit | None:
        """The fit of the chosen form."""
        return self.fits.get(self.kind)


def fit_trend(replicates: Sequence[Matches], least: float = LEAST_SIMILARITY) -> MatchTrend:
    """The trend of the best matches of a net's replicates, without the steps that match no iterate or the last one."""
    data = list[tuple[Array, Array]]()
    for matches in replicates:
        clear = matches.clear(least)
        if clear.sum() >= FEWEST_STEPS:
            data.append((matches.steps[clear].astype(np.float64), matches.iterates[clear].astype(np.float64)))
    if not data or len(data) < len(replicates):
        why = f"fewer than {FEWEST_STEPS} of its steps clearly match an iterate"
        return MatchTrend("undecided", why, len(replicates))
    fits = {form: _fitted(form, data) for form in FORMS}
    steps = tuple(int(step) for step in np.unique(np.concatenate([steps for steps, _ in data])))
    kind, why = _decided(fits)
    return MatchTrend(kind, why, len(data), steps, fits)


FORMS: dict[str, Callable[[float, float, Array], Array]] = {
    "linear": lambda level, rate, steps: np.log(np.maximum(level + rate * steps, 1e-3)),
    "exponential": lambda level, rate, steps: level + rate * steps,
    "constant": lambda level, rate, steps: level + 0 * steps,
}
"""The logarithm of the iterate, by level and rate."""


def _fitted(form: str, data: Sequence[tuple[Array, Array]]) -> TrendFit:
    square, rounding, count = 0.0, 0.0, 0
    parameters = [_nearest(form, steps, np.log(iterates)) for steps, iterates in data]
    for (steps, iterates), (level, rate) in zip(data, parameters, strict=True):
        square += float(np.sum((FORMS[form](level, rate, steps) - np.log(iterates)) ** 2))
        rounding += float(np.sum(1 / (12 * iterates**2)))
        count += len(steps)
    size = (1 if form == "constant" else 2) * len(data) + 1
    spare = count - size - 1
    aicc = count * np.log(max(square, rounding) / count) + 2 * size
    aicc += 2 * size * (size + 1) / spare if spare > 0 else np.inf
    levels, rates = zip(*parameters, strict=True)
    return TrendFit(form, float(aicc), levels, rates)


def _nearest(form: str, steps: Array, logs: Array) -> tuple[float, float]:
    """Level and rate of the form that is nearest to the logs."""
    if form == "linear":
        return _nearest_line(steps, logs)
    if form == "constant":
        return float(logs.mean()), 0.0
    rate, level = np.polyfit(steps, logs, 1)
    return float(level), float(rate)


def _nearest_line(steps: Array, logs: Array) -> tuple[float, float]:
    """Level and rate of the line whose logarithm is nearest to `logs`.

    The search moves the logarithms of the line's ends, so that the line is positive at every step, as iterates are. A
    search that starts from a line below 0 has no slope to follow there.
    """
    first, last = int(np.argmin(steps)), int(np.argmax(steps))
    share = (steps - steps[first]) / (steps[last] - steps[first])

    def gaps(ends: Array) -> Array:
        start, end = np.exp(ends)
        return np.log(start + (end - start) * share) - logs

    start, end = np.exp(least_squares(gaps, logs[[first, last]]).x)
    rate = float((end - start) / (steps[last] - steps[first]))
    return float(start) - rate * float(steps[first]), rate


def _decided(fits: Mapping[str, TrendFit]) -> tuple[Kind, str]:
    better, worse = sorted(
        (fits["linear"], fits["exponential"]), key=lambda fit: (fit.aicc, fit.form == "linear")
    )
    if not np.isfinite(better.aicc):
        return "undecided", "there are too few steps for so many replicates"
    if fits["constant"].aicc <= better.aicc:
        return "none", "its best-matching step jumps about or stays where it is"
    if better.interval is not None and better.interval[0] <= 0 <= better.interval[1]:
        return "undecided", "the interval of the rate over replicates contains 0"
    if better.rate <= 0:
        return "none", "its best-matching step falls from step to step"
    if worse.aicc - better.aicc < CLEAR:
        return "undecided", "a line and an exponential fit alike"
    return ("linear" if better.form == "linear" else "exponential"), ""
