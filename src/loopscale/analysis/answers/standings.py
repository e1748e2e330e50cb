"""Standings: every cell beside the classical algorithms on its task."""

import math
from dataclasses import asdict, dataclass
from typing import Any

from loopscale.analysis.answers.comparisons import Comparison, baseline_error, compare_with_baseline
from loopscale.analysis.results import Results, mean
from loopscale.analysis.table import Column

EXACT = 1e-9
"""Algorithms run in float64. Their errors below this value are rounding."""


@dataclass(frozen=True)
class Standing:
    """A cell beside a classical algorithm on the same prompts, after the same number of steps.

    Attributes
    ----------
    loop
        The number of steps.
    error, baseline_error
        The mean errors of the cell and of the algorithm.
    comparison
        The ratio of the cell's geometric mean error to the algorithm's error. The interval describes the noise of
        training only: both errors come from the same prompts, and an algorithm has no seed.
    """

    cell: str
    label: str
    baseline: str
    loop: int
    error: float
    baseline_error: float
    comparison: Comparison

    @property
    def ratio(self) -> float:
        return self.comparison.ratio or math.nan

    @property
    def low(self) -> float | None:
        return self.comparison.low

    @property
    def high(self) -> float | None:
        return self.comparison.high

    @property
    def word(self) -> str:
        return "exact" if self.exact else self.comparison.word

    @property
    def exact(self) -> bool:
        """True if the algorithm's error is rounding, so that a ratio has no meaning."""
        return self.baseline_error < EXACT

    def to_dict(self) -> dict[str, Any]:
        record = asdict(self)
        compared = record.pop("comparison")
        return record | {name: compared[name] for name in ("ratio", "low", "high", "word", "replicates")}


COLUMNS: list[Column[Standing]] = [
    Column.attribute("label", "cell"),
    Column.attribute("baseline", "algorithm"),
    Column.attribute("loop", "steps"),
    Column.attribute("error", "error of the net", "1 = predicting nothing"),
    Column.attribute("baseline_error", "error of the algorithm", "1 = predicting nothing"),
    Column(("ratio",), "ratio", lambda standing: None if standing.exact else standing.ratio),
    Column.interval("low", "high"),
    Column.attribute("word", "verdict"),
]


def standings(results: Results) -> list[Standing]:
    """Every cell beside every classical algorithm that ran on its task.

    The algorithm's error is taken after as many steps as the cell has loops or layers, or after its last recorded step.
    """
    rows = []
    for cell in results.cells:
        if not cell.runs:
            continue
        loop, error = cell.runs[0].loop, mean(cell.values_of("error"))
        for baseline in cell.baselines:
            compared = compare_with_baseline(results, cell, baseline)
            if compared.ratio is not None:
                steps = min(loop, baseline.curve.last_loop) if baseline.curve else loop
                errors = (error, baseline_error(baseline, loop))
                rows.append(Standing(cell.key, cell.label, baseline.solver, steps, *errors, compared))
    return rows
