"""Exact references: errors that theory, or an algorithm in exact arithmetic, gives for a task, loop by loop.

They are drawn as they stand, with no constant fitted: the Bayes predictor (ridge), the best that any method of T
gradients can do, one trained layer of linear attention, and Newton's iteration from both of its starts.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
import pandas as pd

from loopscale.analysis.tables import settings_of
from loopscale.stats.intervals import Array

BOUNDS = ("bayes_ridge", "first_order_best", "one_step_best")
"""Of the excess at a point, at the bound's own height."""
SOLVERS = ({"kind": "newton", "start": "spectral"}, {"kind": "newton", "start": "frobenius"})
PROMPTS = 512
"""That the solvers are run on: theirs is a mean over prompts, of which a figure needs two digits."""


def references(
    row: pd.Series,
    loops: Sequence[int],
    bounds: Sequence[str] = BOUNDS,
    solvers: Sequence[Mapping[str, Any]] = SOLVERS,
) -> Iterator[tuple[str, Array]]:
    """The error on a trial's task after each of these loops, as the mean over queries, under the reference's name.

    What does not hold for the task is left out. Over the target's variance, as every `error` is.
    """
    from loopscale.tasks.base import Task

    settings = settings_of(row)
    fields = {
        path.removeprefix("task."): value for path, value in settings.items() if path.startswith("task.")
    }
    task = Task.model_validate(fields)
    for kind in bounds:
        try:
            values = _bound(kind, task, loops)
        except ValueError:
            continue  # not for this task
        limit = ", for large d and N" if _claim(kind) == "~" else ", exact"
        yield kind.replace("_", " ") + limit, values
    for solver in solvers:
        errors = _solver(repr(sorted(solver.items())), task.model_dump_json(), max(loops))
        if errors is not None:
            rest = ", ".join(f"{name} {value}" for name, value in solver.items() if name != "kind")
            name = str(solver["kind"]).replace("_", " ") + (f" ({rest})" if rest else "")
            yield name, errors[np.asarray(loops) - 1]


def _claim(kind: str) -> str:
    from loopscale.theory.bounds.base import Bound

    return Bound.choices()[kind].claim


def _bound(kind: str, task: Any, loops: Sequence[int]) -> Array:
    from loopscale.theory.bounds.base import Bound

    trial = {f"task.{name}": value for name, value in task.model_dump(mode="json").items()}
    filled = Bound.fill(kind, {"point": 1}, trial)
    nothing = (
        task.variance - task.noise_variance
    )  # what a query costs that has seen no pair, whatever the method
    each = [{"loops": loop} for loop in loops] if "loops" in filled.settings() else [{}]
    raw = [
        np.mean([nothing, *(filled.at(point=point, **at).value() for point in range(1, task.points))])
        for at in each
    ]
    return np.broadcast_to((np.array(raw) + task.noise_variance) / task.variance, len(loops))


@cache
def _solver(solver: str, task: str, steps: int) -> Array | None:
    """The mean error over queries after every step; `None` if the solver is not for the task."""
    from ast import literal_eval

    from loopscale.core.seeds import stream
    from loopscale.evaluate import canonical, error_curve
    from loopscale.solvers.base import Solver
    from loopscale.tasks.base import Task

    chosen, posed = Solver.model_validate(dict(literal_eval(solver))), Task.model_validate_json(task)
    if not chosen.accepts(posed.sample(1, stream("problem")).problem):
        return None
    errors = error_curve(chosen, posed, steps, stream("references", canonical(posed)), PROMPTS)
    return errors.mean(1).double().numpy()
