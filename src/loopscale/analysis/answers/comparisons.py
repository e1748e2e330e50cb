"""Comparisons of two errors. Every part of the analysis compares here, and `stats.contrasts` gives the intervals.

A comparison has the ratio of the first error to the second (geometric means over replicates), its 95 % interval and a
verdict: `less` if the whole interval lies below 1, `more` if it lies above 1, else `undecided`.
"""

import math
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np

from loopscale.analysis.results import CellResult, Query, Results, TrialResult, mean
from loopscale.analysis.table import Interval
from loopscale.stats.contrasts import (
    Contrast,
    contrast,
    contrast_with_value,
    deciding_replicates,
    judge,
    why_none,
)

Word = Literal["less", "more", "level", "undecided", "no interval", "no answer"]


@dataclass(frozen=True)
class Comparison:
    """A ratio of two errors.

    Attributes
    ----------
    first, second
        The names of what is compared.
    ratio
        The first error over the second; None if one of the two has no answer yet.
    low, high
        The 95 % interval; None if there is no interval.
    word
        The verdict.
    seeds
        The number of replicates behind the interval; 0 without an interval.
    replicates
        The number of replicates that would decide an undecided comparison, if the ratio stays the same. None above
        1,000, and for every other verdict.
    why
        The reason if there is no interval.
    """

    first: str
    second: str
    ratio: float | None = None
    low: float | None = None
    high: float | None = None
    word: Word = "no answer"
    seeds: int = 0
    replicates: int | None = None
    why: str = ""

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @property
    def interval(self) -> Interval | None:
        return Interval.of(self.low, self.high)

    @property
    def span(self) -> str:
        """The ratio with its interval, in words."""
        if self.ratio is None:
            return "no ratio: too little has finished"
        if self.low is None or self.high is None:
            return f"{self.ratio:.3g} (no interval: {self.why})"
        return f"{self.ratio:.3g} (95 % interval {self.low:.3g} to {self.high:.3g})"

    @property
    def deciding(self) -> str:
        """The number of replicates that would decide an undecided comparison, as a sentence. Otherwise empty."""
        if self.word != "undecided":
            return ""
        count = f"About {self.replicates:,}" if self.replicates else "More than 1,000"
        return f"{count} replicates would decide it."


def compare_cells(results: Results, first: CellResult, second: CellResult, of: str = "error") -> Comparison:
    """Two cells of one study, seed by seed.

    Raises ValueError if a run of the two cells lacks the measure `of`.
    """
    for cell in (first, second):
        if np.isnan(cell.values_of(of)).any():
            raise ValueError(f"{of} has no ratio: some trials of {results.name} have no {of} above 0")
    return _compare_rows((first.label, second.label), results.logs(of), first.index, second.index)


def compare_studies(
    results: tuple[Results, Results], first: CellResult, second: CellResult, of: str = "error"
) -> Comparison:
    """A cell of one study and a cell of another study, seed by seed, with the noise of both studies.

    A cell whose trials are in both studies counts once.
    """
    cells = {_identity(cell, of): cell for study in results for cell in study.cells}
    seeds = sorted({run.seed for cell in cells.values() for run in cell.runs if run.seed is not None})
    logs = np.array([_row(cell, seeds, of) for cell in cells.values()]).reshape(len(cells), len(seeds))
    places = [list(cells).index(_identity(cell, of)) for cell in (first, second)]
    return _compare_rows((first.label, second.label), logs, *places)


def compare_with_baseline(
    results: Results,
    cell: CellResult,
    baseline: TrialResult,
    step: int | None = None,
    query: Query = "mean",
) -> Comparison:
    """A cell and a classical algorithm on the same prompts, after equally many steps.

    Both errors are those after `step`, by default after the cell's T. If the algorithm was recorded for fewer steps,
    its last step is used. The algorithm has no seed, so all noise is that of nets: by default of all cells, each at its
    own T. With `step`, only cells that were trained for at least that many loops count. If `step` is beyond T, all
    cells that were evaluated that far count.
    """
    if not cell.runs:
        return Comparison(cell.label, baseline.solver)
    steps = step or cell.runs[0].loop
    beyond = step is not None and step > cell.runs[0].loop

    def error(other: CellResult, trial: TrialResult) -> float:
        reach = trial.curve.last_loop if beyond else trial.loop
        if other is not cell and (not other.replicated or (step is not None and reach < step)):
            return math.nan
        return trial.curve.error_after(step or trial.loop, query)

    value = baseline_error(baseline, steps, query)
    labels = (cell.label, f"{baseline.solver} after {steps} steps")
    if not (math.isfinite(value) and value > 0):
        return Comparison(*labels)
    logs = results.logs() if step is None and query == "mean" else results.table_by_seed(error)
    return _comparison(
        labels, contrast_with_value(logs, cell.index, value), logs[cell.index] - math.log(value)
    )


def baseline_error(baseline: TrialResult, step: int, query: Query = "mean") -> float:
    """The error of a classical algorithm after a step, or after its last step if that is earlier."""
    return baseline.curve.error_after(step, query) if baseline.curve else baseline["error"]


def _identity(cell: CellResult, of: str) -> tuple[tuple[str, float], ...]:
    """The runs of a cell with their values. Cells of two studies with equal runs are the same cell."""
    return tuple(sorted((run.trial, run[of]) for run in cell.runs))


def _row(cell: CellResult, seeds: list[int], of: str) -> list[float]:
    values = {run.seed: run[of] for run in cell.runs}
    return [math.log(value) if (value := values.get(seed, math.nan)) > 0 else math.nan for seed in seeds]


def _compare_rows(labels: tuple[str, str], logs: np.ndarray, first: int, second: int) -> Comparison:
    pair = logs[[first, second]]
    if not (~np.isnan(pair)).any(axis=1).all():
        return Comparison(*labels)
    return _comparison(labels, contrast(logs, first, second), *pair)


def _comparison(labels: tuple[str, str], contrasted: Contrast | None, *rows: np.ndarray) -> Comparison:
    """The comparison that a contrast of two rows gives, or of one row relative to a value."""
    if contrasted is None:
        means = [mean(row) for row in rows]
        difference = means[0] - (means[1] if len(means) > 1 else 0.0)
        ratio = None if math.isnan(difference) else float(np.exp(difference))
        word: Word = "no answer" if ratio is None else "no interval"
        return Comparison(*labels, ratio, word=word, why=why_none(*rows) or "the noise is not known")
    ratio, low, high = contrasted.ratio()
    word = judge(*contrasted.interval())
    needed = deciding_replicates(contrasted) if word == "undecided" else None
    return Comparison(*labels, ratio, low, high, word, contrasted.seeds, needed)
