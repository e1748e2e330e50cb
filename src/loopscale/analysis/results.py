"""Results: the cells of a study with their trials, built once from the records.

Every function of the analysis takes a `Results` or a `CellResult` first. pandas appears at the two ends only: tables
come in here, and tables go out to users.
"""

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from loopscale.records.stores.base import Store
from loopscale.studies.answering_runs import answering_runs
from loopscale.tasks.idle_settings import idle_settings

Array = NDArray[np.float64]
Query = Literal["mean", "last"]
"""Which error of a curve is meant: the mean over all queries, or the error of the last query."""
Description = Mapping[str, Any]
"""The study as recorded in study.json: name, question, cells, laws, baselines, replicates, ..."""
NAMES = ("trial", "study", "cell", "label", "role", "number", "seed", "outcome", "detail", "commit")
"""Columns of the trials table that identify a trial. All other columns without a dot are measures."""
EVALUATED = "evaluate.task."
"""Prefix of the settings of the evaluation task, if it differs from the task of training."""


@dataclass(frozen=True, eq=False)
class TrialCurve:
    """Errors of one trial on the evaluation prompts, after every loop and at every query.

    Attributes
    ----------
    loops
        Loops, layers or steps of the algorithm, from 1, [loops].
    points
        Pairs seen before the query, from 0, [points].
    error, sem, raw, median
        Mean error over prompts and its standard error, both divided by the target's variance; the mean without this
        division; the median over prompts. [loops, points], NaN where the records have no value.
    """

    loops: NDArray[np.int64]
    points: NDArray[np.int64]
    error: Array
    sem: Array
    raw: Array
    median: Array

    def __bool__(self) -> bool:
        return self.error.size > 0

    @property
    def last_loop(self) -> int:
        """The last loop that was evaluated, 0 for an empty curve."""
        return int(self.loops[-1]) if self else 0

    def row(self, loop: int) -> int:
        """The index of a loop in `loops`, or of the last loop if the curve is shorter."""
        return int(np.searchsorted(self.loops, min(loop, self.last_loop)))

    def error_after(self, loop: int, query: Query = "mean") -> float:
        """The error after a loop, or after the last loop if the curve is shorter."""
        if not self:
            return float("nan")
        errors = self.error[self.row(loop)]
        return mean(errors) if query == "mean" else float(errors[-1])

    def by_loop(self, of: str = "error") -> Array:
        """The mean over queries after every loop, [loops]; `of` is a grid of the curve."""
        return np.array([mean(values) for values in getattr(self, of)])


_NO_ERRORS = np.empty((0, 0))
EMPTY = TrialCurve(
    np.empty(0, np.int64), np.empty(0, np.int64), _NO_ERRORS, _NO_ERRORS, _NO_ERRORS, _NO_ERRORS
)


