"""The best configuration of every cell, and comparisons of cells.

A cell is compared with the best cell of its task, with classical algorithms, and with a cell of another study.

Every part of the analysis compares here, and `stats.contrasts` gives the intervals. A comparison has the ratio of the
first error to the second (geometric means over replicates), its 95 % interval and a verdict: `less` if the whole
interval lies below 1, `more` if it lies above 1, else `undecided`.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import numpy as np
from pydantic import TypeAdapter, ValidationError

from loopscale.analysis.learning import learnt_words, on_plateau
from loopscale.analysis.results import (
    CellResult,
    Query,
    Results,
    TrialResult,
    logs_by_seed,
    mean,
    settings_key,
)
from loopscale.analysis.table import Column, Interval
from loopscale.stats.contrasts import (
    Contrast,
    contrast,
    contrast_with_value,
    deciding_replicates,
    judge,
    mean_interval,
    student,
    why_none,
)
from loopscale.studies.space import Axis, Space

NEAR = 0.05
"""The share of a range, measured on the scale of the range, that counts as its end."""
WITHOUT_ANSWER = ("diverged", "out_of_memory", "failed", "lost")
"""Outcomes of trials that leave no error."""
EXACT = 1e-9
"""Algorithms run in float64. Their errors below this value are rounding."""
Word = Literal["less", "more", "level", "undecided", "not learnt", "no interval", "no answer"]


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
    plateau
        The runs on the plateau, in words, if the verdict is "not learnt".
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
    plateau: str = ""

    def to_dict(self) -> dict[str, Any]:
        """The ratio, its interval, the verdict, and the number of replicates that would decide."""
        return {name: getattr(self, name) for name in ("ratio", "low", "high", "word", "replicates")}

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
    compared = _compare_rows((first.label, second.label), results.logs(of), first.index, second.index)
    return _gated(compared, (*first.runs, *second.runs), of)


def compare_studies(
    results: tuple[Results, Results], first: CellResult, second: CellResult, of: str = "error"
) -> Comparison:
    """A cell of one study and a cell of another study, seed by seed, with the noise of both studies.

    A cell whose trials are in both studies counts once.
    """
    cells = {_identity(cell, of): cell for study in results for cell in study.cells}
    logs = logs_by_seed(list(cells.values()), lambda _, run: run[of] if run[of] > 0 else math.nan)
    places = [list(cells).index(_identity(cell, of)) for cell in (first, second)]
    compared = _compare_rows((first.label, second.label), logs, *places)
    return _gated(compared, (*first.runs, *second.runs), of)


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
    compared = contrast_with_value(logs, cell.index, value)
    return _gated(_comparison(labels, compared, logs[cell.index] - math.log(value)), cell.runs)


def _gated(compared: Comparison, runs: Sequence[TrialResult], of: str = "error") -> Comparison:
    """The comparison with the verdict "not learnt" if some of the runs stand on the plateau."""
    plateau = on_plateau(runs, of)
    if not plateau or compared.word == "no answer":
        return compared
    return replace(compared, word="not learnt", replicates=None, plateau=plateau)


def baseline_error(baseline: TrialResult, step: int, query: Query = "mean") -> float:
    """The error of a classical algorithm after a step, or after its last step if that is earlier."""
    return baseline.curve.error_after(step, query) if baseline.curve else baseline["error"]


def _identity(cell: CellResult, of: str) -> tuple[tuple[str, float], ...]:
    """The runs of a cell with their values. Cells of two studies with equal runs are the same cell."""
    return tuple(sorted((run.trial, run[of]) for run in cell.runs))


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


@dataclass(frozen=True)
class Best:
    """The answer of one cell.

    Attributes
    ----------
    error, error_last
        Means over the replicates, or the values of the best tuning trial; None if nothing has finished.
    error_low, error_high
        The 95 % interval of `error`; None with fewer than two replicates.
    regret
        The mean of the error above the floor; None if no floor is known.
    regret_low, regret_high
        The 95 % interval of `regret`, with the noise of the evaluation prompts if the records have this noise.
    learnt
        How many of the runs have left the plateau, and whether these are still falling; empty if this is unknown.
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
    regret: float | None = None
    regret_low: float | None = None
    regret_high: float | None = None
    learnt: str = ""

    def to_dict(self) -> dict[str, Any]:
        record = asdict(self)
        compared = record.pop("against_best") or {}
        names = {"ratio": "ratio", "ratio_low": "low", "ratio_high": "high", "verdict": "word"}
        return record | {name: compared.get(field) for name, field in names.items()}

    @property
    def words(self) -> str:
        """The error with its interval, in words. If there is no interval, the words give the reason."""
        if self.error_low is None or self.error_high is None:
            return f"{number(self.error)} (no interval: fewer than two replicates)"
        return f"{number(self.error)} (95 % interval {number(self.error_low)} to {number(self.error_high)})"


