"""Whether a net has learnt: its floor, the step at which it leaves the plateau, and whether its training is over.

**Floor.** The least possible error of a task, and its ignorance, averaged over one set of prompts.

**Emergence.** A report has a step and a reducible share: (error - floor) / (ignorance - floor). The share is 1 on the
plateau and 0 at the floor. A training emerges at the first of several consecutive reports whose share is below a level.
Reports are steps apart, so the step of emergence is only known as an interval. A training that never emerges is
censored.

The level .5 is a convention. On the plateau, the scatter of the share is .006 in the median of 927 recorded trainings,
and below .056 in 95 % of them. So a false alarm is nine standard deviations away. One of these trainings came back
above the level after two consecutive reports, and five after one report.

**Trend.** A training is over if log regret no longer falls with log step over the last part of the steps.

The window is the last half of the steps, which is one doubling. A simulation chose the window. The last quarter of the
log steps also contains the fall before a levelled end, and then calls every such training falling. The last quarter of
the steps detects a fall as step^-.3 in 9 % of trainings with 20 reports; the last half detects 62 %.

A training has few reports in the window, so the scatter between reports is pooled over the study. The interval assumes
independent reports: with a correlation of .4 between neighbours a 95 % interval covers 84 to 86 %.

Under a schedule that anneals the learning rate, annealing itself lowers the regret in the last half. Then the result
describes this schedule, and says nothing about a longer training.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from loopscale.stats.contrasts import Array, PooledVariance, student

LEAST_ROOM = 0.1
"""A task has no room if a smaller part of its ignorance is reducible."""


def reducible_share(error: Array | float, floor: float, ignorance: float) -> Array:
    """The part of the reducible error that is left: 1 for the best fixed guess, 0 at the floor.

    Returns
    -------
    Array
        NaN if the task has no room: less than `LEAST_ROOM` of the ignorance is reducible.
    """
    room = ignorance - floor
    if not room > LEAST_ROOM * ignorance:
        return np.full_like(np.asarray(error, np.float64), np.nan)
    return np.asarray((np.asarray(error, np.float64) - floor) / room)


@dataclass(frozen=True)
class EmergenceRule:
    """Which reports end the plateau."""

    below: float = 0.5
    """The reducible share below which a report counts."""
    consecutive: int = 2
    """Number of consecutive reports that must count. At the end of the training, the remaining reports suffice."""


@dataclass(frozen=True)
class Emergence:
    """The training emerged after step `after` and not later than step `by`."""

    after: float
    """The last report before the emergence; 0 if the first report already counts (left-censored)."""
    by: float
    """The first report that counts; inf if the training never emerged (right-censored at its last report)."""

    @property
    def emerged(self) -> bool:
        return math.isfinite(self.by)


def emergence(steps: Array, share: Array, rule: EmergenceRule | None = None) -> Emergence | None:
    """The interval in which a training emerged.

    Parameters
    ----------
    steps, share
        Steps and reducible shares of all reports [reports], in the order of the steps.
    rule
        By default two consecutive reports below .5.

    Returns
    -------
    Emergence or None
        None without reports, or if a share is NaN: the task has no room.
    """
    rule = rule or EmergenceRule()
    if not len(steps) or np.isnan(share).any():
        return None
    low = share < rule.below
    before = np.concatenate([[0.0], steps])
    for first in np.flatnonzero(low):
        if low[first : first + rule.consecutive].all():
            return Emergence(float(before[first]), float(steps[first]))
    return Emergence(float(steps[-1]), math.inf)


How = Literal["bayes", "exact", "bound", "reference", "none"]


@dataclass(frozen=True)
class MeanFloor:
    """A floor on average over prompts. All errors are divided by the variance of the target."""

    how: How
    """bayes: the error of the Bayes predictor. exact: 0. bound: nothing is below. reference: the error of the best
    known algorithm, and a net may be below. none: neither a floor nor a reference is known."""
    name: str
    """The kind of the solver that has this error; "fixed guess" if no algorithm is better than a fixed guess."""
    error: Array
    """The least error known at every query [points]; NaN if `how` is none."""
    ignorance: Array
    """The error of the best fixed guess at every query [points]."""

    @property
    def measure(self) -> str:
        """The name of `error - floor` in texts."""
        if self.how == "none":
            return "error"
        return "regret" if self.how in ("bayes", "exact") else f"error above the {self.how} {self.name}"

    @property
    def has_room(self) -> bool:
        """Whether enough of the ignorance is reducible, on average over queries."""
        return bool(np.isfinite(self.shares(self.error.mean(keepdims=True))).all())

    def shares(self, error: Array, query: Literal["mean", "last"] = "mean") -> Array:
        """The reducible share of errors on this set of prompts: a training's reports of `error` or `error_last`."""
        floor, ignorance = (
            float(values.mean() if query == "mean" else values[-1]) for values in (self.error, self.ignorance)
        )
        return reducible_share(error, floor, ignorance)


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
        x, y = _last_reports(steps, regret, window)
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
    x, y = _last_reports(steps, regret, window)
    if len(x) < 2:
        return None
    slope, _ = _line(x, y)
    error = float(np.sqrt(scatter.variance / np.square(x - x.mean()).sum()))
    half = student(scatter.freedom) * error
    fall, low, high = (1 - 2.0**value for value in (slope, slope + half, slope - half))
    return Trend(fall, low, high)


