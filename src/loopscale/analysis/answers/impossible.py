"""Impossible results: trained nets with less error than the best possible predictor.

On average over prompts, no predictor beats the Bayes predictor. A mean more than three standard errors below the exact
risk of the Bayes predictor means a bug, or an answer that leaks into the prompt. Every study is checked. If no formula
gives the risk, a run of the Bayes predictor as a baseline on the same prompts takes its place.

Squared errors are skewed, so a sample without large errors has both a low mean and a small standard error. The standard
error relative to the mean hardly depends on the query. The standard error of a query is therefore at least the floor
times the relative standard error, averaged over queries. Without this rule, the Bayes predictor itself was suspected in
4 of 150 samples of 400 prompts.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr, ndtri

from loopscale.analysis.recorded.references import raw_floors, task_of
from loopscale.analysis.recorded.results import Results, TrialCurve, TrialResult, part_of, settings_key
from loopscale.core.plugins import MissingPlugin
from loopscale.core.titles import readable
from loopscale.solvers.base import Solver

STANDARD_ERRORS = 3.0
"""A mean this many standard errors below the floor is impossible.

For single queries the limit is larger, so that all queries of a trial together raise no more false alarms.
"""


@dataclass(frozen=True)
class Impossible:
    """A trial below a floor. Errors are divided by the target's variance. The mean over queries has no `point`."""

    trial: str
    label: str
    bound: str
    point: int | None
    error: float
    floor: float
    standard_error: float

    @property
    def sentence(self) -> str:
        where = "on average over queries" if self.point is None else f"after {self.point} pairs"
        return (
            f"Trial {self.trial} ({readable(self.label) or 'the only cell'}) has error {self.error:.3g} {where}, "
            f"{(self.floor - self.error) / self.standard_error:.0f} standard errors below {self.floor:.3g}, which no "
            f"predictor beats ({self.bound}): a bug, or answers that leak into the prompts."
        )


def impossible_results(results: Results) -> list[Impossible]:
    """The trained trials below a floor of their task: on average over queries, or else at the worst query."""
    solvers = list(_unbeaten_solvers(results))
    impossible = []
    for role in ("replicate", "tuning"):
        for trial in results.trained:
            if trial.role != role or not trial.finished or not trial.curve:
                continue
            errors = _ErrorsAtLoop.of(trial.curve, trial.loop)
            if errors.error.size:
                impossible += [*_below_bounds(trial, errors), *_below_solvers(trial, errors, solvers)]
    return impossible


@dataclass(frozen=True)
class _ErrorsAtLoop:
    """Errors after one loop, [points], at the queries whose error is above 0."""

    points: np.ndarray
    raw: np.ndarray
    error: np.ndarray
    sem: np.ndarray

    @classmethod
    def of(cls, curve: TrialCurve, loop: int) -> "_ErrorsAtLoop":
        row = curve.row(loop)
        kept = curve.error[row] > 0
        return cls(curve.points[kept], *(grid[row][kept] for grid in (curve.raw, curve.error, curve.sem)))


def _below_bounds(trial: TrialResult, errors: _ErrorsAtLoop) -> Iterator[Impossible]:
    scale = errors.raw / errors.error
    for kind, floors in raw_floors(trial.task, tuple(errors.points.tolist())):
        sems = np.maximum(errors.sem, (errors.sem / errors.error).mean() * floors / scale)
        # The errors of one prompt's queries are correlated. Full correlation gives the largest standard error.
        mean, floor, sem = errors.raw.mean(), floors.mean(), (sems * scale).mean()
        if sem > 0 and mean < floor - STANDARD_ERRORS * sem:
            values = (mean / scale[0], floor / scale[0], sem / scale[0])
            yield Impossible(trial.trial, trial.label, kind, None, *values)
            return
        divisors = np.where(sems > 0, sems, 1)
        shortfalls = np.where(sems > 0, (floors / scale - errors.error) / divisors, -np.inf)
        worst = int(np.argmax(shortfalls))
        if shortfalls[worst] > -ndtri(ndtr(-STANDARD_ERRORS) / len(errors.points)):
            values = (errors.error[worst], floors[worst] / scale[worst], sems[worst])
            yield Impossible(trial.trial, trial.label, kind, int(errors.points[worst]), *values)


@dataclass(frozen=True)
class _UnbeatenSolver:
    """A recorded solver that no predictor beats on its task by more than `room` in the raw error.

    `raw` and `sem` are the mean raw error and its standard error.
    """

    task: str
    name: str
    raw: float
    sem: float
    room: float


def _unbeaten_solvers(results: Results) -> Iterator[_UnbeatenSolver]:
    for baseline in results.baselines:
        if not baseline.curve or baseline.settings.get("solver.kind") not in Solver.choices():
            continue
        try:
            solver = Solver.model_validate(part_of(baseline.settings, "solver."))
            task = task_of(baseline.task)
        except (ValueError, MissingPlugin):  # recorded by an older version of loopscale or of a plugin
            continue
        room = solver.room_below(task)
        if room is not None:
            raw, error, sem = (
                grid[-1] for grid in (baseline.curve.raw, baseline.curve.error, baseline.curve.sem)
            )
            scale = np.divide(raw, error, where=error > 0, out=np.ones_like(raw))
            key, raw_sem = settings_key(baseline.task), float((sem * scale).mean())
            yield _UnbeatenSolver(key, baseline.solver, float(raw.mean()), raw_sem, room)


def _below_solvers(
    trial: TrialResult, errors: _ErrorsAtLoop, solvers: Sequence[_UnbeatenSolver]
) -> Iterator[Impossible]:
    """Only the average over queries is compared: a net may be better at one query and worse at others."""
    task = settings_key(trial.task)
    scale = float((errors.raw / errors.error).mean())
    for solver in solvers:
        floor = solver.raw - solver.room
        sem = math.hypot((errors.sem * errors.raw / errors.error).mean(), solver.sem)
        if solver.task == task and errors.raw.mean() < floor - STANDARD_ERRORS * sem:
            bound = f"{solver.name}, on the same prompts"
            values = (float(errors.raw.mean()) / scale, floor / scale, sem / scale)
            yield Impossible(trial.trial, trial.label, bound, None, *values)
