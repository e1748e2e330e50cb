"""Whether a training is over: the slope of log regret against log step over the last part of the steps.

The window is the last half of the steps, which is one doubling. A simulation chose the window. The last quarter of the
log steps also contains the fall before a levelled end, and then calls every such training falling. The last quarter of
the steps detects a fall as step^-.3 in 9 % of trainings with 20 reports; the last half detects 62 %.

A training has few reports in the window, so the scatter between reports is pooled over the study. The interval assumes
independent reports: with a correlation of .4 between neighbours a 95 % interval covers 84 to 86 %.

Under a schedule that anneals the learning rate, annealing itself lowers the regret in the last half. Then the result
describes this schedule, and says nothing about a longer training.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from loopscale.stats.contrasts import Array, PooledVariance, student

WINDOW = 0.5
"""The window begins at this share of the steps."""
NEGLIGIBLE = 0.2
"""A smaller fall per doubling counts as no fall. With 20 reports and a scatter of .1 in the natural logarithm, the half
width of the interval is .19. So a smaller margin would hardly ever be met."""
LEAST_REPORTS = 3
"""A straight line through fewer reports leaves no scatter."""
Ending = Literal["over", "falling", "unclear"]


@dataclass(frozen=True)
class Trend:
    """The fall of the regret per doubling of the steps at the end of a training, with its interval."""

    fall: float
    """1 minus the ratio of the regrets at twice the step and at the step."""
    low: float
    high: float

    @property
    def ending(self) -> Ending:
        """over: the fall is below `NEGLIGIBLE`. falling: the fall is above 0. unclear: the interval shows neither."""
        if self.high < NEGLIGIBLE:
            return "over"
        return "falling" if self.low > 0 else "unclear"


def report_scatter(histories: Sequence[tuple[Array, Array]], window: float = WINDOW) -> PooledVariance | None:
    """The variance of log2 regret about each training's own straight line, pooled over the trainings of a study.

    Parameters
    ----------
    histories
        Steps and regrets [reports] of each training.

    Returns
    -------
    PooledVariance or None
        None if no training has three reports in the window.
    """
    square, freedom = 0.0, 0
    for steps, regret in histories:
        x, y = _window(steps, regret, window)
        if len(x) >= LEAST_REPORTS:
            square += _line(x, y)[1]
            freedom += len(x) - 2
    return PooledVariance(square / freedom, freedom) if freedom else None


def trend(steps: Array, regret: Array, scatter: PooledVariance, window: float = WINDOW) -> Trend | None:
    """The slope of log regret against log step over the window.

    Parameters
    ----------
    steps, regret
        Steps and regrets of all reports [reports], in the order of the steps. A regret that is not positive has no
        logarithm, and its report is left out.
    scatter
        `report_scatter` of the study.

    Returns
    -------
    Trend or None
        None if fewer than two reports are left in the window.
    """
    x, y = _window(steps, regret, window)
    if len(x) < 2:
        return None
    slope, _ = _line(x, y)
    error = float(np.sqrt(scatter.variance / np.square(x - x.mean()).sum()))
    half = student(scatter.freedom) * error
    fall, low, high = (1 - 2.0**value for value in (slope, slope + half, slope - half))
    return Trend(fall, low, high)


def _window(steps: Array, regret: Array, window: float) -> tuple[Array, Array]:
    """log2 steps and log2 regrets of the reports in the window."""
    kept = (steps >= window * steps[-1]) & (regret > 0) if len(steps) else np.zeros(0, bool)
    return np.log2(steps[kept]), np.log2(regret[kept])


def _line(x: Array, y: Array) -> tuple[float, float]:
    """The slope of the least-squares line, and the sum of its squared residuals."""
    centred = x - x.mean()
    slope = float(centred @ y / (centred @ centred))
    return slope, float(np.square(y - y.mean() - slope * centred).sum())