def _last_reports(steps: Array, regret: Array, window: float) -> tuple[Array, Array]:
    """log2 steps and log2 regrets of the reports in the window."""
    kept = (steps >= window * steps[-1]) & (regret > 0) if len(steps) else np.zeros(0, bool)
    return np.log2(steps[kept]), np.log2(regret[kept])


def _line(x: Array, y: Array) -> tuple[float, float]:
    """The slope of the least-squares line, and the sum of its squared residuals."""
    centred = x - x.mean()
    slope = float(centred @ y / (centred @ centred))
    return slope, float(np.square(y - y.mean() - slope * centred).sum())


Stage = Literal["no floor", "no room", "not learnt", "falling", "over", "unclear"]


@dataclass(frozen=True)
class History:
    """The reports of one training, with the floor and the ignorance on the same prompts."""

    steps: Array
    """Steps of the reports [reports], ascending."""
    error: Array
    """The validation error, averaged over queries [reports]."""
    floor: float
    """NaN if unknown."""
    ignorance: float

    @property
    def share(self) -> Array:
        """The reducible share of each report [reports]."""
        return reducible_share(self.error, self.floor, self.ignorance)


@dataclass(frozen=True)
class LearningState:
    """What the reports of one training say."""

    floor_known: bool
    share: float
    """The reducible share of the last report; NaN if the task has no floor or no room."""
    emergence: Emergence | None
    """None if the task has no floor or no room."""
    trend: Trend | None
    """None if the training has too few reports. Under a cosine schedule the trend describes this schedule alone."""

    @property
    def stage(self) -> Stage:
        if self.emergence is None:
            return "no room" if self.floor_known else "no floor"
        if not self.emergence.emerged:
            return "not learnt"
        return self.trend.ending if self.trend else "unclear"


@dataclass(frozen=True)
class Learnt:
    """How many trainings have left the plateau, and how many are still falling."""

    emerged: int
    of: int
    """Trainings on tasks with a floor and with room. The others have no state."""
    falling: int = 0
    over: int = 0
    """Trainings that have emerged and whose regret is falling, or no longer falls. The others are unclear."""

    @classmethod
    def count(cls, states: Iterable[LearningState | None]) -> "Learnt":
        judged = [state for state in states if state is not None and state.emergence is not None]
        words = [state.stage for state in judged]
        emerged = len(words) - words.count("not learnt")
        return cls(emerged, len(words), words.count("falling"), words.count("over"))

    def __add__(self, other: "Learnt") -> "Learnt":
        return Learnt(
            self.emerged + other.emerged,
            self.of + other.of,
            self.falling + other.falling,
            self.over + other.over,
        )

    @property
    def all(self) -> bool:
        """True if no training is known to stand on the plateau."""
        return self.emerged == self.of

    @property
    def mostly_falling(self) -> bool:
        """True if at least half of the trainings are still falling. A single one may be falling by chance."""
        return 0 < self.of <= 2 * self.falling

    @property
    def mostly_unfinished(self) -> bool:
        """True if at least half of the trainings have not learnt, or are still falling."""
        return 0 < self.of <= 2 * (self.falling + self.of - self.emerged)

    @property
    def words(self) -> str:
        """The trainings on the plateau, in words; empty if no training has a state."""
        if not self.of:
            return ""
        runs = "1 run stands" if self.of == 1 else f"{self.of} runs stand"
        return f"{self.of - self.emerged} of {runs} on the plateau"


def pooled_scatter(histories: Sequence[History], rule: EmergenceRule | None = None) -> PooledVariance | None:
    """The scatter between reports, pooled over the trainings whose task has room. Without room, regret is noise."""
    has_room = [history for history in histories if emergence(history.steps, history.share, rule)]
    return report_scatter([(history.steps, history.error - history.floor) for history in has_room])


def recorded_learning(history: History) -> dict[str, float]:
    """The learning that a finished training records of itself, by the names of the metrics.

    An analysis pools the scatter between reports over the study. Here the scatter comes from this training alone, so
    the interval of the fall is wider. `emerged_at` is absent if the training never emerged.
    """
    state = learning_state(history, pooled_scatter([history]))
    metrics = {"validate_floor": history.floor, "validate_ignorance": history.ignorance}
    if state.emergence and state.emergence.emerged:
        metrics["emerged_at"] = state.emergence.by
    if state.trend:
        names = ("still_falling", "still_falling_low", "still_falling_high")
        metrics |= dict(zip(names, (state.trend.fall, state.trend.low, state.trend.high), strict=True))
    return metrics


def learning_state(
    history: History, scatter: PooledVariance | None, rule: EmergenceRule | None = None
) -> LearningState:
    """The state of one training.

    Parameters
    ----------
    history
        With at least one report.
    scatter
        `pooled_scatter` of the study, or of this training alone. None leaves the end of the training unknown.
    rule
        By default two consecutive reports below .5.
    """
    share = history.share
    left = emergence(history.steps, share, rule)
    slope = trend(history.steps, history.error - history.floor, scatter) if left and scatter else None
    return LearningState(not math.isnan(history.floor), float(share[-1]), left, slope)
