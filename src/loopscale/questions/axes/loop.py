"""The loops or layers of a net: every run has a curve along them."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
from typing_extensions import override

from loopscale.questions.axes.base import Array, ErrorCurve, LawAxis
from loopscale.questions.measures import CurveMeasure

if TYPE_CHECKING:
    from loopscale.tasks.base import Task
    from loopscale.training.trial import Trial


class Loop(LawAxis, kind="loop"):
    """The trained loops or layers 1 .. T."""

    title = "loop (count)"
    curve = True
    rate_form = "exponential"
    not_held_out = "each run is a whole curve along loop"

    @override
    def planned(self, trial: "Trial", task: "Task", value: Callable[[str], object]) -> Sequence[float]:
        return [float(loop) for loop in range(1, trial.steps_per_prompt + 1)]

    @override
    def along_curve(
        self, curve: ErrorCurve, grid: Array, trained: int, measure: CurveMeasure
    ) -> tuple[Array, Array]:
        kept = curve.loops <= trained
        return curve.loops[kept].astype(np.float64), np.array([measure.at(row) for row in grid[kept]])
