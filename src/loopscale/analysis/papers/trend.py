"""How the best-matching step grows from layer to layer: along a line, exponentially, or not at all.

Fu et al. 2023 (arXiv:2310.17086, section 4): a transformer's best-matching steps of Newton's iteration lie on a line,
those of gradient descent on an exponential: k Newton steps from a multiple of the identity are 2^k gradient steps. Here
both are fitted, to the logarithm of the matches, by least squares, each replicate with a level and a rate of its own
and all with one noise, and compared by AICc (Hurvich and Tsai 1989) with no growth at all. A match is a whole number,
so no noise below that of rounding is believed.
"""

# pandas types every selection as a union of all that it could be: those rules find nothing here but that.
# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportGeneralTypeIssues=false

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.optimize import least_squares

from loopscale.stats.intervals import student

Array = NDArray[np.float64]
Form = Callable[[float, float, Array], Array]
Kind = Literal["linear", "exponential", "none", "undecided"]

LEAST = 0.8
"""A step is like an iterate from this similarity on."""
FEWEST = 4
"""Steps without which there is no trend."""
CLEAR = 2.0
"""A difference of AICc below which neither form is preferred (Burnham and Anderson 2002, section 2.6)."""


@dataclass(frozen=True)
class Fit:
    """One form, fitted to every replicate."""

    aicc: float
    levels: tuple[float, ...]
    rates: tuple[float, ...]

    @property
    def rate(self) -> float:
        return float(np.mean(self.rates))

    @property
    def interval(self) -> tuple[float, float] | None:
        """Of 95 %, by Student's t over the replicates' own rates; None for fewer than two."""
        if len(self.rates) < 2:
            return None
        half = student(len(self.rates) - 1) * float(np.std(self.rates, ddof=1)) / len(self.rates) ** 0.5
        return self.rate - half, self.rate + half


@dataclass(frozen=True)
class Trend:
    """The rate of a linear trend is in iterates a step, that of an exponential one in powers of e a step."""

    kind: Kind
    why: str
    """Where it is none or undecided: the reason. It ends a sentence."""
    replicates: int
    steps: tuple[int, ...] = ()
    """Those that were fitted."""
    fits: dict[str, Fit] = field(default_factory=dict)
    """By form: linear, exponential, constant."""

    @property
    def fit(self) -> Fit | None:
        return self.fits.get(self.kind)


def trend(matches: pd.DataFrame, least: float = LEAST) -> Trend:
    """The trend of `best_matches` of one net's steps with one solver's iterates.

    Columns step, iterate, similarity, last and, where there are several, replicate. Steps are left out that are like no
    iterate (below `least`) or most like the last there is.
    """
    kept = matches[(matches["similarity"] >= least) & ~matches["last"].astype(bool)]
    groups = kept.groupby("replicate", sort=True) if "replicate" in kept else [(0, kept)]
    data = [(each["step"].to_numpy(np.float64), each["iterate"].to_numpy(np.float64)) for _, each in groups]
    there = matches["replicate"].nunique() if "replicate" in matches else int(len(matches) > 0)
    data = [(steps, found) for steps, found in data if len(steps) >= FEWEST]
    if not data or len(data) < there:
        return Trend("undecided", f"fewer than {FEWEST} of its steps are clearly like an iterate", there)
    fits = {name: _fitted(form, data) for name, form in FORMS.items()}
    steps = tuple(int(step) for step in np.unique(np.concatenate([steps for steps, _ in data])))
    kind, why = _decided(fits)
    return Trend(kind, why, len(data), steps, fits)


def curve(kind: str, fit: Fit, steps: Array) -> Array:
    """The best-matching iterate at each step, as a form has it with the mean level and rate; NaN where that is none."""
    straight = np.mean(fit.levels) + fit.rate * steps
    return np.where(straight > 0, straight, np.nan) if kind == "linear" else np.exp(straight)


def _line(level: float, rate: float, steps: Array) -> Array:
    return np.log(np.maximum(level + rate * steps, 1e-3))


FORMS: dict[str, Form] = {
    "linear": _line,
    "exponential": lambda level, rate, steps: level + rate * steps,
    "constant": lambda level, rate, steps: level + 0 * steps,
}
"""The logarithm of the iterate, by level and rate."""


def _fitted(form: Form, data: list[tuple[Array, Array]]) -> Fit:
    square, rounding, count, found = 0.0, 0.0, 0, []
    of_each = 1 if form is FORMS["constant"] else 2
    for steps, iterates in data:
        logs = np.log(iterates)
        if form is _line:
            level, rate = _nearest_line(steps, logs)
        elif of_each == 2:
            rate, level = (float(each) for each in np.polyfit(steps, logs, 1))
        else:
            level, rate = float(logs.mean()), 0.0
        square += float(np.sum((form(level, rate, steps) - logs) ** 2))
        rounding += float(np.sum(1 / (12 * iterates**2)))
        count += len(steps)
        found.append((level, rate))
    many = of_each * len(data) + 1
    spare = count - many - 1
    aicc = count * np.log(max(square, rounding) / count) + 2 * many
    aicc += 2 * many * (many + 1) / spare if spare > 0 else np.inf
    levels, rates = zip(*found, strict=True)
    return Fit(float(aicc), levels, rates)


def _nearest_line(steps: Array, wanted: Array) -> tuple[float, float]:
    """Level and rate of the line whose logarithm is nearest to `wanted`.

    Found by the logarithms of its ends, so that it is above 0 at every step: an iterate is, and a search that starts
    from a line below 0 somewhere has no slope to follow there.
    """
    first, last = int(np.argmin(steps)), int(np.argmax(steps))
    share = (steps - steps[first]) / (steps[last] - steps[first])

    def gaps(ends: Array) -> Array:
        start, end = np.exp(ends)
        return np.log(start + (end - start) * share) - wanted

    start, end = np.exp(least_squares(gaps, wanted[[first, last]]).x)
    rate = float((end - start) / (steps[last] - steps[first]))
    return float(start) - rate * float(steps[first]), rate


def _decided(fits: dict[str, Fit]) -> tuple[Kind, str]:
    line, exponential, constant = fits["linear"], fits["exponential"], fits["constant"]
    first, second = sorted(((line.aicc, "linear"), (exponential.aicc, "exponential")))
    if not np.isfinite(first[0]):
        return "undecided", "there are too few steps for so many replicates"
    if constant.aicc <= first[0]:
        return "none", "its best-matching step jumps about or stays where it is"
    chosen = fits[first[1]]
    if chosen.interval is not None and chosen.interval[0] <= 0 <= chosen.interval[1]:
        return "undecided", "the rate's interval over replicates contains 0"
    if chosen.rate <= 0:
        return "none", "its best-matching step falls from step to step"
    if second[0] - first[0] < CLEAR:
        return "undecided", "a line and an exponential fit alike"
    return ("linear" if first[1] == "linear" else "exponential"), ""
