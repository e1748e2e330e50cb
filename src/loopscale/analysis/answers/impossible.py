"""Results that cannot be: trained nets with less error than the best predictor that there is.

Nothing beats the Bayes predictor on average over prompts. A mean that lies more than three standard errors below its
exact risk is a bug, or an answer that leaks into the prompt: every study is looked at, asked or not. Where no formula
gives that risk, the Bayes predictor may have been run as a baseline, on the same prompts.

Squared errors are skewed: a sample that happens to lack the large ones has a low mean and a small spread. Relative to
its mean that spread hardly depends on the query, so that a query's is at least the floor's share of what it is on
average. With each query's own the Bayes predictor itself was suspected in 4 of 150 samples of 400 prompts.
"""

# pandas types every selection as a union of all that it could be: those rules find nothing here but that.
# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportCallIssue=false
# pyright: reportGeneralTypeIssues=false, reportReturnType=false, reportOperatorIssue=false

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from scipy.special import ndtr, ndtri

from loopscale.analysis.tables import (
    evaluated,
    finished,
    json_key,
    loop_of,
    numbers,
    part_of,
    solver_name,
    task_of,
)

if TYPE_CHECKING:
    from loopscale.tasks.base import Task

ERRORS = 3.0
"""Standard errors below the floor from which a mean is impossible; at single queries as rarely, all taken together."""


@dataclass(frozen=True)
class Impossible:
    """A trial below a floor; errors are over the target's variance. `point` is `None` for the mean over queries."""

    trial: str
    label: str
    bound: str
    point: int | None
    error: float
    floor: float
    standard_error: float

    @property
    def text(self) -> str:
        """In words."""
        where = "on average over queries" if self.point is None else f"after {self.point} pairs"
        return (
            f"Trial {self.trial} ({self.label or 'the only cell'}) has error {self.error:.3g} {where}, "
            f"{(self.floor - self.error) / self.standard_error:.0f} standard errors below {self.floor:.3g}, which no "
            f"predictor beats ({self.bound}): a bug, or answers that leak into the prompts."
        )


def impossible(trials: pd.DataFrame, curves: pd.DataFrame) -> list[Impossible]:
    """Every trained trial of the study that is below a floor of its task, the worst query of each."""
    rows = [row for role in ("replicate", "tuning") for _, row in finished(trials, role).iterrows()]
    of_trial = dict(tuple(curves.groupby("trial")))  # once: a large study has millions of rows
    leaders = list(_leaders(trials, of_trial))
    found = []
    for row in rows:
        curve = of_trial.get(row["trial"], curves.iloc[:0])
        at = curve[(curve["loop"] == loop_of(row, curve)) & (curve["error"] > 0)].sort_values("point")
        if len(at):
            found += _of(row, at)
            found += _below(row, at, leaders) if leaders else []
    return found


def _of(row: pd.Series, at: pd.DataFrame) -> Iterator[Impossible]:
    points, raw, error, sem = (numbers(at[name]) for name in ("point", "raw", "error", "sem"))
    scale = raw / error
    for kind, floors in _raw_floors(evaluated(row), tuple(points.astype(int).tolist())):
        said = {"trial": row["trial"], "label": row["label"], "bound": kind}
        least = np.maximum(sem, (sem / error).mean() * floors / scale)
        # Errors of a prompt's queries move together; that they all do is the most that they can.
        mean, below, width = raw.mean(), floors.mean(), (least * scale).mean()
        if width > 0 and mean < below - ERRORS * width:
            yield Impossible(point=None, error=mean / scale[0], floor=below / scale[0],
                             standard_error=width / scale[0], **said)  # fmt: skip
            return
        short = np.where(least > 0, (floors / scale - error) / np.where(least > 0, least, 1), -np.inf)
        worst = int(np.argmax(short))
        if short[worst] > -ndtri(ndtr(-ERRORS) / len(points)):
            yield Impossible(point=int(points[worst]), error=error[worst], floor=floors[worst] / scale[worst],
                             standard_error=least[worst], **said)  # fmt: skip


