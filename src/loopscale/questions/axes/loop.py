"""The loops or layers of a net: every run has a curve along them."""

import numpy as np
from typing_extensions import override

from loopscale.questions.axes.base import Array, Counts, LawAxis
from loopscale.questions.measures import CurveMeasure


class Loop(LawAxis, kind="loop"):
    """The trained loops or layers 1 .. T."""

    title = "loop (count)"
    curve = True
    rate_form = "exponential"
    not_held_out = "each run is a whole curve along loop"

    @override
    def along_curve(
        self, loops: Counts, points: Counts, grid: Array, trained: int, measure: CurveMeasure
    ) -> tuple[Array, Array]:
        kept = loops <= trained
        return loops[kept].astype(np.float64), np.array([measure.at(row) for row in grid[kept]])
