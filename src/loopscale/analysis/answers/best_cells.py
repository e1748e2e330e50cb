"""The best configuration of every cell, with its interval, its place in the tuned ranges, and its comparison."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from pydantic import TypeAdapter, ValidationError

from loopscale.analysis.answers.comparisons import Comparison, compare_with_lowest, correction_notes
from loopscale.analysis.recorded.learning import learnt_words
from loopscale.analysis.recorded.results import (
    CellResult,
    Results,
    mean,
    settings_key,
)
from loopscale.analysis.table import Column, number
from loopscale.core.titles import readable
from loopscale.notation.files import BUDGET_PATHS
from loopscale.notation.space import Axis, Space
from loopscale.questions.until import in_reserve
from loopscale.stats.contrasts import (
    mean_interval,
    student,
)

NEAR_BEST = 0.05
"""The share of a range, measured on the scale of the range, that counts as its end."""
WITHOUT_ANSWER = ("diverged", "out_of_memory", "stopped", "failed", "lost")
"""Outcomes of trials that leave no error."""


@dataclass(frozen=True)
class Best:
    """The answer of one cell."""

    cell: str
    label: str
    settings: Mapping[str, Any]
    error: float | None = None
    """The mean over the replicates, or the value of the best tuning trial. None if nothing has finished."""
    error_low: float | None = None
    """The lower end of the 95 % interval of `error`; None with fewer than two replicates."""
    error_high: float | None = None
    """The upper end of this interval."""
    error_last: float | None = None
    """The same mean or value for the error at the last query."""
    replicates: int = 0
    trial: str | None = None
    """The replicate of the first seed, even if another seed has less error. Without replicates, the best tuning
    trial."""
    state: str = ""
    """The progress of the cell: `3 of 8 tuned`, `2 of 3 replicated`."""
    flops: float | None = None
    front: bool = False
    """True if no other point of the cell has both less error and fewer FLOPs."""
    against_best: Comparison | None = None
    """The comparison with the cell of lowest error on the same task; None for that cell itself. The family is all
    pairs of cells of a task."""
    regret: float | None = None
    """The mean of the error above the floor; None if no floor is known."""
    regret_low: float | None = None
    """The lower end of the 95 % interval of `regret`. The interval has the noise of the evaluation prompts if the
    records have this noise."""
    regret_high: float | None = None
    """The upper end of this interval."""
    learnt: str = ""
    """The number of runs that have left the plateau, and whether these runs are still falling. Empty if the state of
    the runs is unknown."""

    def to_dict(self) -> dict[str, Any]:
        record = asdict(self)
        compared = record.pop("against_best") or {}
        names = {"ratio": "ratio", "ratio_low": "low", "ratio_high": "high", "verdict": "verdict"}
        names |= {"alone": "alone", "adjusted_p": "adjusted_p"}
        return record | {name: compared.get(field) for name, field in names.items()}

    @property
    def words(self) -> str:
        """The error with its interval, in words. If there is no interval, the words give the reason."""
        if self.error_low is None or self.error_high is None:
            return f"{number(self.error)} (no interval: fewer than two replicates)"
        return f"{number(self.error)} (95 % interval {number(self.error_low)} to {number(self.error_high)})"


@dataclass(frozen=True)
class AtEnd:
    """Cells whose best value lies at one end of a range."""

    path: str
    end: float
    side: str
    """`lowest` or `highest`."""
    labels: tuple[str, ...]
    """The labels of the cells."""

    def __str__(self) -> str:
        cells = ", ".join(readable(label) or "the only cell" for label in self.labels)
        return f"the best {self.path} of {cells} is at the {self.side} end of its range, {self.end:g}"


def best_columns(results: Results) -> list[Column[Best]]:
    """The columns of the table of best configurations, with one for every tuned setting."""
    return [
        *_cell_and_settings(results),
        Column.attribute("error", unit="1 = predicting nothing"),
        Column.interval("error_low", "error_high"),
        _of_comparison("ratio to best", "ratio", "ratio", leaves=True),
        _of_comparison("95 % interval", "interval", "ratio_low", "ratio_high", leaves=True),
        _of_comparison("verdict", "verdict_in_words", "verdict"),
        Column.attribute("learnt"),
        Column.attribute("regret", unit="1 = predicting nothing", leaves=True),
        Column.interval("regret_low", "regret_high", leaves=True),
        Column.attribute("error_last", "last query", unit="1 = predicting nothing", leaves=True, detail=True),
        _of_comparison("uncorrected", "uncorrected", "alone", leaves=True, detail=True),
        Column.attribute("replicates", "runs", leaves=True, detail=True),
        Column.attribute("state", leaves=True, detail=True),
        Column.attribute("trial", leaves=True, detail=True),
    ]


def front_columns(results: Results) -> list[Column[Best]]:
    """The columns of the table of points that no other point beats."""
    return [
        *_cell_and_settings(results),
        Column.attribute("error", unit="1 = predicting nothing"),
        Column.attribute("flops", "FLOPs"),
        Column.attribute("trial", leaves=True),
    ]


def _cell_and_settings(results: Results) -> list[Column[Best]]:
    """The label, the tuned settings, and the steps if these follow from a budget or from orders of `until.steps`."""
    budgeted = any(path in trial.settings for path in BUDGET_PATHS for trial in results.trained)
    longer = any(cell.steps_factor > 1 for cell in results.cells)
    paths = [*results.tuned, *(["training.steps"] if budgeted or longer else [])]
    return [
        Column(("label",), "cell", lambda best: best.label),
        *(
            Column((path,), path, lambda best, path=path: best.settings.get(path), leaves=True, detail=True)
            for path in paths
        ),
    ]


def _of_comparison(
    heading: str, attribute: str, *names: str, leaves: bool = False, detail: bool = False
) -> Column[Best]:
    def value(best: Best) -> Any:
        return best.against_best and getattr(best.against_best, attribute)

    return Column(names, heading, value, leaves=leaves, detail=detail)


def best(results: Results) -> list[Best]:
    """One answer for each cell that is in the study now, in the study's order."""
    logs = results.logs()
    fronts = {settings_key(point.settings) for point in front(results)} if results.two_objectives else set()
    compared = compare_with_lowest(results)
    return [_answer(results, cell, logs, fronts, compared.get(cell.key)) for cell in results.cells]


