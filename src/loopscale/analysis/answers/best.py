"""The best configuration of every cell."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from loopscale.analysis.answers.comparisons import Comparison, compare_cells
from loopscale.analysis.results import CellResult, Results, mean, settings_key
from loopscale.analysis.table import Column
from loopscale.stats.contrasts import mean_interval

WITHOUT_ANSWER = ("diverged", "out_of_memory", "failed", "lost")
"""Outcomes of trials that leave no error."""


@dataclass(frozen=True)
class Best:
    """The answer of one cell.

    Attributes
    ----------
    error, error_last
        Means over the replicates, or the values of the best tuning trial; None if nothing has finished.
    error_low, error_high
        The 95 % interval of `error`; None with fewer than two replicates.
    trial
        The replicate of the first seed, whatever its error, or the best tuning trial.
    state
        How far the cell is: `3 of 8 tuned`, `2 of 3 replicated`.
    front
        True if no other point of the cell has both less error and fewer FLOPs.
    against_best
        The comparison with the cell of lowest error on the same task; None for that cell itself.
    """

    cell: str
    label: str
    settings: Mapping[str, Any]
    error: float | None = None
    error_low: float | None = None
    error_high: float | None = None
    error_last: float | None = None
    replicates: int = 0
    trial: str | None = None
    state: str = ""
    flops: float | None = None
    front: bool = False
    against_best: Comparison | None = None

    def to_dict(self) -> dict[str, Any]:
        record = asdict(self)
        compared = record.pop("against_best") or {}
        names = {"ratio": "ratio", "ratio_low": "low", "ratio_high": "high", "verdict": "word"}
        return record | {name: compared.get(field) for name, field in names.items()}

    @property
    def words(self) -> str:
        """The error with its interval, in words."""
        return with_interval(self.error, self.error_low, self.error_high)


def best_columns(results: Results) -> list[Column[Best]]:
    """The columns of the table of best configurations, with one for every tuned setting."""
    return [
        *_cell_and_settings(results),
        Column.attribute("error", unit="1 = predicting nothing"),
        Column.interval("error_low", "error_high"),
        Column.attribute("error_last", "last query", unit="1 = predicting nothing"),
        Column(("ratio",), "over the lowest", lambda best: best.against_best and best.against_best.ratio),
        Column(
            ("ratio_low", "ratio_high"),
            "95 % interval",
            lambda best: best.against_best and best.against_best.interval,
        ),
        Column(("verdict",), "verdict", lambda best: best.against_best and best.against_best.word),
        Column.attribute("replicates", "runs"),
        Column.attribute("state"),
        Column.attribute("trial"),
    ]


def front_columns(results: Results) -> list[Column[Best]]:
    """The columns of the table of points that no other point beats."""
    return [
        *_cell_and_settings(results),
        Column.attribute("error", unit="1 = predicting nothing"),
        Column.attribute("flops", "FLOPs"),
        Column.attribute("trial"),
    ]


def _cell_and_settings(results: Results) -> list[Column[Best]]:
    return [
        Column(("label",), "cell", lambda best: best.label),
        *(Column((path,), path, lambda best, path=path: best.settings.get(path)) for path in results.tuned),
    ]


def best(results: Results) -> list[Best]:
    """One answer for each cell that is in the study now, in the study's order."""
    logs = results.logs()
    fronts = {settings_key(point.settings) for point in front(results)} if results.two_objectives else set()
    lowest = {
        cell.key: min(cells, key=lambda cell: mean(cell.values_of("error")))
        for cells in results.tasks.values()
        for cell in cells
    }
    return [_answer(results, cell, logs, fronts, lowest.get(cell.key)) for cell in results.cells]


def front(results: Results) -> list[Best]:
    """The points of every cell that no other point of the cell beats in both error and FLOPs, the cheapest first."""
    points = []
    for cell in results.cells:
        lowest = np.inf
        finished = [trial for trial in cell.tuning if trial.finished and np.isfinite(trial["flops"])]
        for trial in sorted(finished, key=lambda trial: (trial["flops"], trial["error"])):
            if trial["error"] < lowest:
                lowest = trial["error"]
                points.append(
                    Best(
                        cell.key,
                        cell.label,
                        trial.settings,
                        error=trial["error"],
                        error_last=_finite(trial["error_last"]),
                        trial=trial.trial,
                        state="on the front",
                        flops=trial["flops"],
                        front=True,
                    )
                )
    return points


def with_interval(value: float | None, low: float | None, high: float | None) -> str:
    """A value with its interval in words. If there is no interval, the words give the reason."""
    if low is None or high is None:
        return f"{number(value)} (no interval: fewer than two replicates)"
    return f"{number(value)} (95 % interval {number(low)} to {number(high)})"


def number(value: float | None) -> str:
    """A number with three digits."""
    if value is None or value != value:
        return "–"
    return "unbounded" if value in (float("inf"), float("-inf")) else f"{value:.3g}"


def _answer(
    results: Results, cell: CellResult, logs: np.ndarray, fronts: set[str], lowest: CellResult | None
) -> Best:
    state = _state(results, cell)
    if not cell.runs:
        return Best(cell.key, cell.label, dict(cell.values), state=state)
    first = cell.runs[0]
    interval = mean_interval(logs, cell.index) if cell.replicated else None
    low, high = interval or (None, None)
    return Best(
        cell=cell.key,
        label=cell.label,
        settings=first.settings,
        error=mean(cell.values_of("error")),
        error_low=low,
        error_high=high,
        error_last=_finite(mean(cell.values_of("error_last"))),
        replicates=len(cell.runs) if cell.replicated else 0,
        trial=first.trial,
        state=state,
        flops=_finite(first["flops"]),
        front=settings_key(first.settings) in fronts,
        against_best=compare_cells(results, cell, lowest) if lowest and lowest is not cell else None,
    )


def _state(results: Results, cell: CellResult) -> str:
    if cell.replicates:
        lost = sum(trial.outcome in WITHOUT_ANSWER for trial in cell.replicates)
        answered = len(cell.runs) if cell.replicated else 0
        state = f"{answered} of {results.study['replicates']} replicated"
        return f"{state}, {lost} without an answer" if lost else state
    ended = [trial for trial in cell.tuning if trial.outcome not in ("", "running", "interrupted")]
    planned = (results.study.get("search") or {}).get("trials")
    return f"{len(ended)} of {planned} tuned" if planned else "not trained yet"


def _finite(value: float) -> float | None:
    return value if np.isfinite(value) else None