@dataclass(frozen=True, eq=False)
class TrialResult:
    """One trained net, or one run of a classical algorithm (role `baseline`), as recorded."""

    trial: str
    cell: str
    label: str
    role: str
    number: int
    seed: int | None
    outcome: str
    detail: str
    _tables: "_Tables" = field(repr=False)
    _row: int = field(repr=False)

    @cached_property
    def settings(self) -> dict[str, Any]:
        """The settings that apply to the trial, by dotted path, as plain Python values."""
        return self._tables.values(self._row, "settings")

    @cached_property
    def task(self) -> dict[str, Any]:
        """The settings of the task of the evaluation, by dotted path. Bounds are asked about this task."""
        evaluated = self._tables.values(self._row, "evaluated")
        if evaluated:
            return {f"task.{name.removeprefix(EVALUATED)}": value for name, value in evaluated.items()}
        return {name: value for name, value in self.settings.items() if name.startswith("task.")}

    @cached_property
    def measures(self) -> dict[str, float]:
        """Numbers by name; missing and NaN values are left out.

        The names are `error`, `error_last`, `raw_error`, `excess`, `step`, `seconds`, `flops`, and the task's measures.
        """
        values = self._tables.values(self._row, "measures")
        return {name: float(value) for name, value in values.items() if isinstance(value, int | float)}

    def __getitem__(self, measure: str) -> float:
        """The value of a measure, NaN if the trial has none."""
        return self.measures.get(measure, float("nan"))

    @property
    def finished(self) -> bool:
        """True if the trial ended with a finite error."""
        return self.outcome == "finished" and bool(np.isfinite(self["error"]))

    @property
    def step(self) -> int | None:
        """The number of training steps that the trial completed."""
        return int(self.measures["step"]) if "step" in self.measures else None

    @property
    def evaluated(self) -> dict[str, Any]:
        """The settings, with the evaluation task in place of the training task."""
        others = {path: value for path, value in self.settings.items() if not path.startswith("task.")}
        return others | dict(self.task)

    @cached_property
    def curve(self) -> TrialCurve:
        """The errors by loop and point; empty if the records have none."""
        return self._tables.curve(self.trial)

    def history(self, metric: str = "error") -> tuple[NDArray[np.int64], Array]:
        """Steps and values of a training metric, in the order of the steps."""
        return self._tables.history(self.trial, metric)

    @cached_property
    def loop(self) -> int:
        """T, the loop at which the trial is judged; the last layer of a net of fixed depth."""
        loops, last = self.settings.get("training.loops"), self.curve.last_loop
        if loops is None:
            return last
        return min(int(loops), last) if last else int(loops)

    @property
    def solver(self) -> str:
        """The name of a baseline's algorithm. Baselines of one kind also show the settings in which they differ."""
        kind = self.settings.get("solver.kind") or self.settings.get("baseline.kind")
        return str(self.label or kind or "").replace("_", " ")


@dataclass(frozen=True, eq=False)
class CellResult:
    """One cell of a study: one combination of scientific settings, with its trials in the order of their numbers.

    Attributes
    ----------
    index
        The cell's place in the study. Figures derive colour and marker from the index.
    values
        The scientific settings by dotted path.
    """

    key: str
    label: str
    index: int
    values: Mapping[str, Any]
    tuning: tuple[TrialResult, ...]
    replicates: tuple[TrialResult, ...]
    _baselines: tuple[TrialResult, ...] = field(repr=False)

    @cached_property
    def replicated(self) -> bool:
        """True if finished replicates answer for the cell, False if its best tuning trial does."""
        return any(trial.finished for trial in self.replicates)

    @cached_property
    def runs(self) -> tuple[TrialResult, ...]:
        """The trials that answer for the cell: its finished replicates, else its best tuning trial."""
        replicates = [trial for trial in self.replicates if trial.finished]
        tuned = [trial for trial in self.tuning if trial.finished]
        return answering_runs(
            replicates, tuned, lambda trial: settings_key(trial.settings), lambda trial: trial["error"]
        )

    @property
    def curves(self) -> tuple[TrialCurve, ...]:
        """The curves of the runs that have one."""
        return tuple(trial.curve for trial in self.runs if trial.curve)

    def values_of(self, measure: str) -> Array:
        """A measure of every run, [runs]; NaN where a run lacks the measure."""
        return np.array([trial[measure] for trial in self.runs], dtype=np.float64)

    @cached_property
    def baselines(self) -> tuple[TrialResult, ...]:
        """The classical algorithms that ran on the task of this cell, with distinct labels."""
        if not self.runs:
            return ()
        task = settings_key(self.runs[0].task)
        ran = [
            other for other in self._baselines if other.cell == self.key or settings_key(other.task) == task
        ]
        return _distinct(ran)