def best_notes(answers: Iterable[Best]) -> list[str]:
    """Sentences that explain the verdicts of a table of best configurations."""
    compared = [answer.against_best for answer in answers if answer.against_best]
    return correction_notes(compared, of_pairs=True)


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
                        error=lowest,
                        error_last=_finite(trial["error_last"]),
                        trial=trial.trial,
                        state="on the front",
                        flops=trial["flops"],
                        front=True,
                    )
                )
    return points


def tuned_ranges(results: Results) -> dict[str, Axis]:
    """The tuned ranges by dotted path; empty if another version recorded them in another form."""
    try:
        return TypeAdapter(Space).validate_python(dict(results.study.get("nuisance") or {}))
    except ValidationError:
        return {}


def cells_at_ends(results: Results, answers: Sequence[Best]) -> list[AtEnd]:
    """The ends of ranges at which cells are best. An end of 0 does not count: nothing lies beyond it.

    A better value may lie beyond such an end [@godbole2023, search space boundaries].
    """
    return [
        AtEnd(path, end, side, labels)
        for path, axis in tuned_ranges(results).items()
        for side, end, low, high in (
            ("lowest", axis.ends[0], 0.0, NEAR_BEST),
            ("highest", axis.ends[-1], 1 - NEAR_BEST, 1.0),
        )
        if end
        and (labels := tuple(best.label for best in answers if low <= _place(axis, best, path) <= high))
    ]


