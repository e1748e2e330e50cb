"""Floors: the least possible error on a task, by the number of pairs seen."""

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loopscale.analysis.results import Array, TrialResult, part_of
from loopscale.tasks.base import Task
from loopscale.theory.bounds.base import Bound


def floors(trial: TrialResult) -> Iterator[tuple[str, NDArray[np.int64], Array]]:
    """The floors of a trial's task, from every bound that states one.

    Yields
    ------
    kind, points, errors
        The bound's kind; pairs seen before the query, [points]; the least error over the target's variance, [points].
    """
    curve = trial.curve
    kept = (curve.error[0] > 0) if curve else np.empty(0, bool)
    if kept.any():
        points = curve.points[kept]
        scale = float((curve.raw[0][kept] / curve.error[0][kept]).mean())
        for kind, errors in raw_floors(trial.task, tuple(points.tolist())):
            yield kind, points, errors / scale


def raw_floors(settings: Mapping[str, Any], points: tuple[int, ...]) -> Iterator[tuple[str, Array]]:
    """The least raw error at each query, [points], from every bound that states one for this task.

    Parameters
    ----------
    settings
        The settings of the task, by dotted path.
    """
    if settings.get("task.active") is not None:  # the bound assumes that all coordinates are active
        return
    task = {f"task.{name}": value for name, value in part_of(settings, "task.").items()}
    for kind, bound_class in Bound.choices().items():
        if bound_class.floor_of != settings.get("task.kind"):
            continue
        try:
            noise = task_of(settings).noise_variance
            bound = Bound.fill(kind, {"point": points[0]}, task)
            excess = np.array(_along_points(bound.model_dump_json(), points))
        except ValueError:
            continue  # the bound does not hold for these settings
        yield kind, excess + noise


def task_of(settings: Mapping[str, Any]) -> Task:
    """The task of these settings. Raises ValueError for settings of an older version."""
    return Task.model_validate(part_of(settings, "task."))


@cache
def _along_points(bound: str, points: tuple[int, ...]) -> tuple[float, ...]:
    """The values of a bound, given as JSON. The cache serves all trials of a task."""
    return tuple(Bound.model_validate_json(bound).along("point", points).tolist())
