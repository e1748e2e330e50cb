"""The measures that are recorded after every loop and at every query, for nets and for classical algorithms."""

from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import Field

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
