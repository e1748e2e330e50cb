"""The pairs seen before the query: every run has a curve along them."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
from typing_extensions import override

from loopscale.questions.axes.base import Array, ErrorCurve, LawAxis
from loopscale.questions.measures import CurveMeasure

if TYPE_CHECKING:
    from loopscale.tasks.base import Task
    from loopscale.training.trial import Trial


class Point(LawAxis, kind="point"):
    """The pairs before the query, at loop T, after at least one pair."""

    title = "pairs seen before the query (count)"
    curve = True
    at_query = True
    rate_form = "power"
    not_held_out = "each run is a whole curve along point"

    @override
    def planned(self, trial: "Trial", task: "Task", value: Callable[[str], object]) -> Sequence[float]:
        return [float(seen) for seen in task.seen if seen > 0]

    @override
    def along_curve(
        self, curve: ErrorCurve, grid: Array, trained: int, measure: CurveMeasure
    ) -> tuple[Array, Array]:
        kept = curve.points > 0
        row = grid[curve.row(trained)] if len(grid) else np.empty(0)
        return curve.points[kept].astype(np.float64), row[kept]
