"""How many steps trainings stay on the plateau: a model of recorded trainings that predicts planned ones.

log T = level + study + cell + run. The three effects are normal, and each has a standard deviation. Runs of one study
share an effect, and so do the replicates of one cell. A planned study therefore learns as a whole, or hardly at all:
the chance that all its runs learn is far above the share of learnt runs to the power of their number.

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

Cell = Sequence[tuple[float, float]]
"""The runs of a cell: each emerged after the first step, and not later than the second (inf if never)."""

SCORES = np.linspace(-4, 4, 81)
"""Values of a standard normal effect."""
WEIGHTS = np.exp(-(SCORES**2) / 2) / np.exp(-(SCORES**2) / 2).sum()
USUAL_SD, FACTOR = 0.5, 0.7
"""The prior of a standard deviation: its logarithm is normal around log `USUAL_SD`, with this standard deviation."""
GRID = np.linspace(-4, 20, 481)
"""Log steps at which the likelihood of a cell is computed. Between them it is interpolated."""


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

    def share(self, steps: int) -> float:
        """The expected share of runs of a planned study that emerge within these steps."""
        return self.chance([PlannedCell(steps, 1)])

    def chance(self, planned: "Sequence[PlannedCell]", recorded: Sequence[Cell] = ()) -> float:
        """The chance that all planned runs of one study emerge.

        Parameters
        ----------
        recorded
            The recorded runs of other cells of this study. They tell the effect of the study.
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
    recorded: Cell = ()
    """Earlier trainings of the same cell."""


def fit_emergence_times(
    studies: Sequence[Sequence[Cell]], level: float = math.log(1000), level_sd: float = 3.0
) -> EmergenceTimes:
    """The most probable model.

    Parameters
    ----------
    studies
        The cells of each study.
    level, level_sd
        The normal prior of the level, for instance from trainings of other models.
    """

    def loss(theta: Array) -> float:
        sds = np.exp(theta[1:])
        prior = ((theta[0] - level) / level_sd) ** 2 + (
            ((theta[1:] - math.log(USUAL_SD)) / FACTOR) ** 2
        ).sum()
        logs: Array = theta[0] + sds[0] * SCORES[:, None] + sds[1] * SCORES
        total = 0.0
        for cells in studies:
            of_study = np.zeros(len(SCORES))
            for cell in cells:
                curve = _of_runs(cell, float(sds[2]), GRID)
                of_study += _mean_over_cells(np.interp(logs, GRID, curve))
            total += _log_mean(of_study)
        return prior / 2 - total

    start = np.array([level, *[math.log(USUAL_SD)] * 3])
    simplex = start + np.vstack([np.zeros(4), np.diag([0.5, 0.4, 0.4, 0.4])])
    options = {"initial_simplex": simplex, "xatol": 3e-3, "fatol": 1e-4, "maxfev": 1000}
    best = scipy.optimize.minimize(loss, start, method="Nelder-Mead", options=options)
    # The curvature by the level, at the fitted deviations.
    step = np.array([0.1, 0.0, 0.0, 0.0])
    curvature = (loss(best.x + step) + loss(best.x - step) - 2 * best.fun) / 0.1**2
    error = min(level_sd, 1 / math.sqrt(max(curvature, 1e-6)))
    return EmergenceTimes(float(best.x[0]), error, *(float(sd) for sd in np.exp(best.x[1:])))


def _of_runs(cell: Cell, sd: float, logs: Array) -> Array:
    """The log probability of a cell's runs, by the mean log step of the cell."""
    total = np.zeros_like(logs)
    for after, by in cell:
        low = (math.log(after) - logs) / sd if after > 0 else np.full_like(logs, -np.inf)
        high = (math.log(by) - logs) / sd if math.isfinite(by) else np.full_like(logs, np.inf)
        # Differences cancel far in the upper tail, so the lower tail of the mirrored interval is used there.
        mirrored = low > 0
        left, right = np.where(mirrored, -high, low), np.where(mirrored, -low, high)
        far, near = scipy.special.log_ndtr(left), scipy.special.log_ndtr(right)
        with np.errstate(invalid="ignore"):
            total += near + np.log1p(-np.exp(np.minimum(far - near, -1e-12)))
    return np.maximum(total, -1e6)


def _mean_over_cells(logs: Array) -> Array:
    """The log of the mean over the effect of the cell [.., cell effects]."""
    top = logs.max(axis=-1, keepdims=True)
    return top[..., 0] + np.log(np.exp(logs - top) @ WEIGHTS)


def _log_mean(logs: Array) -> float:
    top = logs.max()
    return float(top + np.log(WEIGHTS @ np.exp(logs - top)))
