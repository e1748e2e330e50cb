"""Comparisons of two groups of runs. No other module decides whether one group has less error than another.

An observation is the logarithm of one trained net's error, so a difference of means is the logarithm of a ratio of
errors. A table of logs has a row for each cell and a column for each seed; NaN marks a missing run.

- `pool`, `student`: the noise of single runs over all groups of replicates, and Student's t.
- `contrast`: two cells of one study, paired by seed; or the mean over several pairs of cells.
- `contrast_with_value`: one cell and an error without seed noise, such as a classical algorithm on the same prompts; or
  the mean over several cells and errors.
- `contrasts`: `contrast` for many complete tables at once, for simulations.
- `mean_interval`: the interval of one cell's mean error.
- `why_none`: the reason, in words, why these functions return None.
- `deciding_replicates`: the number of replicates that would decide an undecided contrast.

All intervals share one rule for the noise, `half_pooled`. A simulation chose the rule (20,000 draws for each of 2, 3,
8 and 16 cells with 2, 3, 5 and 8 seeds). With equal noise a 95 % interval covers 94.6 to 96.7 %, averaged over the
pairs of a study. If the standard deviations of the cells differ up to 4-fold, the interval covers 93.5 to 96.3 %. The
noisiest pair is then covered 84 % with two seeds and 89 % with five, and 77 % by the pooled variance alone. With eight
seeds or more, or if the noise is expected to differ, `prior=0` gives every pair its own t-test, which is exact.

Two or three replicates say almost nothing about their own variance. The cells of a study are trained alike, so `pool`
learns their noise from all groups together. Logarithms are used because errors are positive and their noise is
relative.

The intervals describe the noise of training on the prompts that were evaluated. No rule sees what these prompts do to
one cell and not to another, because all replicates of a cell share the prompts. `Contrast.beside` adds this part where
the records have its standard error, as for games of play (`stats.games`).
"""

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import cast

import numpy as np
import scipy  # pyright: ignore[reportMissingTypeStubs]: scipy has no stubs; it loads submodules at the first use
from numpy.typing import NDArray

from loopscale.stats.verdict_rule import DIFFERENCE, Array, DifferenceVerdict, VerdictRule, Verdicts

LEVEL = 0.95
"""The level of all intervals: the share that covers the truth."""
ALPHA = 0.05
"""The chance of a false verdict, 1 - `LEVEL`."""
DOUBT = 0.01
"""The level of the F test by which a scatter exceeds the noise of the replicates."""
LEAST_VARIANCE = 1e-16
"""Noise below this is rounding."""
PRIOR = 6.0
"""Weight of the study's noise in `half_pooled`, in degrees of freedom."""
MEAN_PRIOR = 2.0
"""The largest weight of the study's noise for means over several cells. The study's noise says nothing of effects that
a seed has on all of these cells. Such effects show in the scatter of the means alone."""
MOST_DECIDING_REPLICATES = 1000
"""The largest number that `deciding_replicates` names."""
LARGEST_LOG = math.log(sys.float_info.max)
Rows = int | Sequence[int]
"""A row of a table, or several rows."""


@dataclass(frozen=True)
class PooledVariance:
    """The variance of one observation, and the degrees of freedom behind it."""

    variance: float
    freedom: int

    def half_width(self, count: int, alpha: float = ALPHA) -> float:
        """Half the interval of a mean over `count` observations, with level 1 - alpha."""
        return student(self.freedom, 1 - alpha) * float(np.sqrt(self.variance / count))

    def plainly_exceeds(self, noise: "PooledVariance") -> bool:
        """True if an F test at level `DOUBT` tells this variance from the noise."""
        ratio = self.variance / max(noise.variance, LEAST_VARIANCE)
        return bool(scipy.special.fdtrc(self.freedom, noise.freedom, ratio) < DOUBT)


def student(freedom: int | float, level: float = LEVEL) -> float:
    """Half the width of Student's two-sided interval, in standard errors."""
    return float(scipy.special.stdtrit(freedom, (1 + level) / 2))


