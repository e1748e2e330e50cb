"""Impossible results: trained nets with less error than the best possible predictor.

On average over prompts nothing beats the Bayes predictor. A mean that lies more than three standard errors below its
exact risk is a bug, or an answer that leaks into the prompt. Every study is checked. If no formula gives the risk, the
Bayes predictor may have been run as a baseline on the same prompts.

Squared errors are skewed. A sample that happens to lack the large errors has a low mean and a small standard error.
The standard error relative to the mean hardly depends on the query. So the standard error of a query is taken to be at
least the mean relative standard error times the floor. With each query's own standard error, the Bayes predictor itself
was suspected in 4 of 150 samples of 400 prompts.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr, ndtri

from loopscale.analysis.floors import raw_floors, task_of
from loopscale.analysis.results import Curve, Results, TrialResult, part_of, settings_key
from loopscale.solvers.base import Solver

ERRORS = 3.0
"""Standard errors below the floor from which a mean is impossible. Single queries are as rare, taken together."""


@dataclass(frozen=True)
class Impossible:
    """A trial below a floor. Errors are over the target's variance; `point` is None for the mean over queries."""

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
            f"Trial {self.trial} ({self.label or 'the only cell'}) has error {self.error:.3g} {where}, "
            f"{(self.floor - self.error) / self.standard_error:.0f} standard errors below {self.floor:.3g}, which no "
            f"predictor beats ({self.bound}): a bug, or answers that leak into the prompts."
        )


def impossible_results(results: Results) -> list[Impossible]:
    """Every trained trial of the study below a floor of its task, with its worst query."""
    best_solvers = list(_unbeaten_solvers(results))
    found = []
    for role in ("replicate", "tuning"):
        for trial in results.trained:
            if trial.role != role or not trial.finished or not trial.curve:
                continue
            at = _AtLoop.of(trial.curve, trial.loop)
            if at.error.size:
                found += [*_below_bounds(trial, at), *_below_solvers(trial, at, best_solvers)]
    return found


@dataclass(frozen=True)
class _AtLoop:
    """Errors at one loop, [points], at the queries whose error is above 0."""

    points: np.ndarray
    raw: np.ndarray
    error: np.ndarray
    sem: np.ndarray

    @classmethod
    def of(cls, curve: Curve, loop: int) -> "_AtLoop":
        row = curve.row(loop)
        kept = curve.error[row] > 0
        return cls(curve.points[kept], *(grid[row][kept] for grid in (curve.raw, curve.error, curve.sem)))


def _below_bounds(trial: TrialResult, at: _AtLoop) -> Iterator[Impossible]:
    scale = at.raw / at.error
    for kind, floors in raw_floors(trial.task, tuple(at.points.tolist())):
        standard_errors = np.maximum(at.sem, (at.sem / at.error).mean() * floors / scale)
        # The errors of a prompt's queries move together. The widest case is taken, that all of them do.
        mean, floor, width = at.raw.mean(), floors.mean(), (standard_errors * scale).mean()
        if width > 0 and mean < floor - ERRORS * width:
            errors = (mean / scale[0], floor / scale[0], width / scale[0])
            yield Impossible(trial.trial, trial.label, kind, None, *errors)
            return
        usable = np.where(standard_errors > 0, standard_errors, 1)
        short = np.where(standard_errors > 0, (floors / scale - at.error) / usable, -np.inf)
        worst = int(np.argmax(short))
        if short[worst] > -ndtri(ndtr(-ERRORS) / len(at.points)):
            errors = (at.error[worst], floors[worst] / scale[worst], standard_errors[worst])
            yield Impossible(trial.trial, trial.label, kind, int(at.points[worst]), *errors)


@dataclass(frozen=True)
class _UnbeatenSolver:
    """A recorded solver that no predictor beats on its task by more than `room` in the raw error."""

    task: str
    name: str
    raw: float
    width: float
    room: float


def _unbeaten_solvers(results: Results) -> Iterator[_UnbeatenSolver]:
    for baseline in results.baselines:
        if not baseline.curve or baseline.settings.get("solver.kind") not in Solver.choices():
            continue
        try:
            solver = Solver.model_validate(part_of(baseline.settings, "solver."))
            task = task_of(baseline.task)
        except ValueError:  # recorded by an older version with settings that are refused now
            continue
        room = solver.room_below(task)
        if room is not None:
            raw, error, sem = (
                grid[-1] for grid in (baseline.curve.raw, baseline.curve.error, baseline.curve.sem)
            )
            scale = np.divide(raw, error, where=error > 0, out=np.ones_like(raw))
            width = float((sem * scale).mean())
            yield _UnbeatenSolver(
                settings_key(baseline.task), baseline.solver, float(raw.mean()), width, room
            )


def _below_solvers(
    trial: TrialResult, at: _AtLoop, solvers: Sequence[_UnbeatenSolver]
) -> Iterator[Impossible]:
    """On average over queries only: a net may do better at one query at the expense of others."""
    task = settings_key(trial.task)
    scale = float((at.raw / at.error).mean())
    for solver in solvers:
        floor = solver.raw - solver.room
        width = math.hypot((at.sem * at.raw / at.error).mean(), solver.width)
        if solver.task == task and at.raw.mean() < floor - ERRORS * width:
            bound = f"{solver.name}, on the same prompts"
            errors = (float(at.raw.mean()) / scale, floor / scale, width / scale)
            yield Impossible(trial.trial, trial.label, bound, None, *errors)
