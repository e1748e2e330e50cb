"""Which of two groups of nets learns more often: counts of learnt runs at the looks of a study.

Runs that have not learnt take no part in the comparison of errors. The counts are a question of their own: are the
chances to learn equal? Fisher's exact test [@fisher1935] answers the question at each look. The level is spent over the
looks as for errors (see `stats.looks`).

Both groups have the same seeds. A seed that is late to learn in both groups makes the counts alike, so the test then
gives fewer false verdicts than its level.

The questions of a study about chances to learn are a family of their own, beside the claims, with Holm's correction.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np
import scipy  # pyright: ignore[reportMissingTypeStubs]: scipy has no stubs; it loads submodules at the first use

from loopscale.stats.contrasts import ALPHA, Array
from loopscale.stats.looks import LookSchedule
from loopscale.stats.multiplicity import holm

LearningVerdict = Literal["more", "less", "undecided"]
"""The first group learns more often, or less often."""
PRIOR_COUNT = 0.5
"""Learnt runs, and other runs, that the forecast adds to the counts of each group: the prior of Jeffreys."""
NODES = 200
"""The largest number of future counts of a group in a forecast."""


@dataclass(frozen=True)
class LearningLooks:
    """The learnt runs of two groups at the looks so far."""

    schedule: LookSchedule
    """A study without looks has one look, at the number of its seeds."""
    first: tuple[int, ...]
    """The learnt runs of the first group at each look so far."""
    second: tuple[int, ...]
    """The learnt runs of the second group."""
    runs: tuple[int, ...]
    """The runs of each group."""

    @property
    def look(self) -> int:
        """The index of the present look."""
        return len(self.runs) - 1

    @property
    def _p_values(self) -> list[float]:
        return [fisher_p(*counts) for counts in zip(self.first, self.second, self.runs, strict=True)]

    def p(self) -> float:
        """The p-value of all looks so far."""
        return float(self.schedule.p(np.array(self._p_values)))

    def judge(self, alpha: float = ALPHA) -> LearningVerdict:
        """The first verdict. Later looks do not withdraw a verdict."""
        levels = self.schedule.alphas(alpha)
        for look, p in enumerate(self._p_values):
            if p <= levels[look]:
                return "more" if self.first[look] > self.second[look] else "less"
        return "undecided"

    def chance(self, alpha: float = ALPHA) -> float:
        """The chance of a verdict at the last look, if the present counts are the only knowledge.

        Later counts are beta-binomial. The forecast judges them by the normal approximation of Fisher's test with
        Yates' correction.
        """
        runs, now = self.runs[-1], self.schedule.seeds[self.look]
        most = round(runs * self.schedule.seeds[-1] / now)
        ones, weights = _future(self.first[-1], runs, most)
        others, other_weights = _future(self.second[-1], runs, most)
        gap = np.maximum(np.abs(ones[:, None] - others) - 1, 0)
        mean = (ones[:, None] + others) / (2 * most)
        error = np.sqrt(np.maximum(2 * most * mean * (1 - mean), 1e-12))
        bar = -scipy.special.ndtri(float(self.schedule.alphas(alpha)[-1]) / 2)
        return float(weights @ (gap > bar * error) @ other_weights)

    def is_futile(self, alpha: float = ALPHA) -> bool:
        """True if more runs will probably not decide which group learns more often.

        Also true if no run of either group has learnt. Such nets need a longer training or another recipe, and the
        forecast takes the two chances for independent.
        """
        if self.judge(alpha) != "undecided":
            return False
        return not self.first[-1] + self.second[-1] or self.chance(alpha) < self.schedule.futile

    def deciding_runs(self, alpha: float = ALPHA) -> float:
        """The runs of each group that would give a verdict at the present shares; infinite if the shares are equal."""
        runs = self.runs[-1]
        first, second = self.first[-1] / runs, self.second[-1] / runs
        if first == second:
            return math.inf
        bar = -float(scipy.special.ndtri(float(self.schedule.alphas(alpha)[-1]) / 2))
        mean = (first + second) / 2
        return max(float(runs), 2 * mean * (1 - mean) * (bar / (first - second)) ** 2)


def looks_at_learning(first: Array, second: Array, schedule: LookSchedule | None) -> LearningLooks | None:
    """The looks at two groups of cells.

    Parameters
    ----------
    first, second
        1 for runs that have learnt, 0 for other runs [cells, seeds], with the seeds in the order of training; NaN for
        missing runs, and for runs whose state is unknown.
    schedule
        None for a study without looks.

    Returns
    -------
    LearningLooks or None
        None before the first look. Also None if all runs have learnt: then there is no question.
    """
    shared = np.flatnonzero(np.isfinite(np.concatenate([first, second])).all(axis=0))
    if len(shared) < 2:
        return None
    schedule = schedule or LookSchedule((len(shared),))
    reached = [seeds for seeds in schedule.seeds if seeds <= len(shared)]
    if not reached:
        return None
    counts = [tuple(int(group[:, shared[:seeds]].sum()) for seeds in reached) for group in (first, second)]
    runs = tuple(len(first) * seeds for seeds in reached)
    if counts[0][-1] == counts[1][-1] == runs[-1]:
        return None
    return LearningLooks(schedule, counts[0], counts[1], runs)


def judge_learning(
    evidence: Sequence[LearningLooks | None], alpha: float = ALPHA, unlisted: int = 0
) -> tuple[LearningVerdict, ...]:
    """The verdicts of all questions of a study about chances to learn, as one family.

    Parameters
    ----------
    evidence
        The data of each question. None for a question without data. The question counts too, so that data for one
        question never withdraw the verdict of another.
    unlisted
        The number of further questions of the family, see `multiplicity.judge_claims`.
    """
    if not evidence:
        return ()
    p = np.array([1.0 if data is None else data.p() for data in evidence])
    levels = np.empty(len(p))
    levels[np.argsort(p, kind="stable")] = alpha / np.arange(len(p) + unlisted, unlisted, -1)
    stands = holm(p, unlisted) <= alpha
    return tuple(
        data.judge(float(level)) if data and stand else "undecided"
        for data, stand, level in zip(evidence, stands, levels, strict=True)
    )


@lru_cache(maxsize=4096)
def fisher_p(first: int, second: int, runs: int) -> float:
    """The two-sided p-value of Fisher's exact test of equal chances, for two groups of equally many runs.

    Parameters
    ----------
    first, second
        The learnt runs of each group.
    runs
        The runs of each group.
    """
    learnt = first + second
    counts = np.arange(max(0, learnt - runs), min(runs, learnt) + 1, dtype=np.float64)
    weights = np.exp(
        _log_choices(runs, counts) + _log_choices(runs, learnt - counts) - _log_choices(2 * runs, learnt)
    )
    # Both groups have equally many runs, so the distribution is symmetric.
    return min(1.0, 2 * float(weights[counts >= max(first, second)].sum()))


def _log_choices(n: int, k: Array | int) -> Array:
    """The logarithm of the binomial coefficient."""
    gammaln = scipy.special.gammaln
    return np.asarray(gammaln(n + 1) - gammaln(np.asarray(k) + 1) - gammaln(n - np.asarray(k) + 1))


def _future(learnt: int, runs: int, most: int) -> tuple[Array, Array]:
    """The learnt runs among `most` runs, and the chance of each number, given the learnt among the first `runs`."""
    further = np.arange(most - runs + 1, dtype=np.float64)
    a, b = learnt + PRIOR_COUNT, runs - learnt + PRIOR_COUNT
    log = _log_choices(most - runs, further) + scipy.special.betaln(a + further, b + most - runs - further)
    chances = np.exp(log - scipy.special.betaln(a, b))
    if len(further) > NODES:
        middles = (np.arange(NODES) + 0.5) / NODES
        further = further[np.searchsorted(np.cumsum(chances), middles * chances.sum())]
        chances = np.full(NODES, 1 / NODES)
    return learnt + further, chances / chances.sum()
