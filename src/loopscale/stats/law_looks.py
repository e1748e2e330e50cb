"""Looks at a law in a running study: its verdict against theory, and the runs that a verdict would take.

A look fits the law to the first n runs of every cell, where n is the number of replicates of the look. The interval of
the rate has the level of the look, from the spending function of `looks`. The laws of a study are one family. Each law
is judged at alpha / laws (Bonferroni). Holm's correction is invalid for "agrees", a verdict of equivalence. The claims
of the study are another family: a law changes no level of a claim.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from loopscale.stats.contrasts import ALPHA, Array, student
from loopscale.stats.fitting import FormFit, best_form, margin_of
from loopscale.stats.looks import LookSchedule
from loopscale.stats.verdict_rule import RateVerdict, VerdictRule, judge_rate


@dataclass(frozen=True)
class LawLooks:
    """The looks at one law so far.

    Attributes
    ----------
    fits
        The fit of each look so far.
    predicted
        The rate of the theory at each look. The rate depends on the form, which is chosen anew at each look.
    """

    schedule: LookSchedule
    fits: tuple[FormFit, ...]
    predicted: tuple[float, ...]

    @property
    def seeds(self) -> int:
        """The replicates of the present look."""
        return self.schedule.seeds[len(self.fits) - 1]

    def interval(self, alpha: float = ALPHA) -> tuple[float | None, float | None]:
        """The interval of the rate at the present look. The chance that any look's interval fails is alpha."""
        return self.fits[-1].interval(float(self.schedule.alphas(alpha)[len(self.fits) - 1]))

    def verdict(self, alpha: float = ALPHA) -> RateVerdict:
        """The first verdict that is not undecided. Later looks do not withdraw a verdict."""
        for fit, predicted, level in zip(
            self.fits, self.predicted, self.schedule.alphas(alpha).tolist(), strict=False
        ):
            margin = margin_of(fit.form, predicted)
            verdict = judge_rate(*fit.interval(level), predicted, margin, fit.values)
            if verdict != "undecided":
                return verdict
        return "undecided"

    def chance(self, alpha: float = ALPHA) -> float:
        """The chance of a verdict at the last look, if the present data are the only knowledge.

        See `LookSchedule.chance`. If the values scatter about the law beyond the noise of the replicates, more
        replicates leave the scatter as it is.
        """
        now, most = self.seeds, self.schedule.seeds[-1]
        error, level = self._error(alpha), float(self.schedule.alphas(alpha)[-1])
        share = 1.0 if self._scatters else now / most
        spread = max(error * math.sqrt(max(1 - share, 0.0)), 1e-150)
        bar = student(self._freedom(most), 1 - level) * error * math.sqrt(share)
        return float(self._rule.chance(self._off, spread, bar))

    def is_futile(self, alpha: float = ALPHA) -> bool:
        """True if more replicates will probably not decide the law."""
        return self.verdict(alpha) == "undecided" and self.chance(alpha) < self.schedule.futile

    def deciding_replicates(self, alpha: float, most: int) -> int | None:
        """How many replicates of every cell would decide the law, if the rate stays; None above `most`."""
        if self._scatters:
            return None
        level = float(self.schedule.alphas(alpha)[-1])
        half = student(self._freedom(self.seeds), 1 - level) * self._error(alpha)
        reach = float(self._rule.reach(self._off))
        needed = self.seeds * (half / reach) ** 2 if reach else math.inf
        return max(self.seeds + 1, math.ceil(needed)) if needed <= most else None

    def replicates_with_values(self, alpha: float, values: Sequence[float]) -> int | None:
        """How many replicates of every cell would decide the law with further values on the axis; None above the most.

        The rate and the noise stay as they are. The length of the axis then gives the next interval.
        """
        fit = self.fits[-1].best
        now = np.unique(fit.data.x)
        longer = np.concatenate([now, np.asarray(values, dtype=np.float64)])
        lengths = [
            float(np.sum((axis - axis.mean()) ** 2)) for axis in map(fit.form.transform, (now, longer))
        ]
        level = float(self.schedule.alphas(alpha)[-1])
        scatters, seeds = self._scatters, self.seeds
        added = len(values) * (1 if scatters else seeds - 1)
        half = student(self._freedom(seeds) + added, 1 - level) * self._error(alpha)
        half *= math.sqrt(lengths[0] / lengths[1])
        reach = float(self._rule.reach(self._off))
        first, most = self.schedule.seeds[0], self.schedule.seeds[-1]
        if scatters:  # more replicates leave the scatter as it is
            return first if half <= reach else None
        needed = max(first, math.ceil(seeds * (half / reach) ** 2)) if reach else most + 1
        return needed if needed <= most else None

    @property
    def _off(self) -> float:
        return self.fits[-1].rate - self.predicted[-1]

    @property
    def _rule(self) -> VerdictRule:
        return VerdictRule(margin_of(self.fits[-1].form, self.predicted[-1]))

    @property
    def _scatters(self) -> bool:
        return self.fits[-1].best.scatter() is not None

    def _freedom(self, seeds: int) -> int:
        """The degrees of freedom of the noise with `seeds` replicates, or of the scatter."""
        scatter = self.fits[-1].best.scatter()
        return scatter.freedom if scatter else self.fits[-1].values * (seeds - 1)

    def _error(self, alpha: float) -> float:
        """The standard error of the rate: from the interval, or from the curvature if the interval is open."""
        low, high = self.interval(alpha)
        if low is None or high is None or not math.isfinite(high - low):
            return self.fits[-1].best.standard_error
        level = float(self.schedule.alphas(alpha)[len(self.fits) - 1])
        return (high - low) / 2 / student(self._freedom(self.seeds), 1 - level)


def law_looks(
    forms: Sequence[str],
    cells: Sequence[tuple[float, Sequence[float]]],
    schedule: LookSchedule,
    predict: Callable[[FormFit], float],
) -> LawLooks | None:
    """The looks at a law that its runs allow; None before the first look.

    A run without an error above 0 is skipped, and the next seed takes its place.

    Parameters
    ----------
    cells
        The place of each cell on the axis, and the errors of its runs in the order of the seeds.
    predict
        Maps a fit to the theory's rate for its form.

    Raises
    ------
    ValueError
        If no form can be fitted, or if `predict` raises the error.
    """
    valued = [(place, usable_errors(errors)) for place, errors in cells]
    reached = min((len(errors) for _, errors in valued), default=0)
    fits = list[FormFit]()
    for seeds in schedule.seeds:
        if seeds > reached:
            break
        x = np.repeat([float(place) for place, _ in valued], seeds)
        y = np.concatenate([errors[:seeds] for _, errors in valued])
        fits.append(_fit(tuple(forms), x.tobytes(), y.tobytes()))
    return LawLooks(schedule, tuple(fits), tuple(map(predict, fits))) if fits else None


@lru_cache(maxsize=256)
def _fit(forms: tuple[str, ...], x: bytes, y: bytes) -> FormFit:
    """The best form of float64 values. Every look asks for the fits of the earlier looks again."""
    places, errors = (np.frombuffer(content) for content in (x, y))
    return best_form(forms, places, errors, np.arange(len(places)))


def usable_errors(errors: Sequence[float]) -> Array:
    """The errors that have a logarithm."""
    found = np.asarray(errors, dtype=np.float64)
    return found[np.isfinite(found) & (found > 0)]
