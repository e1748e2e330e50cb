"""How many steps trainings stay on the plateau: a model of recorded trainings that predicts planned ones.

log T = level + slopes · covariates + study + cell + run. Covariates are settings of a cell, such as the dimension. The
last three effects are normal, and each has a standard deviation. Runs of one study share an effect, and so do the
replicates of one cell. A planned study therefore learns as a whole, or hardly at all: the chance that all its runs
learn is far above the share of learnt runs to the power of their number.

A training that emerged between two reports adds the probability of this interval to the likelihood. A training that
never emerged adds the probability of a later emergence. Few trainings leave parts of the model open, for instance if
all emerged before the first report. The fit therefore maximises the likelihood times a prior of all parameters.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import scipy  # pyright: ignore[reportMissingTypeStubs]: scipy has no stubs; it loads submodules at the first use

from loopscale.stats.contrasts import Array

SCORES = np.linspace(-8, 8, 161)
"""Values of a standard normal effect. A study may lie far from all recorded ones, and its own records say how far."""
WEIGHTS = np.exp(-(SCORES**2) / 2) / np.exp(-(SCORES**2) / 2).sum()
USUAL_SD, FACTOR = 0.5, 0.7
"""The prior of a standard deviation: its logarithm is normal around log `USUAL_SD`, with this standard deviation."""
GRID = np.linspace(-4, 20, 481)
"""Log steps at which the likelihood of a cell is computed. Between them it is interpolated."""
LEVEL, LEVEL_SD = math.log(1000), 3.0
"""The prior of the level, where no more general model is known."""
LEAST_LOG = -1e6
"""The least log probability of recorded runs, in place of minus infinity."""
SLOPE_SD = 0.5
"""The standard deviation of a slope's prior, whose mean is 0."""


@dataclass(frozen=True)
class Cell:
    """Recorded runs with the same settings."""

    runs: Sequence[tuple[float, float]] = ()
    """Each run emerged after the first step, and not later than the second (inf if never)."""
    covariates: Sequence[float] = ()
    """One value for each slope of the model."""


@dataclass(frozen=True)
class EmergenceTimes:
    """A fitted model of log T."""

    level: float
    """The mean of log T over all studies."""
    level_error: float
    """The standard error of the level. For a planned study it adds to the effect of the study."""
    study_sd: float
    cell_sd: float
    run_sd: float
    slopes: tuple[float, ...] = ()
    """The change of log T for each unit of a covariate."""

    def share(self, steps: int, covariates: Sequence[float] = ()) -> float:
        """The expected share of runs of a planned study that emerge within these steps."""
        return self.chance([PlannedCell(steps, 1, Cell((), covariates))])

    def chance(self, planned: "Sequence[PlannedCell]", recorded: Sequence[Cell] = ()) -> float:
        """The chance that all planned runs of one study emerge.

        Parameters
        ----------
        recorded
            Other cells of this study with recorded runs. They tell the effect of the study.
        """
        logs = self.level + math.hypot(self.study_sd, self.level_error) * SCORES[:, None]
        logs = logs + self.cell_sd * SCORES
        known = sum((self._log_likelihood(cell, logs) for cell in recorded), np.zeros(len(SCORES)))
        both = known.copy()
        for cell in planned:
            known += self._log_likelihood(cell.recorded, logs)
            both += self._log_likelihood(cell.recorded, logs, cell)
        top = known.max()
        return float(WEIGHTS @ np.exp(both - top) / (WEIGHTS @ np.exp(known - top)))

    def _log_likelihood(self, cell: Cell, logs: Array, planned: "PlannedCell | None" = None) -> Array:
        """The log probability of a cell's recorded runs, and that all its planned runs emerge [study effects]."""
        logs = logs + _shift(self.slopes, cell)
        each = _of_runs(cell, self.run_sd, logs)
        if planned and planned.runs:
            z = (math.log(planned.steps) - logs) / self.run_sd
            each = each + planned.runs * scipy.special.log_ndtr(z)
        return _mean_over_cells(each)


@dataclass(frozen=True)
class PlannedCell:
    """A cell of a planned study."""

    steps: int
    """Steps of each training."""
    runs: int
    """The number of planned trainings."""
    recorded: Cell = Cell()
    """Earlier trainings of the same cell, if there are any, and its covariates."""


