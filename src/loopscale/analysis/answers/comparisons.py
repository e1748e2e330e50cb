"""Comparisons of cells.

A cell is compared with the best cell of its task, with classical algorithms, and with a cell of another study.

Every part of the analysis compares here, and `stats.contrasts` gives the intervals. A comparison has the ratio of the
first error to the second (geometric means over replicates), its 95 % interval and a verdict: `less` if the whole
interval lies below 1, `more` if it lies above 1, else `undecided`.

The comparisons of one table are one family, and `stats.multiplicity` corrects their verdicts. The printed interval is
not corrected. The cells of a task are compared with the cell of lowest error, which the data choose. Their family is
therefore all pairs of cells of a task.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import pandas as pd

from loopscale.analysis.recorded.learning import on_plateau
from loopscale.analysis.recorded.results import (
    CellResult,
    Results,
    TrialResult,
    mean,
)
from loopscale.analysis.table import Interval
from loopscale.questions.runs import logs_by_seed
from loopscale.stats.contrasts import (
    ALPHA,
    Contrast,
    contrast,
    contrast_with_value,
    deciding_replicates,
    why_none,
)
from loopscale.stats.multiplicity import judge_claims
from loopscale.stats.verdict_rule import DIFFERENCE

ComparisonVerdict = Literal["less", "more", "level", "undecided", "not learnt", "no interval", "no answer"]
NO_INTERVAL: Literal["no interval"] = "no interval"
READERS_VERDICTS = {"less": "better", "more": "worse"}
"""Verdicts on the first error beside the second, as readers say them."""


@dataclass(frozen=True)
class Comparison:
    """A ratio of two errors."""

    first: str
    """The name of the first cell or algorithm."""
    second: str
    """The name of the second cell or algorithm."""
    ratio: float | None = None
    """The first error over the second error; None if one of the two has no answer yet."""
    low: float | None = None
    """The lower end of the 95 % interval of `ratio`; None without an interval."""
    high: float | None = None
    """The upper end of this interval."""
    verdict: ComparisonVerdict = "no answer"
    """The verdict, corrected for the number of comparisons of the table."""
    seeds: int = 0
    """The number of replicates behind the interval; 0 without an interval."""
    replicates: int | None = None
    """The number of replicates that would decide an undecided comparison, if the ratio stays the same. None above
    1,000, and for every other verdict."""
    why: str = ""
    """The reason if there is no interval."""
    plateau: str = ""
    """The runs on the plateau, in words, if the verdict is "not learnt"."""
    alone: ComparisonVerdict = "no answer"
    """The verdict of the interval, without correction."""
    adjusted_p: float | None = None
    """The p-value with the correction; None without an interval."""
    family: int = 1
    """The number of comparisons for which the verdict is corrected."""

    def to_dict(self) -> dict[str, Any]:
        """The ratio, its interval, both verdicts, and the number of replicates that would decide."""
        keys = {"word": "verdict"}  # keys of JSON that differ from the attribute
        names = ("ratio", "low", "high", "word", "alone", "adjusted_p", "replicates")
        return {name: getattr(self, keys.get(name, name)) for name in names}

    @property
    def reversed(self) -> "Comparison":
        """The second error over the first error."""
        words: dict[ComparisonVerdict, ComparisonVerdict] = {"less": "more", "more": "less"}
        ends = (self.ratio, self.high, self.low)
        ratio, low, high = (None if end is None else 1 / end if end else math.inf for end in ends)
        return replace(
            self,
            first=self.second,
            second=self.first,
            ratio=ratio,
            low=low,
            high=high,
            verdict=words.get(self.verdict, self.verdict),
            alone=words.get(self.alone, self.alone),
        )

    @property
    def verdict_in_words(self) -> str:
        """The corrected verdict for readers: `better` for a smaller error."""
        return READERS_VERDICTS.get(self.verdict, self.verdict)

    @property
    def uncorrected(self) -> str:
        """The verdict without correction, for readers."""
        return READERS_VERDICTS.get(self.alone, self.alone)

    @property
    def lost(self) -> bool:
        """True if the comparison is decided alone, but not as one of its family."""
        return self.verdict == "undecided" != self.alone

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


_Compared = tuple[Comparison, Contrast | None]
"""A comparison without its verdict, and its contrast."""


def _compared(
    labels: tuple[str, str],
    compared: Contrast | None,
    rows: Sequence[np.ndarray],
    runs: Sequence[TrialResult],
    of: str = "error",
) -> _Compared:
    """The comparison of two rows of logs, or of one row relative to a value."""
    plateau = on_plateau(runs, of)
    if compared is not None:
        known = Comparison(*labels, *compared.ratio(), seeds=compared.seeds, plateau=plateau)
        return known, compared
    means = [mean(row) for row in rows]
    difference = means[0] - (means[1] if len(means) > 1 else 0.0)
    if math.isnan(difference):
        return Comparison(*labels), None
    why = why_none(*rows) or "the noise is not known"
    ratio = float(np.exp(difference))
    return Comparison(*labels, ratio, verdict=NO_INTERVAL, why=why, plateau=plateau, alone=NO_INTERVAL), None


def _compared_cells(
    logs: np.ndarray, first: CellResult, second: CellResult, places: tuple[int, int], of: str = "error"
) -> _Compared:
    """The comparison of two cells, whose logs are the rows `places`."""
    labels, rows = (first.label, second.label), logs[list(places)]
    if not (~np.isnan(rows)).any(axis=1).all():
        return Comparison(*labels), None
    return _compared(labels, contrast(logs, *places), tuple(rows), (*first.runs, *second.runs), of)


def _judged(compared: Sequence[_Compared], unlisted: int = 0) -> list[Comparison]:
    """The verdicts of the comparisons of one table, as one family.

    Parameters
    ----------
    unlisted
        The number of comparisons that the data could have chosen for the table, but have not.
    """
    family = len(compared) + unlisted
    contrasts = [of_pair for _, of_pair in compared]
    verdicts = judge_claims(contrasts, [DIFFERENCE] * len(compared), unlisted=unlisted)
    judged = list[Comparison]()
    for (known, of_pair), verdict in zip(compared, verdicts, strict=True):
        needed = None
        if of_pair and verdict.verdict == "undecided":
            # The strictest level of the correction holds for all results of the other comparisons.
            needed = deciding_replicates(of_pair, level=1 - ALPHA / family)
        if of_pair:
            words = {"verdict": verdict.verdict, "alone": verdict.alone, "adjusted_p": verdict.adjusted_p}
            known = replace(known, **words, replicates=needed)
        if known.plateau:
            known = replace(known, verdict="not learnt", replicates=None)
        judged.append(replace(known, family=family))
    return judged


def correction_notes(comparisons: Iterable[Comparison], of_pairs: bool = False) -> list[str]:
    """Sentences for how many comparisons the verdicts of a table are corrected.

    Parameters
    ----------
    of_pairs
        True if the family is all pairs of cells, because the data choose the lowest cell.
    """
    listed = list(comparisons)
    family = listed[0].family if listed else 0
    reason = " (all pairs of cells, because the data choose the lowest cell)" if of_pairs else ""
    return family_notes(family, "comparisons" + reason, sum(compared.lost for compared in listed))


def family_notes(family: int, what: str, lost: int) -> list[str]:
    """Sentences for the size of a family, and for the number of verdicts that the correction withdraws."""
    notes = [f"Verdicts are corrected for {family:,} {what}."] if family > 1 else []
    return [*notes, f"Without the correction, {lost} more would be decided."] if lost else notes


def compare_with_lowest(results: Results) -> dict[str, Comparison]:
    """Every cell beside the cell of lowest error on its task, by the key of the cell.

    The cell of lowest error has no comparison. The family is all pairs of cells of the same task, because any cell
    could have been the lowest.
    """
    logs, compared, pairs = results.logs(), dict[str, _Compared](), 0
    for cells in results.tasks.values():
        lowest = lowest_first(cells)[0]
        pairs += len(cells) * (len(cells) - 1) // 2
        compared |= {
            cell.key: _compared_cells(logs, cell, lowest, (cell.index, lowest.index))
            for cell in cells
            if cell is not lowest
        }
    judged = _judged(list(compared.values()), unlisted=pairs - len(compared))
    return dict(zip(compared, judged, strict=True))


def lowest_first(cells: Iterable[CellResult]) -> list[CellResult]:
    """The cells by their mean error."""
    return sorted(cells, key=lambda cell: mean(cell.values_of("error")))


def compare_studies(
    results: tuple[Results, Results], pairs: Sequence[tuple[CellResult, CellResult]], of: str = "error"
) -> list[Comparison]:
    """Pairs of a cell of one study and a cell of another study, seed by seed, with the noise of both studies.

    The pairs are one family. A cell whose trials are in both studies counts once. Its ratio is 1, and has
    an interval if other cells tell the noise.
    """
    cells = {_identity(cell, of): cell for study in results for cell in study.cells}
    logs = logs_by_seed(list(cells.values()), lambda _, run: run[of] if run[of] > 0 else math.nan)
    places = {identity: place for place, identity in enumerate(cells)}
    compared = list[_Compared]()
    for first, second in pairs:
        rows = places[_identity(first, of)], places[_identity(second, of)]
        known, of_pair = _compared_cells(logs, first, second, rows, of)
        if of_pair and not math.isfinite(of_pair.half_width()):
            # The runs differ in nothing, and no other cell tells their noise.
            why = "the studies have the same runs"
            known = Comparison(
                known.first,
                known.second,
                known.ratio,
                verdict=NO_INTERVAL,
                why=why,
                plateau=known.plateau,
                alone=NO_INTERVAL,
            )
            of_pair = None
        compared.append((known, of_pair))
    return _judged(compared)


def compare_with_baselines(
    results: Results, rows: Sequence[tuple[CellResult, TrialResult, int | None]]
) -> list[Comparison]:
    """Cells and classical algorithms on the same prompts, after equally many steps, as one family.

    Each row has a cell, an algorithm and a number of steps, by default the cell's T. If the algorithm was recorded for
    fewer steps, its last step is used. The algorithm has no seed, so all noise is that of nets: by default of all
    cells, each at its own T. With a number of steps, only cells that were trained for at least that many loops count.
    If the number is beyond T, all cells that were evaluated that far count.
    """
    return _judged([_beside_baseline(results, *row) for row in rows])


def _beside_baseline(
    results: Results, cell: CellResult, baseline: TrialResult, step: int | None
) -> _Compared:
    if not cell.runs:
        return Comparison(cell.label, baseline.solver), None
    steps = step or cell.runs[0].loop
    beyond = step is not None and step > cell.runs[0].loop

    def error(other: CellResult, trial: TrialResult) -> float:
        reach = trial.curve.last_loop if beyond else trial.loop
        if other is not cell and (not other.replicated or (step is not None and reach < step)):
            return math.nan
        return trial.curve.error_after(step or trial.loop)

    value = baseline_error(baseline, steps)
    labels = (cell.label, f"{baseline.solver} after {steps} steps")
    if not (math.isfinite(value) and value > 0):
        return Comparison(*labels), None
    logs = results.logs() if step is None else results.table_by_seed(error)
    compared = contrast_with_value(logs, cell.index, value)
    return _compared(labels, compared, (logs[cell.index] - math.log(value),), cell.runs)


def ratios_to_solver(results: Results, solver: str) -> pd.DataFrame:
    """The ratio of every cell's error to the error of a classical algorithm, after each step up to T.

    The columns are cell, step, ratio, low, high and verdict: better, worse, undecided or not run. The rows are one
    family. The intervals are not corrected.
    """
    words = {"less": "better", "more": "worse", "no answer": "not run"}
    name = solver.replace("_", " ")
    beside = {
        cell: next((baseline for baseline in cell.baselines if baseline.solver == name), None)
        for cell in results.answered
    }
    places = [(cell, step) for cell in results.answered for step in range(1, cell.runs[0].loop + 1)]
    asked = [(cell, baseline, step) for cell, step in places if (baseline := beside[cell])]
    compared = iter(compare_with_baselines(results, asked))
    rows = []
    for cell, step in places:
        if beside[cell] is None:
            rows.append((cell.label, step, None, None, None, "not run"))
            continue
        row = next(compared)
        rows.append((cell.label, step, row.ratio, row.low, row.high, words.get(row.verdict, "undecided")))
    return pd.DataFrame(rows, columns=["cell", "step", "ratio", "low", "high", "verdict"])


def baseline_error(baseline: TrialResult, step: int) -> float:
    """The error of a classical algorithm after a step, or after its last step if that is earlier."""
    return baseline.curve.error_after(step) if baseline.curve else baseline["error"]


def _identity(cell: CellResult, of: str) -> tuple[tuple[str, float], ...]:
    """The runs of a cell with their values. Cells of two studies with equal runs are the same cell."""
    return tuple(sorted((run.trial, run[of]) for run in cell.runs))
