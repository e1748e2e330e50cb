"""The pairs seen before the query: every run has a curve along them."""

import numpy as np
from typing_extensions import override

from loopscale.questions.axes.base import Array, Counts, LawAxis
from loopscale.questions.measures import CurveMeasure


class Point(LawAxis, kind="point"):
    """The pairs before the query, at loop T, after at least one pair."""

    title = "pairs seen before the query (count)"
    curve = True
    at_query = True
    rate_form = "power"
    not_held_out = "each run is a whole curve along point"

    @override
    def along_curve(
        self, loops: Counts, points: Counts, grid: Array, trained: int, measure: CurveMeasure
    ) -> tuple[Array, Array]:
        kept = points > 0
        row = grid[np.searchsorted(loops, min(trained, loops[-1]))] if len(loops) else np.empty(0)
        return points[kept].astype(np.float64), row[kept]