def half_widths(error: Array | float, freedom: Array | float | int, alpha: Array | float = ALPHA) -> Array:
    """Half of Student's interval of level 1 - alpha, for arrays of standard errors."""
    return np.asarray(-scipy.special.stdtrit(freedom, np.asarray(alpha) / 2) * error)


def p_values(
    difference: Array | float,
    error: Array | float,
    freedom: Array | float | int,
    rule: VerdictRule = DIFFERENCE,
) -> Array:
    """The p-values of verdicts: the smallest alpha at which each interval is not undecided (see `Contrast.p`)."""
    reach, error = np.maximum(rule.reach(difference), 0.0), np.asarray(error)
    certain = np.where(reach > 0, np.inf, 0.0)
    t = np.where(error > 0, reach / np.where(error > 0, error, 1.0), certain)
    return np.asarray(2 * scipy.special.stdtr(freedom, -t))


def pool(groups: Sequence[Array]) -> PooledVariance | None:
    """The variance about the groups' own means; None if no group has two observations."""
    freedom = sum(len(group) - 1 for group in groups if len(group))
    if freedom < 1:
        return None
    square = sum(float(np.sum((group - group.mean()) ** 2)) for group in groups if len(group))
    return PooledVariance(square / freedom, freedom)


@dataclass(frozen=True)
class Contrast:
    """The mean log error of a first group minus the mean of a second group or value."""

    difference: float
    """Below 0 if the first group has less error."""
    variance: float
    """`seeds` times the squared standard error: for pairs, the variance of one seed's difference."""
    freedom: float
    """Degrees of freedom of the variance."""
    seeds: int
    """Number of replicates: the shared seeds of a pair, else the replicates of the smaller group."""
    shared: float = 0.0
    """The squared standard error of what all replicates have in common, such as the games of play. No number of
    replicates lessens this part."""

    @property
    def error(self) -> float:
        """The standard error of the difference."""
        return math.sqrt(self.variance / self.seeds + self.shared)

    @property
    def error_freedom(self) -> float:
        """Degrees of freedom of `error` [@satterthwaite1946]. The shared part counts as known."""
        if not self.shared:
            return self.freedom
        replicates = self.variance / self.seeds
        return self.freedom * (1 + min(self.shared / max(replicates, LEAST_VARIANCE), 1e3)) ** 2

    def half_width(self, level: float = LEVEL) -> float:
        """Half the confidence interval of the difference (Student's t)."""
        return student(self.error_freedom, level) * self.error

    def beside(self, shared: float) -> "Contrast":
        """This contrast with the given `shared` part."""
        return replace(self, shared=shared)

    def interval(self, level: float = LEVEL) -> tuple[float, float]:
        """The confidence interval of the difference; `level` is the share of intervals that cover the truth."""
        half = self.half_width(level)
        return self.difference - half, self.difference + half

    def ratio(self, level: float = LEVEL) -> tuple[float, float, float]:
        """The ratio of the two errors (geometric means), and the low and the high end of its interval."""
        low, high = self.interval(level)
        return exp_of_log(self.difference), exp_of_log(low), exp_of_log(high)

    def p(self, rule: VerdictRule = DIFFERENCE) -> float:
        """The p-value of the verdict: the smallest 1 - `level` at which the interval is not undecided.

        By the rule `DIFFERENCE` this is the two-sided p-value of Student's t-test. If the rule has room, the two
        one-sided tests of "level" count too. One claim needs no correction for both tests, because at most one verdict
        can be false.
        """
        return float(p_values(self.difference, self.error, self.error_freedom, rule))

    def verdict(self, rule: VerdictRule = DIFFERENCE, alpha: float = ALPHA) -> DifferenceVerdict:
        """The verdict of the interval of level 1 - alpha."""
        return rule.judge(*self.interval(1 - alpha))