def fit_emergence_times(
    studies: Sequence[Sequence[Cell]], general: EmergenceTimes | None = None
) -> EmergenceTimes:
    """The most probable model.

    Parameters
    ----------
    studies
        The cells of each study. All cells have the same number of covariates.
    general
        The model of more records, for instance of all models on a task. Its slopes stay, and its level and the spread
        between its studies are the prior of the level.
    """
    level, level_sd = LEVEL, LEVEL_SD
    free = 0 if general else len(studies[0][0].covariates)
    if general:
        level, level_sd = general.level, math.hypot(general.study_sd, general.level_error)

    def slopes_of(theta: Array) -> tuple[float, ...]:
        return general.slopes if general else tuple(float(slope) for slope in theta[4:])

    everything = [cell for cells in studies for cell in cells]
    study_of = [number for number, cells in enumerate(studies) for _ in cells]
    # Reports come after the same steps in many runs, so there are far fewer intervals than runs.
    intervals = sorted({interval for cell in everything for interval in cell.runs})
    counts: Array = np.array(
        [[list(cell.runs).count(each) for each in intervals] for cell in everything], float
    )

    def loss(theta: Array) -> float:
        logs_of_sds, sds = theta[1:4], np.exp(theta[1:4])
        slopes = slopes_of(theta)
        prior = ((theta[0] - level) / level_sd) ** 2 + ((theta[4:] / SLOPE_SD) ** 2).sum()
        prior += (((logs_of_sds - math.log(USUAL_SD)) / FACTOR) ** 2).sum()
        logs: Array = theta[0] + sds[0] * SCORES
        of_intervals = [_of_interval(*each, float(sds[2]), GRID) for each in intervals]
        of_runs = np.maximum(counts @ np.reshape(of_intervals, (-1, len(GRID))), LEAST_LOG)
        curves = _smooth(of_runs, float(sds[1]))
        of_studies = [np.zeros(len(SCORES)) for _ in studies]
        for study, cell, curve in zip(study_of, everything, curves, strict=True):
            of_studies[study] += np.interp(logs + _shift(slopes, cell), GRID, curve)
        return prior / 2 - sum(map(_log_mean, of_studies))

    start = np.array([level, *[math.log(USUAL_SD)] * 3, *[0.0] * free])
    moves = np.diag([0.5, 0.4, 0.4, 0.4, *[0.3] * free])
    options = {
        "initial_simplex": start + np.vstack([np.zeros(len(start)), moves]),
        "xatol": 3e-3,
        "fatol": 1e-4,
        "maxfev": 1500,
        "adaptive": free > 0,
    }
    best = scipy.optimize.minimize(loss, start, method="Nelder-Mead", options=options)
    # The curvature by the level, at the fitted deviations.
    step = np.zeros(len(start))
    step[0] = 0.1
    curvature = (loss(best.x + step) + loss(best.x - step) - 2 * best.fun) / 0.1**2
    error = min(level_sd, 1 / math.sqrt(max(curvature, 1e-6)))
    study_sd, cell_sd, run_sd = (float(sd) for sd in np.exp(best.x[1:4]))
    return EmergenceTimes(float(best.x[0]), error, study_sd, cell_sd, run_sd, slopes_of(best.x))


def _shift(slopes: Sequence[float], cell: Cell) -> float:
    """The effect of a cell's covariates on its mean log step."""
    return sum(slope * value for slope, value in zip(slopes, cell.covariates, strict=True))


def _of_runs(cell: Cell, sd: float, logs: Array) -> Array:
    """The log probability of a cell's runs, by the mean log step of the cell."""
    total = sum((_of_interval(*interval, sd, logs) for interval in cell.runs), np.zeros_like(logs))
    return np.maximum(total, LEAST_LOG)


def _of_interval(after: float, by: float, sd: float, logs: Array) -> Array:
    """The log probability that a run emerges after the first step and by the second, by the mean log step."""
    low = (math.log(after) - logs) / sd if after > 0 else np.full_like(logs, -np.inf)
    high = (math.log(by) - logs) / sd if math.isfinite(by) else np.full_like(logs, np.inf)
    # Differences cancel far in the upper tail, so the lower tail of the mirrored interval is used there.
    mirrored = low > 0
    left, right = np.where(mirrored, -high, low), np.where(mirrored, -low, high)
    far, near = scipy.special.log_ndtr(left), scipy.special.log_ndtr(right)
    with np.errstate(invalid="ignore"):
        return np.maximum(near + np.log1p(-np.exp(np.minimum(far - near, -1e-12))), LEAST_LOG)


def _smooth(curves: Array, sd: float) -> Array:
    """The log of the mean over the effect of the cell, at all of `GRID` [cells, grid]; edges continue as they are."""
    count, step = len(GRID), GRID[1] - GRID[0]
    below = scipy.special.ndtr((np.arange(-count, count) + 0.5) * step / sd)
    # The weight of a point depends on its distance from the effect's mean; an end of the grid has all beyond itself.
    weights = np.lib.stride_tricks.sliding_window_view(np.diff(below), count)[::-1].T.copy()
    weights[0], weights[-1] = below[count:0:-1], 1 - below[2 * count - 2 : count - 2 : -1]
    # Products below the normal numbers of float64 take a processor a hundred times as long.
    weights[weights < 1e-30] = 0
    tops = curves.max(axis=1, keepdims=True)
    return tops + np.log(np.exp(np.maximum(curves - tops, -600)) @ weights)


def _mean_over_cells(logs: Array) -> Array:
    """The log of the mean over the effect of the cell [.., cell effects]."""
    top = logs.max(axis=-1, keepdims=True)
    return top[..., 0] + np.log(np.exp(logs - top) @ WEIGHTS)


def _log_mean(logs: Array) -> float:
    top = logs.max()
    return float(top + np.log(WEIGHTS @ np.exp(logs - top)))
