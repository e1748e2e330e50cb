"""Exact references of a task: the least possible error (floors), and errors without a fitted constant, loop by loop.

References are the Bayes predictor (ridge), the best method of T gradients, one trained layer of linear attention, and
Newton's iteration from both of its starts. Theory, or an algorithm in float64, gives their errors.
"""

from ast import literal_eval
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from loopscale.analysis.recorded.results import Array, TrialResult, part_of
from loopscale.core.plugins import MissingPlugin
from loopscale.core.seeds import stream
from loopscale.evaluate import canonical, error_curve
from loopscale.solvers.base import Solver
from loopscale.tasks.base import Task
from loopscale.theory.bounds.base import Bound

BAYES = "bayes_ridge"
BOUNDS = (BAYES, "first_order_best", "one_step_best")
"""Bounds on the excess error at a point, without hidden constants."""
SOLVERS = ({"kind": "newton", "start": "spectral"}, {"kind": "newton", "start": "frobenius"})
REFERENCE_PROMPTS = 512
"""The number of prompts for the solvers. A figure needs two digits of the mean error."""


def references(
    trial: TrialResult,
    loops: Sequence[int],
    bounds: Sequence[str] = BOUNDS,
    solvers: Sequence[Mapping[str, Any]] = SOLVERS,
) -> Iterator[tuple[str, Array]]:
    """The errors of references on a trial's task after each of these loops.

    Errors are means over queries, divided by the target's variance. References that do not hold for the task are left
    out.

    Yields
    ------
    name, errors
        The name of the reference, and its errors [loops].
    """
    task = Task.model_validate(part_of(trial.settings, "task."))
    for kind in bounds:
        try:
            errors = _bound(kind, task, loops)
        except ValueError:
            continue  # the bound does not hold for this task
        limit = ", for large d and N" if Bound.choices()[kind].claim == "~" else ", exact"
        yield kind.replace("_", " ") + limit, errors
    for solver in solvers:
        errors = _solver(repr(sorted(solver.items())), task.model_dump_json(), max(loops))
        if errors is not None:
            options = ", ".join(f"{name} {value}" for name, value in solver.items() if name != "kind")
            name = str(solver["kind"]).replace("_", " ") + (f" ({options})" if options else "")
            yield name, errors[np.asarray(loops) - 1]


def _bound(kind: str, task: Any, loops: Sequence[int]) -> Array:
    trial = {f"task.{name}": value for name, value in task.model_dump(mode="json").items()}
    bound = Bound.fill(kind, {"point": 1}, trial)
    without_pairs = task.variance - task.noise_variance  # the excess of a query that no pair precedes
    places = [{"loops": loop} for loop in loops] if "loops" in bound.settings() else [{}]
    excess = [
        np.mean([without_pairs, *(bound.at(point=point, **place).value() for point in range(1, task.points))])
        for place in places
    ]
    errors = (np.array(excess, dtype=np.float64) + task.noise_variance) / task.variance
    return np.broadcast_to(errors, len(loops))


@cache
def _solver(solver: str, task: str, steps: int) -> Array | None:
    """The mean error over queries after every step; None if the solver does not accept the task."""
    algorithm = Solver.model_validate(dict(literal_eval(solver)))
    prompts = Task.model_validate_json(task)
    if not algorithm.accepts(prompts.sample(1, stream("problem")).problem):
        return None
    errors = error_curve(
        algorithm, prompts, steps, stream("references", canonical(prompts)), REFERENCE_PROMPTS
    )
    return errors.mean(1).double().numpy()


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
        except (ValueError, MissingPlugin):
            continue  # the bound does not hold for these settings
        yield kind, excess + noise


def task_of(settings: Mapping[str, Any]) -> Task:
    """The task of these settings. Raises ValueError for settings of an older version."""
    return Task.model_validate(part_of(settings, "task."))


@cache
def _along_points(bound: str, points: tuple[int, ...]) -> tuple[float, ...]:
    """The values of a bound, given as JSON. The cache serves all trials of a task."""
    return tuple(Bound.model_validate_json(bound).along("point", points).tolist())