def contrast(logs: Array, first: Rows, second: Rows, prior: float = PRIOR) -> Contrast | None:
    """The difference of two cells of one study, paired by seed, or the mean difference of several pairs of cells.

    A seed draws the same prompts in every cell, and some seeds are late to learn in all cells. Such effects drop out
    of the differences. If seeds have no effect, pairing costs width: 30 % for three cells of two seeds, 8 % for eight
    cells of three seeds. Pairing is a fixed rule, because the narrower of both intervals would cover too little.

    The observation of several pairs is the mean difference of one seed. The noise of the study, divided by the number
    of pairs, has the weight `MEAN_PRIOR`, because a seed may favour one side in all pairs. Without such effects,
    intervals cover 95 to 99 % (2 to 16 pairs, 2 to 8 seeds). If a tenth of the variance of a run is such an effect,
    they cover 92 to 97 %. If three tenths of the variance are such an effect, they cover 86 to 97 %.

    Parameters
    ----------
    logs
        Log errors [cells, seeds] of the whole study.
    first, second
        The two rows, or the rows of the first and of the second cells of all pairs.
    prior
        Weight of the study's noise; 0 gives the paired t-test.

    Returns
    -------
    Contrast or None
        None if all cells share fewer than two seeds.
    """
    noise = _noise_of(logs)
    ones, others = _rows(first), _rows(second)
    gaps = (noise.table[ones] - noise.table[others]).mean(axis=0)
    gaps = gaps[np.isfinite(gaps)]
    if len(gaps) < 2:
        return None
    common, behind = noise.common
    variance, freedom = half_pooled(
        gaps.var(ddof=1), 2 * common / len(ones), len(gaps) - 1, behind, prior_of_mean(prior, len(ones))
    )
    return Contrast(float(gaps.mean()), float(variance), float(freedom), len(gaps))


def _rows(rows: Rows) -> list[int]:
    return [rows] if isinstance(rows, int | np.integer) else list(rows)


def prior_of_mean(prior: float, count: int) -> float:
    """The weight of the study's noise for a mean over `count` cells or pairs."""
    return prior if count == 1 else min(prior, MEAN_PRIOR)


@dataclass(frozen=True)
class Contrasts:
    """Contrasts as arrays of one shape, with the attributes of `Contrast`."""

    difference: Array
    variance: Array
    freedom: Array
    seeds: int

    @property
    def error(self) -> Array:
        """The standard errors of the differences."""
        return np.sqrt(self.variance / self.seeds)

    def half_width(self, alpha: Array | float = ALPHA) -> Array:
        """Half the confidence intervals of level 1 - alpha."""
        return half_widths(self.error, self.freedom, alpha)

    def p(self, rule: VerdictRule = DIFFERENCE) -> Array:
        """The p-values of the verdicts."""
        return p_values(self.difference, self.error, self.freedom, rule)

    def verdicts(self, rule: VerdictRule = DIFFERENCE, alpha: Array | float = ALPHA) -> Verdicts:
        """The verdicts of the intervals of level 1 - alpha."""
        half = self.half_width(alpha)
        return rule.judge_all(self.difference - half, self.difference + half)


def contrasts(
    logs: Array, first: NDArray[np.int_], second: NDArray[np.int_], prior: float = PRIOR
) -> Contrasts:
    """The contrasts of many studies at once, by the rule of `contrast`.

    Parameters
    ----------
    logs
        Log errors [..., cells, seeds] without missing runs, with two seeds or more.
    first, second
        The rows of each pair [pairs].

    Returns
    -------
    Contrasts
        Arrays [..., pairs].
    """
    seeds = logs.shape[-1]
    gaps = logs[..., first, :] - logs[..., second, :]
    common, behind = common_noise(logs)
    variance, freedom = half_pooled(
        gaps.var(-1, ddof=1), 2 * common[..., None], seeds - 1, behind[..., None], prior
    )
    return Contrasts(gaps.mean(-1), variance, np.broadcast_to(freedom, variance.shape), seeds)


