"""The measures of nets and of classical algorithms, and their noise over games.

`CURVE_MEASURES` are recorded after every loop and at every query. Measures of acting are means over games, and have a
standard error over games in the records. Tasks have measures of their own (`Task.measures`), and a study names further
ones (`evaluate.Evaluation.measures`).
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

from loopscale.stats.games import GameNoise

RegretLevel = Annotated[float, Field(gt=0, allow_inf_nan=False)] | None
"""The regret of a milestone."""


@dataclass(frozen=True)
class CurveMeasure:
    """One number from the values of a curve after one loop.

    Parameters
    ----------
    grid
        The values of the curve that count.
    query
        Whether the mean over all queries or the value of the last query counts.
    """

    grid: Literal["error", "regret"]
    query: Literal["mean", "last"] = "mean"

    @property
    def of_error(self) -> str:
        """The name of the same measure of the error, which stands in where a regret has no ratio."""
        return "error" if self.query == "mean" else "error_last"

    def at(self, values: NDArray[np.float64]) -> float:
        """The measure from the values at all queries, [points]; NaN marks a value that the records lack."""
        known = values[~np.isnan(values)]
        if self.query == "last":
            return float(values[-1])
        return float(known.mean()) if known.size else float("nan")


CURVE_MEASURES = {
    "error": CurveMeasure("error"),
    "error_last": CurveMeasure("error", "last"),
    "regret": CurveMeasure("regret"),
    "regret_last": CurveMeasure("regret", "last"),
}
"""The measures of curves by name."""
PLAYED, PLAYED_RATIO = "play_regret", "play_regret_ratio"
"""The regret of play, and its ratio to the regret of the task's reference policy on the same games."""


def game_noise(value: Callable[[str], float], of: str) -> GameNoise | None:
    """The noise of a measure of acting over games; None for other measures, and for records without it.

    Parameters
    ----------
    value
        A measure of one run by its name, NaN if the run has none.
    of
        The name of the measure.
    """
    if of in CURVE_MEASURES:
        return None
    own = _relative(value, of)
    if not np.isfinite(own):
        return None
    if of not in (PLAYED, PLAYED_RATIO):
        return GameNoise(own)
    reference = value(PLAYED) / value(PLAYED_RATIO) if value(PLAYED_RATIO) else float("nan")
    return GameNoise(own, _relative(value, PLAYED_RATIO), reference)


def _relative(value: Callable[[str], float], of: str) -> float:
    """The standard error of a measure over games, relative to the measure."""
    return value(f"{of}_sem") / abs(value(of)) if value(of) else float("nan")
