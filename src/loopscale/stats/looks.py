"""Verdicts of a study that looks at its results, and then stops or trains more replicates.

A 95 % interval at each of six looks gives a false verdict in 15 % of studies. `LookSchedule` therefore spends the 5 %
over the looks. When a share t of the most seeds is trained, alpha(t) = .05 log(1 + (e - 1) t) is spent. This is the
function of @lan1983 that is close to Pocock's bounds. The bound of a look follows by recursion from the
looks so far [@armitage1969]. Looks may therefore be added or left out, but not because of results.

The interval of a look is Student's t at the level of this look. The intervals of all looks cover together (repeated
confidence intervals; @jennison1989). An interval is thus valid for every reason to stop.

The weight of the study's noise is 2 here and 6 for a single look, because many replicates of a noisy pair are known.
With `prior=0`, each pair has its own variance. Use 0 if the noise is expected to differ between cells.

A seed at which a compared net has not learnt gives no difference. The level is then spent by the seeds of the schedule,
and the recursion runs over the differences that are there. The spent level may follow another clock than the
information [@lan1989].

The schedule is fixed before the first run. In particular, the results must not choose the largest number of seeds.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import cast

import numpy as np
import scipy  # pyright: ignore[reportMissingTypeStubs]: scipy has no stubs; it loads submodules at the first use
from numpy.typing import NDArray

from loopscale.stats.contrasts import (
    ALPHA,
    Array,
    Contrast,
    Rows,
    contrast,
    contrast_with_value,
    half_widths,
)
from loopscale.stats.verdict_rule import DIFFERENCE, DifferenceVerdict, VerdictRule, normal

Mask = NDArray[np.bool_]
NODES, WEIGHTS = (np.asarray(part, dtype=np.float64) for part in np.polynomial.legendre.leggauss(80))
"""Gauss-Legendre quadrature between the bounds of a look."""
LARGEST_BOUND = 10.0
"""Of |W(t)|; the chance to cross the bound is below 1e-20."""


@dataclass(frozen=True)
class LookSchedule:
    """When a study looks at its claims."""

    seeds: tuple[int, ...] = (3, 5, 8, 12, 18, 27)
    """The number of replicates of each cell at each look, ascending. The last number is the most."""
    prior: float = 2.0
    """Weight of the study's noise, see `contrasts.half_pooled`."""
    futile: float = 0.1
    """A claim is futile if the chance of a verdict at the last look is smaller."""
    parts: int = 1
    """The lengths of training at which a question may be judged. Each length gets an equal part of the level, because
    the results decide whether the next length is trained."""
    counts: tuple[int, ...] = ()
    """The observations at each look, ascending, if some seeds give none; see `with_counts`. By default the seeds."""

    def __post_init__(self) -> None:
        if not self.seeds or self.seeds[0] < 2 or list(self.seeds) != sorted(set(self.seeds)):
            given = ", ".join(map(str, self.seeds)) or "no number"
            raise ValueError(f"looks at {given} seeds; give ascending numbers from 2 on")

    @property
    def observations(self) -> tuple[int, ...]:
        """The observations at each look."""
        return self.counts or self.seeds

    def with_counts(self, counts: Sequence[int]) -> "LookSchedule":
        """The looks of a question with fewer observations than seeds.

        A look with fewer than two observations, or without a new one, is no look. Its share of the level goes to the
        next look. Later looks get observations at the rate so far. They have no influence on the present look.

        Parameters
        ----------
        counts
            The observations at each look so far.
        """
        reached = self.seeds[: len(counts)]
        if tuple(counts) == reached:
            return self
        looks = list[tuple[int, int]]()
        for seeds, count in zip(reached, counts, strict=True):
            if count > max(1, looks[-1][1] if looks else 0):
                looks.append((seeds, count))
        share = counts[-1] / reached[-1]
        for seeds in self.seeds[len(counts) :] or self.seeds[-1:]:
            if not looks or looks[-1][0] < seeds:
                looks.append((seeds, max(2, looks[-1][1] + 1 if looks else 0, round(share * seeds))))
        seeds, observations = zip(*looks, strict=True)
        return replace(self, seeds=seeds, counts=observations)

    def alphas(self, alpha: float = ALPHA) -> Array:
        """The two-sided level of each look. All looks, at all lengths, give a false verdict with chance `alpha`."""
        return _alphas(self.seeds, self.observations, alpha / self.parts)

    def p(self, p_values: Array) -> Array:
        """One p-value from the p-values of the looks so far [..., looks]: the smallest alpha that gives a verdict.

        The relation of both is interpolated, with an error below 1 %. A value above .5 is given as 1.
        """
        log_total, log_each = _inverse(self.seeds, self.observations)
        smallest = np.zeros(p_values.shape[:-1])
        for look in range(p_values.shape[-1]):
            log_p = np.log(np.maximum(p_values[..., look], 1e-300))
            smallest = np.minimum(smallest, np.interp(log_p, log_each[:, look], log_total, right=0.0))
        return np.asarray(np.minimum(self.parts * np.exp(smallest), 1.0))

    def chance(
        self,
        difference: Array | float,
        variance: Array | float,
        look: int,
        rule: VerdictRule = DIFFERENCE,
        alpha: float = ALPHA,
        shared: float = 0.0,
    ) -> Array:
        """The chance of a verdict at the last look, if the present data are the only knowledge.

        Given the present estimate, the last estimate is normal with the variance of the missing seeds (predictive power
        under a flat prior; @spiegelhalter1986).

        Parameters
        ----------
        difference, variance
            Of the contrasts at `look`.
        look
            The index of the present look.
        rule, alpha
            Of the claim, see `Contrast.verdict`.
        shared
            The part of the squared standard error that no seed lessens, see `Contrast.shared`.
        """
        now, most = self.observations[look], self.observations[-1]
        difference, variance = np.asarray(difference), np.asarray(variance)
        spread = np.sqrt(np.maximum(variance * (1 / now - 1 / most), 1e-300))
        bar = half_widths(np.sqrt(variance / most + shared), self.prior + most - 1, self.alphas(alpha)[-1])
        return rule.chance(difference, spread, bar)