def contrast_with_value(
    logs: Array, cell: Rows, value: float | Sequence[float], prior: float = PRIOR
) -> Contrast | None:
    """The difference of a cell and an error that has no seed noise, or the mean difference of several cells.

    The noise is that of a run about the mean of its cell. Effects of seeds on all cells do not cancel here. Without
    such effects a 95 % interval covers 94.5 to 96.7 % (equal noise). If the effects are as large as the noise, the
    interval covers 92.7 to 95.5 %. If they are twice as large, the interval covers 87 % with two seeds.

    Parameters
    ----------
    logs
        Log errors [cells, seeds] of the whole study.
    cell
        The row, or the rows of several cells.
    value
        The error, above 0, or one error for each row.

    Returns
    -------
    Contrast or None
        None if the cells share fewer than two replicates.
    """
    noise = _noise_of(logs)
    rows = _rows(cell)
    own, pooled = noise.table[rows].mean(axis=0), noise.pooled
    own = own[np.isfinite(own)]
    if pooled is None or len(own) < 2:
        return None
    variance, freedom = half_pooled(
        own.var(ddof=1),
        pooled.variance / len(rows),
        len(own) - 1,
        pooled.freedom,
        prior_of_mean(prior, len(rows)),
    )
    difference = own.mean() - np.mean(np.log(value))
    return Contrast(float(difference), float(variance), float(freedom), len(own))


def mean_interval(
    logs: Array, cell: int, level: float = LEVEL, prior: float = PRIOR
) -> tuple[float, float] | None:
    """The confidence interval of a cell's mean error.

    The log of a log-normal mean is the mean of the logs plus half their variance. The standard error joins those of
    both terms (Cox's method; @zhou1997). The interval always holds the mean of the replicates.

    Parameters
    ----------
    logs
        Log errors [cells, seeds] of the whole study.
    cell
        The row.

    Returns
    -------
    (low, high) or None
        In units of the error; None if the cell has fewer than two replicates.
    """
    log = contrast_with_value(logs, cell, 1.0, prior)
    if log is None:
        return None
    centre = log.difference + log.variance / 2
    half = student(log.freedom, level) * math.sqrt(log.error**2 + log.variance**2 / (2 * log.freedom))
    mean = float(np.exp(logs[cell][np.isfinite(logs[cell])]).mean())
    return min(exp_of_log(centre - half), mean), max(exp_of_log(centre + half), mean)


def why_none(*rows: Array) -> str:
    """Why one cell (one row of logs), or a pair of cells (two rows), has no interval; empty if there is one."""
    if any(np.isinf(row).any() for row in rows):
        return "an error that is 0 or not finite"
    runs = [np.isfinite(row) for row in rows]
    if any(run.sum() < 2 for run in runs):
        return "fewer than two replicates"
    if np.logical_and.reduce(runs).sum() < 2:
        return "fewer than two replicates of the same seeds"
    return ""


def deciding_replicates(
    compared: Contrast,
    rule: VerdictRule = DIFFERENCE,
    level: float = LEVEL,
    most: int = MOST_DECIDING_REPLICATES,
) -> int | None:
    """How many replicates would decide the contrast, if the true difference is the estimated one.

    An interval shrinks with the root of the replicates, down to the part that all replicates share. The quantile of
    Student's t shrinks too, which is ignored.

    Returns
    -------
    int or None
        In all, for each group; the present number if the contrast is decided. None above `most`.
    """
    half, reach = compared.half_width(level), float(rule.reach(compared.difference))
    if half < reach:
        return compared.seeds
    quantile = student(compared.error_freedom, level)
    # What remains for the replicates beside the shared part.
    allowed = max(reach, 0.0) ** 2 - quantile**2 * compared.shared
    needed = quantile**2 * compared.variance / allowed if allowed > 0 else math.inf
    if needed > most:
        return None
    return max(compared.seeds + 1, math.ceil(needed))