@dataclass(frozen=True)
class _Leader:
    """A solver that was run, and on its task is beaten by nobody, but for `room` in the raw error."""

    task: str
    name: str
    raw: float
    width: float
    room: float


def _leaders(trials: pd.DataFrame, of_trial: Mapping[Any, pd.DataFrame]) -> Iterator[_Leader]:
    from loopscale.solvers.base import Solver

    for _, row in finished(trials, "baseline").iterrows():
        curve, settings = of_trial.get(row["trial"]), evaluated(row)
        if curve is None or settings.get("solver.kind") not in Solver.choices():
            continue
        try:
            solver, task = Solver.model_validate(part_of(settings, "solver.")), _task(settings)
        except ValueError:  # of an older version, which took settings that are refused now
            continue
        last = curve[curve["loop"] == curve["loop"].max()]
        if (room := solver.room_below(task)) is not None:
            raw, error, sem = (numbers(last[name]) for name in ("raw", "error", "sem"))
            width = float((sem * np.divide(raw, error, where=error > 0, out=np.ones_like(raw))).mean())
            yield _Leader(json_key(task_of(row)), solver_name(row), float(raw.mean()), width, room)


def _below(row: pd.Series, at: pd.DataFrame, leaders: Sequence[_Leader]) -> Iterator[Impossible]:
    """On average over queries alone: a net may know one of them better, at others' cost."""
    task = json_key(task_of(row))
    raw, error, sem = (numbers(at[name]) for name in ("raw", "error", "sem"))
    scale = float((raw / error).mean())
    for leader in leaders:
        floor, width = leader.raw - leader.room, math.hypot((sem * raw / error).mean(), leader.width)
        if leader.task == task and raw.mean() < floor - ERRORS * width:
            yield Impossible(row["trial"], row["label"], f"{leader.name}, on the same prompts", None,
                             float(raw.mean()) / scale, floor / scale, width / scale)  # fmt: skip


def floors_of(row: pd.Series, curve: pd.DataFrame) -> Iterator[tuple[str, pd.Series]]:
    """What no predictor beats on a trial's task, by pairs seen, over the target's variance as its errors are."""
    at = curve[(curve["error"] > 0) & (curve["loop"] == curve["loop"].min())].sort_values("point")
    points = numbers(at["point"]).astype(int)
    if len(points):
        scale = float((numbers(at["raw"]) / numbers(at["error"])).mean())
        for kind, floors in _raw_floors(evaluated(row), tuple(points.tolist())):
            yield kind, pd.Series(floors / scale, index=points)


def _raw_floors(settings: Mapping[str, Any], points: tuple[int, ...]) -> Iterator[tuple[str, np.ndarray]]:
    """The raw error below which none can be, at each query, from every bound that says so of this task."""
    from loopscale.theory.bounds.base import Bound

    if settings.get("task.active") is not None:  # fewer coordinates at work than the bound would count
        return
    task = {f"task.{name}": value for name, value in part_of(settings, "task.").items()}
    for kind, chosen in Bound.choices().items():
        if chosen.floor_of != settings.get("task.kind"):
            continue
        try:
            posed = _task(settings)
            bound = Bound.fill(kind, {"point": points[0]}, task)
            excess = np.array(_along(bound.model_dump_json(), points))
        except ValueError:
            continue  # not for these settings
        yield kind, excess + posed.noise_variance


def _task(settings: Mapping[str, Any]) -> "Task":
    from loopscale.tasks.base import Task

    return Task.model_validate(part_of(settings, "task."))


@cache
def _along(bound: str, points: tuple[int, ...]) -> tuple[float, ...]:
    """The values of a bound, which all trials of a task share."""
    from loopscale.theory.bounds.base import Bound

    return tuple(Bound.model_validate_json(bound).along("point", points).tolist())