@dataclass(frozen=True)
class ClaimLooks:
    """The looks at one claim so far. `multiplicity.judge_claims` takes this object as evidence."""

    schedule: LookSchedule
    contrasts: tuple[Contrast, ...]
    """One contrast for each look so far."""

    @property
    def look(self) -> int:
        """The index of the present look."""
        return len(self.contrasts) - 1

    def beside(self, shared: float) -> "ClaimLooks":
        """These looks with a part of the squared error that all replicates share, see `Contrast.shared`.

        The part is the same at all looks, so their estimates agree more than the recursion assumes. The levels of the
        looks then spend less than alpha.
        """
        return replace(self, contrasts=tuple(one.beside(shared) for one in self.contrasts))

    def interval(self, alpha: float = ALPHA) -> tuple[float, float]:
        """The interval of the difference at the present look. The chance that any look's interval fails is alpha."""
        return self.contrasts[-1].interval(1 - float(self.schedule.alphas(alpha)[self.look]))

    def p(self, rule: VerdictRule = DIFFERENCE) -> float:
        """The p-value of all looks so far."""
        return float(self.schedule.p(np.array([one.p(rule) for one in self.contrasts])))

    def verdict(self, rule: VerdictRule = DIFFERENCE, alpha: float = ALPHA) -> DifferenceVerdict:
        """The first verdict that is not undecided. Later looks do not withdraw a verdict."""
        for one, level in zip(self.contrasts, self.schedule.alphas(alpha), strict=False):
            word = one.verdict(rule, float(level))
            if word != "undecided":
                return word
        return "undecided"

    def chance(self, rule: VerdictRule = DIFFERENCE, alpha: float = ALPHA) -> float:
        """The chance of a verdict at the last look; see `LookSchedule.chance`."""
        present = self.contrasts[-1]
        return float(
            self.schedule.chance(present.difference, present.variance, self.look, rule, alpha, present.shared)
        )

    def is_futile(self, rule: VerdictRule = DIFFERENCE, alpha: float = ALPHA) -> bool:
        """True if more replicates will probably not decide the claim."""
        return self.verdict(rule, alpha) == "undecided" and self.chance(rule, alpha) < self.schedule.futile


def looks_at(
    logs: Array, first: Rows, second: Rows, schedule: LookSchedule, learnt: Mask | None = None
) -> ClaimLooks | None:
    """The looks at two cells of a study, or at several pairs of cells, that their shared seeds allow.

    Parameters
    ----------
    logs
        Log errors [cells, seeds] of the whole study, with the seeds in the order of training; NaN for missing runs.
    first, second
        The rows, see `contrasts.contrast`.
    learnt
        False for runs that have not learnt [cells, seeds]; None if all have. Only seeds at which both sides have learnt
        are compared.

    Returns
    -------
    ClaimLooks or None
        None before the first look, and without two seeds to compare.

    Notes
    -----
    A look uses the columns up to the last shared seed of the look. A seed that failed in one cell is skipped, and the
    next seed takes its place.
    """
    return _looks(
        logs, (first, second), schedule, learnt, lambda table: contrast(table, first, second, schedule.prior)
    )