def common_noise(logs: Array) -> tuple[Array, Array]:
    """The noise that remains when each cell has a mean of its own and each seed an effect on all cells.

    The two-way model without interaction (randomised blocks; @fisher1935), by least squares, so that missing runs do
    no harm. Cells with a single run are left out.

    Parameters
    ----------
    logs
        Log errors [..., cells, seeds].

    Returns
    -------
    variance, freedom
        Of one run, [...]. The variance is NaN without degrees of freedom.
    """
    runs = np.isfinite(logs)
    kept = runs & (runs.sum(axis=-1, keepdims=True) > 1)
    if kept.ndim > 2 and kept.size:
        patterns = kept.reshape(-1, *kept.shape[-2:])
        if (patterns == patterns[0]).all():
            kept = patterns[0]  # the normal equations are solved once for all tables
    weight = kept.astype(np.float64)
    counts = np.maximum(weight.sum(axis=-1, keepdims=True), 1)
    values = np.where(kept, logs, 0.0)
    centred = np.where(kept, values - values.sum(axis=-1, keepdims=True) / counts, 0.0)
    # Centring eliminates the means of the cells. The normal equations of the effects of seeds remain.
    normal = np.eye(logs.shape[-1]) * weight.sum(axis=-2)[..., None] - np.swapaxes(weight, -1, -2) @ (
        weight / counts
    )
    inverse = cast(Array, np.linalg.pinv(normal, rcond=1e-10, hermitian=True))
    effects = (inverse @ centred.sum(axis=-2)[..., None])[..., 0][..., None, :] * weight
    residual = np.where(kept, centred - effects + effects.sum(axis=-1, keepdims=True) / counts, 0.0)
    rank = np.linalg.matrix_rank(normal, tol=1e-8, hermitian=True)
    freedom = np.asarray(weight.sum(axis=(-2, -1)) - kept.any(axis=-1).sum(axis=-1) - rank, dtype=np.float64)
    square = (residual**2).sum(axis=(-2, -1))
    freedom = np.broadcast_to(freedom, square.shape)
    return np.where(freedom > 0, square / np.maximum(freedom, 1), np.nan), freedom


def half_pooled(
    own: Array | float, pooled: Array | float, freedom: Array | int, behind: Array | int, prior: float = PRIOR
) -> tuple[Array, Array]:
    """A weighted mean of a group's own variance and the variance pooled over the study.

    With few replicates the study's noise decides. With many replicates a noisy cell keeps an interval of its own
    width. The freedom never exceeds that of the pool, so two cells alone give the plain paired t-test. A prior
    estimated from the study [@smyth2004] covers less.

    Parameters
    ----------
    own, freedom
        The group's variance and its degrees of freedom.
    pooled, behind
        The study's variance and its degrees of freedom.
    prior
        Weight of the pooled variance, in degrees of freedom.

    Returns
    -------
    variance, freedom
        (prior pooled + freedom own) / (prior + freedom), and min(prior + freedom, behind).
    """
    variance = (prior * pooled + freedom * own) / (prior + freedom)
    return np.asarray(variance), np.asarray(np.minimum(prior + freedom, behind))


def exp_of_log(log: float) -> float:
    """The exponential; infinite above the range of floats, where an interval of two very different runs can end."""
    return math.exp(log) if log < LARGEST_LOG else math.inf


class _StudyNoise:
    """The noise of a table of logs [cells, seeds]. Every part is computed once, at its first use."""

    def __init__(self, logs: Array) -> None:
        # Cells with an infinite log are left out: such an error is no missing run, and has no noise.
        self.table = np.where(np.isinf(logs).any(axis=1, keepdims=True), np.nan, logs)

    @cached_property
    def groups(self) -> list[Array]:
        return [row[np.isfinite(row)] for row in self.table]

    @cached_property
    def pooled(self) -> PooledVariance | None:
        return pool(self.groups)

    @cached_property
    def common(self) -> tuple[Array, Array]:
        return common_noise(self.table)


def _noise_of(logs: Array) -> _StudyNoise:
    logs = np.ascontiguousarray(logs, dtype=np.float64)
    return _noise_of_content(logs.tobytes(), logs.shape)


@lru_cache(maxsize=4)
def _noise_of_content(content: bytes, shape: tuple[int, ...]) -> _StudyNoise:
    """The noise of a table, kept for the next cell of the table: a study has one table for all its intervals."""
    return _StudyNoise(np.frombuffer(content, dtype=np.float64).reshape(shape))