def _answer(
    results: Results, cell: CellResult, logs: np.ndarray, fronts: set[str], against_best: Comparison | None
) -> Best:
    state = _state(results, cell)
    if not cell.runs:
        return Best(cell.key, cell.label, dict(cell.values), state=state)
    first = cell.runs[0]
    interval = mean_interval(logs, cell.index) if cell.replicated else None
    low, high = interval or (None, None)
    regret_low, regret_high = regret_interval(results, cell) or (None, None)
    return Best(
        cell=cell.key,
        label=cell.label,
        settings=first.settings,
        error=mean(cell.values_of("error")),
        error_low=low,
        error_high=high,
        error_last=_finite(mean(cell.values_of("error_last"))),
        regret=_finite(mean(cell.values_of("regret"))),
        regret_low=regret_low,
        regret_high=regret_high,
        learnt=learnt_words(cell),
        replicates=len(cell.runs) if cell.replicated else 0,
        trial=first.trial,
        state=state,
        flops=_finite(first["flops"]),
        front=settings_key(first.settings) in fronts,
        against_best=against_best,
    )


def regret_interval(results: Results, cell: CellResult) -> tuple[float, float] | None:
    """The 95 % interval of a cell's mean regret, from the noise of training and of the evaluation prompts.

    All runs have the same prompts, so more replicates do not reduce the noise of the prompts. Both noises are added as
    variances of log regret. Older records have no standard error over prompts, and their interval is that of training.

    Returns
    -------
    (low, high) or None
        None if the cell has fewer than two replicates, or if a regret is not above 0.
    """
    regrets, noise = cell.values_of("regret"), cell.values_of("regret_sem")
    if not cell.replicated or not (regrets > 0).all():
        return None
    interval = mean_interval(results.logs("regret"), cell.index)
    if interval is None or np.isnan(noise).any():
        return interval
    centre = math.log(regrets.mean())
    prompts = student(math.inf) * noise.mean() / regrets.mean()
    low, high = (math.hypot(math.log(end) - centre, prompts) for end in interval)
    return math.exp(centre - low), math.exp(centre + high)


def regret_notes(results: Results) -> list[str]:
    """One sentence if the intervals of some regrets lack the noise of the evaluation prompts."""
    older = [
        cell
        for cell in results.answered
        if np.isfinite(cell.values_of("regret")).all() and np.isnan(cell.values_of("regret_sem")).any()
    ]
    if not older:
        return []
    cells = (
        f"{len(older)} of {len(results.answered)} cells"
        if len(older) < len(results.answered)
        else "all cells"
    )
    return [
        f"The intervals of regret of {cells} are those of training alone: these records are older than the column "
        "regret_sem. They have the noise of the error over the evaluation prompts, but not its covariance with the "
        "floor's on the same prompts, so the noise of the difference is unknown."
    ]


def _state(results: Results, cell: CellResult) -> str:
    if cell.replicates:
        lost = sum(trial.outcome in WITHOUT_ANSWER for trial in cell.replicates)
        answered = len(cell.runs) if cell.replicated else 0
        ordered = max(
            answered, results.study["replicates"]
        )  # looks, or an earlier form of the study, ordered more
        state = f"{answered} of {ordered} replicated"
        return f"{state}, {lost} without an answer" if lost else state
    if not cell.tuning and in_reserve(results.study.get("until"), cell.values):
        return "in reserve"
    ended = [trial for trial in cell.tuning if trial.outcome not in ("", "running", "interrupted")]
    search = results.study.get("search") or {}
    searches = results.study.get("nuisance", True)  # older descriptions may lack the key
    planned = search.get("trials", 0) * search.get("seeds", 1) if searches else 0
    return f"{len(ended)} of {planned} tuned" if planned else "not trained yet"


def _place(axis: Axis, best: Best, path: str) -> float:
    """The place of a cell's value in a range, from 0 to 1; NaN if the cell has no such number."""
    value = best.settings.get(path)
    return axis.place(value) if isinstance(value, int | float) else math.nan


def _finite(value: float) -> float | None:
    return value if np.isfinite(value) else None
