"""Claims of papers about nets, tested on a study: a ratio of errors with its interval, and a verdict.

A claim says that a cell has less error than another cell, or than a classical algorithm. The claim holds if the whole
95 % interval of the ratio lies below 1. It does not hold if the interval lies above 1. Otherwise it is undecided.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import pandas as pd

from loopscale.analysis.answers.comparisons import Comparison, compare_cells, compare_with_baseline
from loopscale.analysis.results import CellResult, Query, Results, mean, settings_label
from loopscale.analysis.table import Column, frame
from loopscale.stats.contrasts import contrast_with_value

STAYS_WITHIN = 1.25
"""Beyond T an error stays if the interval of its change lies within this factor."""
Word = Literal["holds", "does not hold", "undecided", "not run"]
VERDICTS: dict[str, Word] = {"less": "holds", "more": "does not hold", "no answer": "not run"}


@dataclass(frozen=True)
class Claim:
    """A statement and the comparison that tests it."""

    text: str
    comparison: Comparison

    @property
    def word(self) -> Word:
        """The verdict."""
        return VERDICTS.get(self.comparison.word, "undecided")

    @property
    def sentence(self) -> str:
        """The claim with its verdict and the ratio, in words."""
        if self.comparison.ratio is None:
            return f"{self.text}: not run."
        first, second = self.comparison.first, self.comparison.second
        verdict = f"{self.text}: {self.word}. The error of {first} is {self.comparison.span} times that of {second}."
        return f"{verdict} {self.comparison.deciding}".strip()


COLUMNS: list[Column[Claim]] = [
    Column(("claim",), "claim", lambda claim: claim.text),
    Column(("ratio",), "ratio", lambda claim: claim.comparison.ratio),
    Column(("low", "high"), "95 % interval", lambda claim: claim.comparison.interval),
    Column(("verdict",), "verdict", lambda claim: claim.word),
    Column(("decided by",), "decided by", lambda claim: claim.comparison.replicates),
    Column(("of",), "of", lambda claim: claim.comparison.first),
    Column(("over",), "over", lambda claim: claim.comparison.second),
]


def better(
    results: Results, text: str, first: Mapping[str, Any], second: Mapping[str, Any], of: str = "error"
) -> Claim:
    """The claim that the first cell has less error at T than the second, or less of another measure `of`.

    Parameters
    ----------
    first, second
        Scientific settings by dotted path. Each must name one cell.

    Raises
    ------
    ValueError
        If settings do not name one cell, or a trial lacks the measure.
    """
    compared = compare_cells(results, results.cell(first), results.cell(second), of)
    return Claim(text, replace(compared, first=settings_label(first), second=settings_label(second)))


def beats(
    results: Results,
    text: str,
    settings: Mapping[str, Any],
    solver: str,
    step: int | None = None,
    query: Query = "mean",
) -> Claim:
    """The claim that a cell has less error than a classical algorithm after as many steps.

    Both are compared after `step`, by default after T. Raises ValueError for settings that do not name one cell.
    """
    cell, name = results.cell(settings), solver.replace("_", " ")
    baseline = next((baseline for baseline in cell.baselines if baseline.solver == name), None)
    if baseline is None:
        return Claim(text, Comparison(settings_label(settings), name))
    compared = compare_with_baseline(results, cell, baseline, step, query)
    return Claim(text, replace(compared, first=settings_label(settings)))


def claims_table(claims: Sequence[Claim]) -> pd.DataFrame:
    """One row for each claim: the ratio, its interval, the verdict, and how many replicates would decide the claim."""
    kinds = {"ratio": float, "low": float, "high": float, "decided by": "Int64"}
    return frame(COLUMNS, claims).astype(kinds)


def beyond_trained_loops(results: Results, times: int | float = 5) -> pd.DataFrame:
    """The change of every looped cell's error if the net runs `times` as many loops as in training.

    Each cell has one row: the error `at T`, the number of `loops`, the error `there`, the ratio of the two errors with
    its interval, and the verdict (stays, grows, falls or undecided). `loops` is smaller if the study evaluated fewer
    loops. If a replicate overflows, the ratio is infinite and the error grows.
    """
    looped = [cell for cell in results.cells if cell.curves and "training.loops" in cell.runs[0].settings]
    pairs = [_before_and_after(cell, times) for cell in looped]
    seeds = max((len(before) for before, *_ in pairs), default=0)
    logs = np.full((len(pairs), seeds), np.nan)
    for place, (before, after, _) in enumerate(pairs):
        logs[place, : len(before)] = np.log(after / before)
    rows = []
    for place, (cell, (before, after, loops)) in enumerate(zip(looped, pairs, strict=True)):
        ratio = math.exp(mean(logs[place])) if np.isfinite(after).all() else math.inf
        change = contrast_with_value(logs, place, 1.0) if math.isfinite(ratio) else None
        low, high = change.ratio()[1:] if change else (None, None)
        verdict = _course(ratio, low, high)
        rows.append((cell.label, mean(before), loops, mean(after), ratio, low, high, verdict))
    columns = ["cell", "at T", "loops", "there", "ratio", "low", "high", "verdict"]
    return pd.DataFrame(rows, columns=columns).set_index("cell")


def ratios_to_solver(results: Results, solver: str) -> pd.DataFrame:
    """The ratio of every cell's error to the error of a classical algorithm, after each step up to T.

    The columns are cell, step, ratio, low, high and verdict: better, worse or undecided.
    """
    words = {"holds": "better", "does not hold": "worse"}
    rows = []
    for cell in results.answered:
        for step in range(1, cell.runs[0].loop + 1):
            claim = beats(results, "", cell.values, solver, step)
            compared = claim.comparison
            verdict = words.get(claim.word, claim.word)
            rows.append((cell.label, step, compared.ratio, compared.low, compared.high, verdict))
    return pd.DataFrame(rows, columns=["cell", "step", "ratio", "low", "high", "verdict"])


def _before_and_after(cell: CellResult, times: int | float) -> tuple[np.ndarray, np.ndarray, int]:
    """The replicates' errors at T, their errors after the last further loop, and the number of that loop."""
    trained = int(cell.runs[0].settings["training.loops"])
    curves = cell.curves
    last = min(round(times * trained), curves[0].last_loop)
    before = np.array([curve.error_after(trained) for curve in curves])
    after = np.array([curve.error_after(last) for curve in curves])
    return before, np.where(np.isnan(after), np.inf, after), last


def _course(ratio: float, low: float | None, high: float | None) -> str:
    if math.isinf(ratio):
        return "grows"
    if low is None or high is None:
        return "undecided"
    if low > 1 / STAYS_WITHIN and high < STAYS_WITHIN:
        return "stays"
    return "grows" if low > 1 else "falls" if high < 1 else "undecided"