@dataclass(frozen=True, repr=False, eq=False)
class Results:
    """The records of one study.

    Errors are divided by the target's variance, so that predicting nothing costs 1.

    Attributes
    ----------
    study
        The study's description.
    trials, curves, history
        The tables of `loopscale query`, restricted to this study.
    provenance
        Where the records come from, for the report.
    missing
        If there are no records: one line that says so and how to make them. Otherwise empty.
    origin
        The name of the store that was read. A folder of the project is given as a relative path.
    """

    study: Description
    trials: pd.DataFrame
    curves: pd.DataFrame
    history: pd.DataFrame
    provenance: Mapping[str, Any] = field(default_factory=dict)
    missing: str = ""
    origin: str = ""
    store: Store | None = None

    @property
    def name(self) -> str:
        return str(self.study["name"])

    @property
    def tuned(self) -> list[str]:
        """The dotted paths of the tuned settings."""
        return list(self.study.get("nuisance") or {})

    @property
    def two_objectives(self) -> bool:
        """True if the search trades error against FLOPs."""
        return len((self.study.get("search") or {}).get("objectives") or ()) > 1

    @cached_property
    def everything(self) -> tuple[TrialResult, ...]:
        """Every recorded trial and baseline, also of cells that left the study."""
        return _Tables(self.trials, self.curves, self.history).trials

    @cached_property
    def trained(self) -> tuple[TrialResult, ...]:
        """Every recorded trial except the baselines."""
        return tuple(trial for trial in self.everything if trial.role != "baseline")

    @cached_property
    def baselines(self) -> tuple[TrialResult, ...]:
        """The finished runs of classical algorithms."""
        finished = (trial for trial in self.everything if trial.outcome == "finished")
        return tuple(trial for trial in finished if trial.role == "baseline")

    @cached_property
    def cells(self) -> tuple[CellResult, ...]:
        """The cells of the study as it is now, in the order of its file."""
        of_cell: dict[tuple[str, str], list[TrialResult]] = {}
        for trial in self.trained:
            of_cell.setdefault((trial.cell, trial.role), []).append(trial)
        for trials in of_cell.values():
            trials.sort(key=lambda trial: (trial.number, trial.seed or 0))
        cells = []
        for index, cell in enumerate(self.study["cells"]):
            tuning, replicates = (
                tuple(of_cell.get((cell["key"], role), ())) for role in ("tuning", "replicate")
            )
            about = (cell["key"], cell["label"], index, cell["values"])
            cells.append(CellResult(*about, tuning, replicates, self.baselines))
        return tuple(cells)

    @property
    def answered(self) -> list[CellResult]:
        """The cells with a finished trial."""
        return [cell for cell in self.cells if cell.runs]

    @cached_property
    def tasks(self) -> dict[str, list[CellResult]]:
        """Cells with an answer, grouped by their task.

        The key of a group names the settings in which the tasks differ. It is empty for a study of a single task.
        """
        tasks = [(cell, cell.runs[0].task) for cell in self.answered]
        if len({settings_key(task) for _, task in tasks}) > 1:
            tasks = [(cell, _effective(task)) for cell, task in tasks]
        paths = dict.fromkeys(path for _, task in tasks for path in task)
        varied = [path for path in paths if len({repr(task.get(path)) for _, task in tasks}) > 1]
        groups: dict[str, list[CellResult]] = {}
        for cell, task in tasks:
            groups.setdefault(", ".join(f"{path}={task.get(path)}" for path in varied), []).append(cell)
        return groups

    def cell(self, settings: Mapping[str, Any]) -> CellResult:
        """The cell with these scientific settings, by dotted path. Raises ValueError unless exactly one matches."""
        wanted = flat(settings)
        cells = [
            cell
            for cell in self.cells
            if all(plain(flat(cell.values).get(path)) == plain(value) for path, value in wanted.items())
        ]
        if len(cells) == 1:
            return cells[0]
        known = "; ".join(cell.label for cell in self.cells)
        names = f"{settings_label(settings)} names {len(cells)} cells of {self.name}"
        raise ValueError(f"{names}; the cells are {known}")

    def logs(self, of: str = "error") -> Array:
        """The logarithm of a measure, [cells, seeds], as `table_by_seed` gives it."""
        if of not in self._logs:
            self._logs[of] = self.table_by_seed(lambda _, trial: trial[of])
        return self._logs[of]

    @cached_property
    def _logs(self) -> dict[str, Array]:
        return {}

    def table_by_seed(self, value: Callable[[CellResult, TrialResult], float]) -> Array:
        """The logarithm of a value of every run, [cells, seeds], as `stats.contrasts` expects it.

        NaN where a cell lacks the seed or the value is NaN or negative; -inf for 0.
        """
        return logs_by_seed(self.cells, value)