@dataclass(frozen=True)
class AtEnd:
    """Cells whose best value lies at one end of a range.

    Attributes
    ----------
    side
        `lowest` or `highest`.
    labels
        The labels of the cells.
    """

    path: str
    end: float
    side: str
    labels: tuple[str, ...]

    def __str__(self) -> str:
        cells = ", ".join(label or "the only cell" for label in self.labels)
        return f"the best {self.path} of {cells} is at the {self.side} end of its range, {self.end:g}"


def best_columns(results: Results) -> list[Column[Best]]:
    """The columns of the table of best configurations, with one for every tuned setting."""
    return [
        *_cell_and_settings(results),
        Column.attribute("error", unit="1 = predicting nothing"),
        Column.interval("error_low", "error_high"),
        Column.attribute("error_last", "last query", unit="1 = predicting nothing"),
        Column.attribute("regret", unit="1 = predicting nothing"),
        Column.interval("regret_low", "regret_high"),
        Column.attribute("learnt"),
        _of_comparison("over the lowest", "ratio", "ratio"),
        _of_comparison("95 % interval", "interval", "ratio_low", "ratio_high"),
        _of_comparison("verdict", "word", "verdict"),
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


def _of_comparison(heading: str, attribute: str, *names: str) -> Column[Best]:
    return Column(names, heading, lambda best: best.against_best and getattr(best.against_best, attribute))


def best(results: Results) -> list[Best]:
    """One answer for each cell that is in the study now, in the study's order."""
    logs = results.logs()
    fronts = {settings_key(point.settings) for point in front(results)} if results.two_objectives else set()
    lowest: dict[str, CellResult] = {}
    for cells in results.tasks.values():
        lowest |= dict.fromkeys(
            (cell.key for cell in cells), min(cells, key=lambda cell: mean(cell.values_of("error")))
        )
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

    A better value may lie beyond such an end (Godbole, Dahl, Gilmer, Shallue, Nado: Deep Learning Tuning Playbook,
    2023, search space boundaries).
    """
    return [
        AtEnd(path, end, side, labels)
        for path, axis in tuned_ranges(results).items()
        for side, end, low, high in (
            ("lowest", axis.ends[0], 0.0, NEAR),
            ("highest", axis.ends[-1], 1 - NEAR, 1.0),
        )
        if end
        and (labels := tuple(best.label for best in answers if low <= _place(axis, best, path) <= high))
    ]


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
        against_best=compare_cells(results, cell, lowest) if lowest and lowest is not cell else None,
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


def _state(results: Results, cell: CellResult) -> str:
    if cell.replicates:
        lost = sum(trial.outcome in WITHOUT_ANSWER for trial in cell.replicates)
        answered = len(cell.runs) if cell.replicated else 0
        state = f"{answered} of {results.study['replicates']} replicated"
        return f"{state}, {lost} without an answer" if lost else state
    ended = [trial for trial in cell.tuning if trial.outcome not in ("", "running", "interrupted")]
    planned = (results.study.get("search") or {}).get("trials")
    return f"{len(ended)} of {planned} tuned" if planned else "not trained yet"


def _place(axis: Axis, best: Best, path: str) -> float:
    """The place of a cell's value in a range, from 0 to 1; NaN if the cell has no such number."""
    value = best.settings.get(path)
    return axis.place(value) if isinstance(value, int | float) else math.nan


def _finite(value: float) -> float | None:
    return value if np.isfinite(value) else None


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
    def word(self) -> str:
        return "exact" if self.exact else self.comparison.word

    @property
    def exact(self) -> bool:
        """True if the algorithm's error is rounding, so that a ratio has no meaning."""
        return self.baseline_error < EXACT

    def to_dict(self) -> dict[str, Any]:
        record = asdict(self)
        del record["comparison"]
        return record | self.comparison.to_dict()


STANDINGS: list[Column[Standing]] = [
    Column.attribute("label", "cell"),
    Column.attribute("baseline", "algorithm"),
    Column.attribute("loop", "steps"),
    Column.attribute("error", "error of the net", "1 = predicting nothing"),
    Column.attribute("baseline_error", "error of the algorithm", "1 = predicting nothing"),
    Column(("ratio",), "ratio", lambda standing: None if standing.exact else standing.ratio),
    Column(("low", "high"), "95 % interval", lambda standing: standing.comparison.interval),
    Column.attribute("word", "verdict"),
]


def standings(results: Results) -> list[Standing]:
    """Every cell beside every classical algorithm that ran on its task.

    The algorithm's error is taken after as many steps as the cell has loops or layers, or after its last recorded step.
    """
    rows = []
    for cell in results.answered:
        loop, error = cell.runs[0].loop, mean(cell.values_of("error"))
        for baseline in cell.baselines:
            compared = compare_with_baseline(results, cell, baseline)
            if compared.ratio is not None:
                steps = min(loop, baseline.curve.last_loop) if baseline.curve else loop
                errors = (error, baseline_error(baseline, loop))
                rows.append(Standing(cell.key, cell.label, baseline.solver, steps, *errors, compared))
    return rows
