"""Is A better than B? Every part of the analysis asks here, and `stats.contrasts` answers.

The answer is a ratio of errors (geometric means over replicates), the first over the second, with a 95 % interval and
a word: `less` if the whole interval lies below 1, `more` if it lies above 1, else `undecided`.
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
        What is compared, in words.
    ratio
        The first error over the second; None if one of the two has no answer yet.
    low, high
        The 95 % interval; None without one.
    word
        The verdict.
    seeds
        The replicates that the interval rests on; 0 without one.
    replicates
        The number of replicates that would decide an undecided comparison if the ratio stayed; None above 1,000, and
        for every other word.
    why
        Why there is no interval.
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
        """What would decide an undecided comparison, as a sentence; empty for every other word."""
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
    return _compared((first.label, second.label), results.logs(of), first.index, second.index)


def compare_studies(
    results: tuple[Results, Results], first: CellResult, second: CellResult, of: str = "error"
) -> Comparison:
    """A cell of one study and a cell of another, seed by seed, with the noise of both studies.

    Trials that both studies share count once.
    """
    cells = {_identity(cell, of): cell for study in results for cell in study.cells}
    seeds = sorted({run.seed for cell in cells.values() for run in cell.runs if run.seed is not None})
    logs = np.array([_row(cell, seeds, of) for cell in cells.values()]).reshape(len(cells), len(seeds))
    places = [list(cells).index(_identity(cell, of)) for cell in (first, second)]
    return _compared((first.label, second.label), logs, *places)


def compare_with_baseline(
    results: Results,
    cell: CellResult,
    baseline: TrialResult,
    step: int | None = None,
    query: Query = "mean",
) -> Comparison:
    """A cell and a classical algorithm on the same prompts, after as many steps.

    By default both are taken at the cell's T, else after `step`. An algorithm recorded for fewer steps is taken after
    its last one. The algorithm has no seed. The noise is the noise of all cells, each at its own T. After a `step`, it
    is the noise of the cells that were trained for so many loops; beyond T, of the cells that were evaluated so far.
    """
    if not cell.runs:
        return Comparison(cell.label, baseline.solver)
    at = step or cell.runs[0].loop
    beyond = step is not None and step > cell.runs[0].loop

    def error(of: CellResult, trial: TrialResult) -> float:
        reach = trial.curve.last_loop if beyond else trial.loop
        if of is not cell and (not of.replicated or (step is not None and reach < step)):
            return math.nan
        return trial.curve.error_after(step or trial.loop, query)

    value = baseline_error(baseline, at, query)
    labels = (cell.label, f"{baseline.solver} after {at} steps")
    if not (math.isfinite(value) and value > 0):
        return Comparison(*labels)
    logs = results.logs() if step is None and query == "mean" else results.table_by_seed(error)
    return _judged(labels, contrast_with_value(logs, cell.index, value), logs[cell.index] - math.log(value))


def baseline_error(baseline: TrialResult, step: int, query: Query = "mean") -> float:
    """The error of a classical algorithm after a step, or after its last one."""
    return baseline.curve.error_after(step, query) if baseline.curve else baseline["error"]


def _identity(cell: CellResult, of: str) -> tuple[tuple[str, float], ...]:
    """The runs of a cell with their values. Cells of two studies with equal runs are one cell."""
    return tuple(sorted((run.trial, run[of]) for run in cell.runs))


def _row(cell: CellResult, seeds: list[int], of: str) -> list[float]:
    values = {run.seed: run[of] for run in cell.runs}
    return [math.log(value) if (value := values.get(seed, math.nan)) > 0 else math.nan for seed in seeds]


def _compared(labels: tuple[str, str], logs: np.ndarray, first: int, second: int) -> Comparison:
    pair = logs[[first, second]]
    if not (~np.isnan(pair)).any(axis=1).all():
        return Comparison(*labels)
    return _judged(labels, contrast(logs, first, second), *pair)


def _judged(labels: tuple[str, str], compared: Contrast | None, *rows: np.ndarray) -> Comparison:
    """A comparison of one row of logs with a value, or of two rows."""
    if compared is None:
        means = [mean(row) for row in rows]
        difference = means[0] - (means[1] if len(means) > 1 else 0.0)
        ratio = None if math.isnan(difference) else float(np.exp(difference))
        word: Word = "no answer" if ratio is None else "no interval"
        return Comparison(*labels, ratio, word=word, why=why_none(*rows) or "the noise is not known")
    ratio, low, high = compared.ratio()
    word = judge(*compared.interval())
    needed = deciding_replicates(compared) if word == "undecided" else None
    return Comparison(*labels, ratio, low, high, word, compared.seeds, needed)