def logs_by_seed(cells: Sequence[CellResult], value: Callable[[CellResult, TrialResult], float]) -> Array:
    """The table of `Results.table_by_seed` for these cells, which may come from several studies."""
    seeds = sorted({trial.seed for cell in cells for trial in cell.runs if trial.seed is not None})
    column = {seed: place for place, seed in enumerate(seeds)}
    table = np.full((len(cells), len(seeds)), np.nan)
    for row, cell in enumerate(cells):
        for trial in cell.runs:
            if trial.seed is not None:
                table[row, column[trial.seed]] = value(cell, trial)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.log(table)


def plain(value: Any) -> Any:
    """The value as a plain Python value. A whole float becomes an integer: a column with gaps holds floats only."""
    value = value.item() if isinstance(value, np.generic) else value
    return int(value) if isinstance(value, float) and value.is_integer() and abs(value) < 2**53 else value


def mean(values: Iterable[float] | Array) -> float:
    """The mean of the values that are not NaN; NaN if there are none."""
    values = np.asarray(list(values) if not isinstance(values, np.ndarray) else values, dtype=np.float64)
    kept = values[~np.isnan(values)]
    return float(kept.mean()) if kept.size else float("nan")


def flat(values: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Settings by dotted path. A component is split into its settings."""
    paths: dict[str, Any] = {}
    for name, value in values.items():
        path = f"{prefix}{name}"
        paths |= flat(value, f"{path}.") if isinstance(value, Mapping) else {path: value}
    return paths


def settings_label(settings: Mapping[str, Any]) -> str:
    """Settings in words: `algoformer, loops = 4`."""
    return ", ".join(
        str(value) if path.endswith("kind") else f"{path.rpartition('.')[2]} = {value}"
        for path, value in flat(settings).items()
    )


def settings_key(settings: Mapping[str, Any]) -> str:
    """Settings as text that can be compared."""
    return repr(sorted(settings.items(), key=lambda item: item[0]))


def part_of(settings: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    """The settings below `prefix`, as their class expects them. Lists, which the mirror keeps as text, become lists."""
    parts = {path.removeprefix(prefix): settings[path] for path in settings if path.startswith(prefix)}
    return {
        name: json.loads(value) if isinstance(value, str) and value.startswith("[") else value
        for name, value in parts.items()
    }


def _effective(task: Mapping[str, Any]) -> dict[str, Any]:
    """The settings of a task that have an effect on its prompts."""
    idle = idle_settings(part_of(task, "task."))
    return {path: value for path, value in task.items() if path.removeprefix("task.") not in idle}


def _distinct(baselines: Sequence[TrialResult]) -> tuple[TrialResult, ...]:
    """Add to the labels of baselines with the same label the settings in which they differ."""
    labelled = []
    for baseline in baselines:
        same = [other for other in baselines if other.label == baseline.label]
        paths = [path for path in baseline.settings if path.startswith("solver.") and path != "solver.kind"]
        differ = [path for path in paths if len({repr(other.settings.get(path)) for other in same}) > 1]
        words = ", ".join(f"{path.removeprefix('solver.')} {baseline.settings[path]}" for path in differ)
        labelled.append(replace(baseline, label=f"{baseline.label} ({words})") if words else baseline)
    return tuple(labelled)


class _Tables:
    """The tables by trial. Every row of trials is read at its first use, and every long table is then sorted once."""

    def __init__(self, trials: pd.DataFrame, curves: pd.DataFrame, history: pd.DataFrame) -> None:
        self._trials, self._curves, self._history = trials, curves, history

    @cached_property
    def trials(self) -> tuple[TrialResult, ...]:
        keys = [str(key) for key in self._trials["trial"]] if len(self._trials) else []
        words = {name: self._words(name) for name in ("cell", "label", "role", "outcome", "detail")}
        return tuple(
            TrialResult(
                trial=key,
                number=int(number or 0),
                seed=None if seed is None else int(seed),
                _tables=self,
                _row=row,
                **dict(zip(words, texts, strict=True)),
            )
            for row, (key, number, seed, *texts) in enumerate(
                zip(keys, self._column("number"), self._column("seed"), *words.values(), strict=True)
            )
        )

    def values(self, row: int, kind: Literal["settings", "evaluated", "measures"]) -> dict[str, Any]:
        """The values of one row of trials, in the columns of a kind. Missing values are left out."""
        columns = self._columns_by_kind[kind]
        return {name: plain(value) for name, column in columns if not _missing(value := column[row])}

    @cached_property
    def _columns_by_kind(self) -> dict[str, list[tuple[str, NDArray[Any]]]]:
        kinds: dict[str, list[tuple[str, NDArray[Any]]]] = {"settings": [], "evaluated": [], "measures": []}
        for name, column in self._columns.items():
            if name not in NAMES:
                kind = (
                    "evaluated" if name.startswith(EVALUATED) else "settings" if "." in name else "measures"
                )
                kinds[kind].append((name, column))
        return kinds

    @cached_property
    def _columns(self) -> dict[str, NDArray[Any]]:
        return {str(name): column.to_numpy() for name, column in self._trials.items()}

    def _column(self, name: str) -> list[Any]:
        """The values of a column, None where they are missing."""
        column = self._columns.get(name)
        if column is None:
            return [None] * len(self._trials)
        return [
            None if missing else plain(value) for value, missing in zip(column, pd.isna(column), strict=True)
        ]

    def _words(self, name: str) -> list[str]:
        return [str(value or "") for value in self._column(name)]

    @cached_property
    def _curve_rows(self) -> "_RowsByTrial":
        return _RowsByTrial(self._curves)

    @cached_property
    def _history_rows(self) -> "_RowsByTrial":
        return _RowsByTrial(self._history)

    def curve(self, trial: str) -> TrialCurve:
        rows = self._curve_rows.of(trial)
        if rows is None:
            return EMPTY
        loops, loop_at = np.unique(rows["loop"].astype(np.int64), return_inverse=True)
        points, point_at = np.unique(rows["point"].astype(np.int64), return_inverse=True)
        grids = dict[str, Array]()
        for name in ("error", "sem", "raw", "median"):
            grids[name] = np.full((len(loops), len(points)), np.nan)
            if name in rows:
                grids[name][loop_at, point_at] = rows[name]
        return TrialCurve(loops, points, **grids)

    def history(self, trial: str, metric: str) -> tuple[NDArray[np.int64], Array]:
        rows = self._history_rows.of(trial)
        if rows is None:
            return np.empty(0, np.int64), np.empty(0)
        kept = rows["metric"] == metric
        steps, values = rows["step"][kept].astype(np.int64), rows["value"][kept].astype(np.float64)
        # A step that was repeated after a kill is recorded twice. The later value counts.
        last = {int(step): place for place, step in enumerate(steps)}
        places = [last[step] for step in sorted(last)]
        return steps[places], values[places]


class _RowsByTrial:
    """The rows of a long table by trial. The table is sorted once, and each trial is a slice of it."""

    def __init__(self, table: pd.DataFrame) -> None:
        codes, trials = pd.factorize(table["trial"])
        order = np.argsort(codes, kind="stable")
        ends = np.searchsorted(codes[order], np.arange(len(trials) + 1))
        self._slices = {str(trial): slice(ends[i], ends[i + 1]) for i, trial in enumerate(trials)}
        self._columns = {str(name): _column(table[name])[order] for name in table.columns if name != "trial"}

    def of(self, trial: str) -> dict[str, NDArray[Any]] | None:
        rows = self._slices.get(trial)
        return {name: column[rows] for name, column in self._columns.items()} if rows else None


def _column(values: pd.Series) -> NDArray[Any]:
    if values.name == "metric":
        return values.to_numpy(dtype=object)
    return pd.to_numeric(values, errors="coerce").to_numpy(dtype=np.float64, na_value=np.nan)


def _missing(value: Any) -> bool:
    if isinstance(value, float):
        return math.isnan(value)
    return value is None or (not isinstance(value, str | list | dict | np.ndarray) and bool(pd.isna(value)))