def looks_at_value(
    logs: Array,
    cell: Rows,
    value: float | Sequence[float],
    schedule: LookSchedule,
    learnt: Mask | None = None,
) -> ClaimLooks | None:
    """The looks at a cell and a value without seed noise, such as the error of a classical algorithm.

    Parameters
    ----------
    logs
        Log errors [cells, seeds] of the whole study, with the seeds in the order of training; NaN for missing runs.
    cell, value
        The row and the error, or the rows and their errors, see `contrasts.contrast_with_value`.
    learnt
        False for runs that have not learnt [cells, seeds], see `looks_at`.

    Returns
    -------
    ClaimLooks or None
        None before the first look, and without two seeds to compare.
    """
    return _looks(
        logs, (cell,), schedule, learnt, lambda table: contrast_with_value(table, cell, value, schedule.prior)
    )


def _looks(
    logs: Array,
    rows: Sequence[Rows],
    schedule: LookSchedule,
    learnt: Mask | None,
    compare: Callable[[Array], Contrast | None],
) -> ClaimLooks | None:
    shared = _complete_seeds(logs, *rows)
    ends = [int(shared[seeds - 1]) + 1 for seeds in schedule.seeds if seeds <= len(shared)]
    if not ends:
        return None
    if learnt is not None:
        logs = np.where(learnt, logs, np.nan)
        known = np.intersect1d(shared, _complete_seeds(logs, *rows))
        counts = [int((known < end).sum()) for end in ends]
        schedule = schedule.with_counts(counts)
        ends = [end for look, end in enumerate(ends) if counts[look] > max([1, *counts[:look]])]
    found = tuple(one for end in ends if (one := compare(logs[:, :end])) is not None)
    return ClaimLooks(schedule, found) if found else None


def _complete_seeds(logs: Array, *rows: Rows) -> NDArray[np.intp]:
    """The columns without a missing run in any of the rows."""
    tables = [np.atleast_2d(logs[each]) for each in rows]  # pyright: ignore[reportArgumentType]: int or list
    return np.flatnonzero(np.isfinite(np.concatenate(tables)).all(axis=0))


@lru_cache(maxsize=1024)
def _alphas(seeds: tuple[int, ...], observations: tuple[int, ...], alpha: float) -> Array:
    """The level of each look. The share of the seeds is spent, and the observations are the information.

    The estimate times the observations is a Brownian motion W of their share t. `mass` is the chance to be at each of
    `points` without a verdict so far. A bound is the root of: chance to cross = alpha(t) - alpha(t before).
    """
    spent = np.diff(alpha * np.log1p((math.e - 1) * np.array(seeds) / seeds[-1]), prepend=0.0)
    times = np.array(observations) / observations[-1]
    points, mass, before = np.zeros(1), np.ones(1), 0.0
    alphas: list[float] = []
    for share, time in zip(spent.tolist(), times.tolist(), strict=True):
        pace = math.sqrt(time - before)
        bound = _bound(points, mass, pace, share)
        steps = (NODES[:, None] * bound - points) / pace
        density = np.exp(-(steps**2) / 2) / (pace * math.sqrt(2 * math.pi))
        points, mass, before = NODES * bound, density @ mass * WEIGHTS * bound, time
        alphas.append(float(2 * normal(np.asarray(-bound / math.sqrt(time)))))
    found = np.array(alphas)
    found.setflags(write=False)
    return found


def _bound(points: Array, mass: Array, pace: float, share: float) -> float:
    """The bound that W first crosses at this look with chance `share`."""

    def excess(bound: float) -> float:
        return float(mass @ (normal((points - bound) / pace) + normal(-(points + bound) / pace))) - share

    return cast(float, scipy.optimize.brentq(excess, 0.0, LARGEST_BOUND))


@lru_cache(maxsize=256)
def _inverse(seeds: tuple[int, ...], observations: tuple[int, ...]) -> tuple[Array, Array]:
    """Logarithms of alpha [60], and of the levels of the looks [60, looks] at each alpha."""
    totals = np.geomspace(1e-9, 0.5, 60)
    return np.log(totals), np.log([_alphas(seeds, observations, float(total)) for total in totals])
