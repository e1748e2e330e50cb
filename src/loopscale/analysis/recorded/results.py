"""Results: the cells of a study with their trials, built once from the records.

Every function of the analysis takes a `Results` or a `CellResult` first. pandas appears at the two ends only: tables
come in here, and tables go out to users.
"""

import json
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from loopscale.analysis.recorded.floors import Floors, floor_key
from loopscale.core.prompt_sets import EVALUATION_PROMPTS, VALIDATION_PROMPTS
from loopscale.core.titles import readable
from loopscale.questions.claim import ClaimSpec
from loopscale.questions.measures import CURVE_MEASURES
from loopscale.questions.runs import logs_by_seed, values_by_seed
from loopscale.records.decisions import answering_factors, recorded_decisions
from loopscale.records.model import DAMAGE, EXAMPLES_TAG
from loopscale.records.stores.base import Store
from loopscale.records.study_records import answering_runs
from loopscale.records.tables import PLAY_COLUMNS
from loopscale.stats.contrasts import PooledVariance
from loopscale.stats.learning import (
    Emergence,
    History,
    LearningState,
    Learnt,
    MeanFloor,
    learning_state,
    pooled_scatter,
)
from loopscale.stats.milestones import Milestone
from loopscale.tasks.idle_settings import idle_settings

Array = NDArray[np.float64]
Query = Literal["mean", "last"]
"""Which error of a curve is meant: the mean over all queries, or the error of the last query."""
Description = Mapping[str, Any]
"""The study as recorded in study.json: name, question, cells, laws, baselines, replicates, ..."""
NAMES = (
    *("trial", "study", "cell", "label", "role", "number", "seed", "steps_factor"),
    *("outcome", "detail", "commit"),
)
"""Columns of the trials table that identify a trial. All other columns without a dot are measures."""
EVALUATED_PREFIX = "evaluate.task."
"""Prefix of the settings of the evaluation task, if it differs from the task of training."""


@dataclass(frozen=True, eq=False)
class TrialCurve:
    """Errors of one trial on the evaluation prompts, after every loop and at every query."""

    loops: NDArray[np.int64]
    """Loops, layers or steps of the algorithm, from 1, [loops]."""
    points: NDArray[np.int64]
    """Pairs seen before the query, from 0, [points]."""
    error: Array
    """The mean error over prompts, divided by the target's variance. Like all tables of the curve, [loops, points],
    with NaN where the records have no value."""
    sem: Array
    """The standard error of `error` over prompts."""
    raw: Array
    """The mean error over prompts, not divided by the variance."""
    median: Array
    """The median error over prompts, divided by the target's variance."""
    regret_sem: Array
    """The standard error of `regret` over prompts, [loops, points]; NaN in older records."""
    play_regret: Array
    """The cumulative pseudo-regret of sampled play after every round, [loops, points]; NaN after loops without play."""
    play_regret_sem: Array
    """The standard error of `play_regret` over games."""
    play_regret_greedy: Array
    """The cumulative pseudo-regret of greedy play."""
    _recorded_regret: Array = field(repr=False)
    _floor: Callable[[], MeanFloor | None] = field(repr=False)

    def __bool__(self) -> bool:
        return self.error.size > 0

    @cached_property
    def regret(self) -> Array:
        """The regret, [loops, points]. For older records: the error less the floor. NaN if no floor is known."""
        if not np.isnan(self._recorded_regret).all():
            return self._recorded_regret
        floor = self._floor() if self else None
        if floor is None or len(floor.error) != len(self.points):
            return self._recorded_regret
        return self.error - floor.error

    @property
    def last_loop(self) -> int:
        """The last loop that was evaluated, 0 for an empty curve."""
        return int(self.loops[-1]) if self else 0

    @property
    def played(self) -> bool:
        """True if the records have the regret of play after every round."""
        return bool(np.isfinite(self.play_regret).any())

    def row(self, loop: int) -> int:
        """The index of a loop in `loops`, or of the last loop if the curve is shorter."""
        return int(np.searchsorted(self.loops, min(loop, self.last_loop)))

    def error_after(
        self, loop: int, query: Query = "mean", of: Literal["error", "regret"] = "error"
    ) -> float:
        """The error (or regret) after a loop, or after the last loop if the curve is shorter."""
        if not self:
            return float("nan")
        errors = getattr(self, of)[self.row(loop)]
        return mean(errors) if query == "mean" else float(errors[-1])

    def by_loop(self, of: str = "error") -> Array:
        """The mean over queries after every loop, [loops]; `of` is a grid of the curve."""
        return np.array([mean(values) for values in getattr(self, of)])


_NO_ERRORS = np.empty((0, 0))
EMPTY = TrialCurve(
    np.empty(0, np.int64), np.empty(0, np.int64), *(_NO_ERRORS for _ in range(9)), _floor=lambda: None
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
    steps_factor: int
    """The steps over the steps of the study. Above 1 if `until.steps` has ordered a longer training."""
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
            return {f"task.{name.removeprefix(EVALUATED_PREFIX)}": value for name, value in evaluated.items()}
        return self.trained_task

    @property
    def trained_task(self) -> dict[str, Any]:
        """The settings of the task of training, by dotted path."""
        return {name: value for name, value in self.settings.items() if name.startswith("task.")}

    @cached_property
    def measures(self) -> dict[str, float]:
        """Numbers by name; missing and NaN values are left out.

        The names are `error`, `error_last`, `raw_error`, `excess`, `regret`, `regret_last`, `emerged_at`, `step`,
        `seconds`, `flops`, and the task's measures. `regret` and `emerged_at` of older records are absent here, and
        `[]` computes them. `[]` also computes `reached 0.05`, the steps until the validation regret is below .05.
        """
        values = self._tables.values(self._row, "measures")
        return {name: float(value) for name, value in values.items() if isinstance(value, int | float)}

    @property
    def examples(self) -> list[dict[str, str]]:
        """Answers that a person can read, each with `given`, `answer` and `wanted`; empty if the task has none."""
        text = self._tables.values(self._row, "measures").get(EXAMPLES_TAG)
        return json.loads(text) if isinstance(text, str) else []

    def __getitem__(self, measure: str) -> float:
        """The value of a measure, NaN if the trial has none."""
        if measure in self.measures:
            return self.measures[measure]
        of_curve = CURVE_MEASURES.get(measure)
        if of_curve and of_curve.grid == "regret":
            return self._regret(of_curve.query)
        milestone = Milestone.parse(measure)
        if milestone and milestone.unit == "steps" and (passed := self.passed(milestone)) and passed.emerged:
            return passed.by
        return float("nan")

    def _regret(self, query: Query) -> float:
        """The regret of an older record: the error less the floor on the same prompts."""
        floor = (
            self.floor if "raw_error" in self.measures else None
        )  # before the evaluation, errors are of validation
        if floor is None:
            return float("nan")
        least = floor.error.mean() if query == "mean" else floor.error[-1]
        return self["error" if query == "mean" else "error_last"] - float(least)

    @property
    def floor(self) -> MeanFloor | None:
        """The floor of the evaluation task on the evaluation prompts; None if the floor has not been computed."""
        return self._tables.floor(self.task, "evaluate")

    @property
    def validation_floor(self) -> MeanFloor | None:
        """The floor of the task of training on the validation prompts; None if the floor has not been computed."""
        return self._tables.floor(self.trained_task, "validate")

    @property
    def learning(self) -> LearningState | None:
        """Whether the net has learnt and its training is over. None without reports, or if no floor was computed."""
        return self._tables.learning(self.trial)

    @property
    def learnt(self) -> float:
        """1 if the net has left the plateau, 0 if not; NaN without a state, or if the task has no room."""
        emergence = self.learning.emergence if self.learning else None
        return float(emergence.emerged) if emergence else math.nan

    def passed(self, milestone: Milestone) -> Emergence | None:
        """The two reports between which the training passed, in steps whatever the unit.

        None without reports, if no floor was computed, or if the plateau is asked for and the task has no room.
        """
        reports = self._tables.reports(self)
        return reports and milestone.passed(reports)

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

    @property
    def floor_solver(self) -> str:
        """The kind of the solver whose error is the floor; empty if no floor is known."""
        return self.floor.name if self.floor and self.floor.how != "none" else ""

    @property
    def last_loop(self) -> int:
        """The last loop of the curve; 0 without a curve."""
        return self.curve.last_loop

    @property
    def looped(self) -> bool:
        """True if the number of loops can be chosen after the training."""
        return "training.loops" in self.settings

    def after(self, loop: int, measure: str) -> float:
        """A measure of a net or an algorithm after a loop or step, or after the last one if that is earlier.

        A measure without a curve, such as the reward of acting, has one value.
        """
        if not self.curve or measure not in CURVE_MEASURES:
            return self[measure]
        of_curve = CURVE_MEASURES[measure]
        return of_curve.at(getattr(self.curve, of_curve.grid)[self.curve.row(loop)])

    @property
    def loop(self) -> int:
        """T, the loop at which the trial is judged; the last layer of a net of fixed depth."""
        return self._loop

    @cached_property
    def _loop(self) -> int:
        loops, last = self.settings.get("training.loops"), self.curve.last_loop
        if loops is None:
            return last
        return min(int(loops), last) if last else int(loops)

    @property
    def solver(self) -> str:
        """The name of a baseline's algorithm. Baselines of one kind also show the settings in which they differ."""
        kind = self.settings.get("solver.kind") or self.settings.get("baseline.kind")
        return str(self.label or kind or "").replace("_", " ")

    @property
    def algorithm(self) -> str:
        """The name of a baseline's algorithm for readers."""
        return readable(self.solver)


@dataclass(frozen=True, eq=False)
class CellResult:
    """One cell of a study: one combination of scientific settings, with its trials in the order of their numbers."""

    key: str
    label: str
    index: int
    """The cell's place in the study. Figures derive colour and marker from the index."""
    values: Mapping[str, Any]
    """The scientific settings by dotted path."""
    tuning: tuple[TrialResult, ...]
    replicates: tuple[TrialResult, ...]
    """The replicates of the training that answers: the longest that `until.steps` has ordered."""
    others: tuple[TrialResult, ...]
    """Replicates of shorter trainings, and of longer ones that are under way."""
    _baselines: tuple[TrialResult, ...] = field(repr=False)

    @property
    def name(self) -> str:
        """The label for readers: `AlgoFormer, loops=4`. Empty for the only cell of a study."""
        return readable(self.label)

    @property
    def steps_factor(self) -> int:
        """The steps of the runs over the steps of the study."""
        return max((run.steps_factor for run in self.runs), default=1)

    @property
    def replicated(self) -> bool:
        """True if finished replicates answer for the cell, False if its best tuning trial does."""
        return any(trial.finished for trial in self.replicates)

    @property
    def runs(self) -> tuple[TrialResult, ...]:
        """The trials that answer for the cell: its finished replicates, else its best tuning trial."""
        return self._runs

    @cached_property
    def _runs(self) -> tuple[TrialResult, ...]:
        replicates = [trial for trial in self.replicates if trial.finished]
        tuned = [trial for trial in self.tuning if trial.finished]
        return answering_runs(
            replicates, tuned, lambda trial: settings_key(trial.settings), lambda trial: trial["error"]
        )

    @property
    def curves(self) -> tuple[TrialCurve, ...]:
        """The curves of the runs that have one."""
        return tuple(trial.curve for trial in self.runs if trial.curve)

    @cached_property
    def learnt(self) -> Learnt:
        """How many of the runs have left the plateau, and how many are still falling."""
        return Learnt.count(run.learning for run in self.runs)

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
    """

    study: Description
    """The study's description."""
    trials: pd.DataFrame
    """The table `trials` of `loopscale query`, for this study only."""
    curves: pd.DataFrame
    """The table `curves`, for this study only."""
    history: pd.DataFrame
    """The table `history`, for this study only."""
    provenance: Mapping[str, Any] = field(default_factory=dict)
    """Where the records come from, for the report."""
    missing: str = ""
    """If there are no records: one line that says so and how to make them. Otherwise empty."""
    origin: str = ""
    """The name of the store that was read. A folder of the project is given as a relative path."""
    store: Store | None = None
    known_floors: Floors | None = None
    """The floors of the tasks. By default the floors of the store."""
    compute_floors: bool = True
    """True if a floor that the store lacks is computed at its first use."""

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
    def claim_specs(self) -> tuple[ClaimSpec, ...]:
        """The claims of the study's file, or the recorded claims if there is no file (see `load.with_claims`)."""
        return tuple(map(ClaimSpec.model_validate, self.study.get("claims") or ()))

    @cached_property
    def everything(self) -> tuple[TrialResult, ...]:
        """Every recorded trial and baseline, also of cells that left the study."""
        return self._tables.trials

    @cached_property
    def _tables(self) -> "_Tables":
        prompts = (self.study.get("evaluate") or {}).get("prompts", EVALUATION_PROMPTS)
        return _Tables(self.trials, self.curves, self.history, lambda: self.floors, prompts)

    @cached_property
    def floors(self) -> Floors:
        """The floors of the tasks, read from the store at the first use."""
        return self.known_floors or Floors.of(self.store, self.compute_floors)

    def floor(self, cell: CellResult) -> MeanFloor | None:
        """The floor of a cell's task on the evaluation prompts; None without runs, or if no floor was computed."""
        return cell.runs[0].floor if cell.runs else None

    def floor_keys(self) -> set[str]:
        """The keys of the floors that the results use: each task on its validation and evaluation prompts."""
        return self._tables.floor_keys()

    @property
    def learnt(self) -> Learnt:
        """How many of the runs that answer for the cells have left the plateau."""
        return sum((cell.learnt for cell in self.cells), Learnt(0, 0))

    @cached_property
    def trained(self) -> tuple[TrialResult, ...]:
        """Every recorded trial except the baselines."""
        return tuple(trial for trial in self.everything if trial.role != "baseline")

    @property
    def present(self) -> tuple[TrialResult, ...]:
        """The recorded trials of the cells that the study has now. `run`, `list` and reports count these trials."""
        return tuple(trial for cell in self.cells for trial in (*cell.tuning, *cell.replicates))

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
        factors = dict.fromkeys((cell["key"] for cell in self.study["cells"]), 1)
        if decisions := self.study.get("decisions"):
            replicates = {key: of_cell.get((key, "replicate"), ()) for key in factors}
            finished = {
                key: {trial.steps_factor for trial in trials if trial.finished}
                for key, trials in replicates.items()
            }
            factors = answering_factors(recorded_decisions(decisions), finished)
        cells = []
        for index, cell in enumerate(self.study["cells"]):
            tuning, trained = (
                tuple(of_cell.get((cell["key"], role), ())) for role in ("tuning", "replicate")
            )
            replicates = tuple(trial for trial in trained if trial.steps_factor == factors[cell["key"]])
            others = tuple(trial for trial in trained if trial.steps_factor != factors[cell["key"]])
            about = (cell["key"], cell["label"], index, cell["values"])
            cells.append(CellResult(*about, tuning, replicates, others, self.baselines))
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
        names = _task_names([task for _, task in tasks])
        groups: dict[str, list[CellResult]] = {}
        for (cell, _), name in zip(tasks, names, strict=True):
            groups.setdefault(name, []).append(cell)
        return groups

    def logs(self, of: str = "error") -> Array:
        """The logarithm of a measure, [cells, seeds], as `table_by_seed` gives it."""
        if of not in self._logs:
            self._logs[of] = self.table_by_seed(lambda _, trial: trial[of])
        return self._logs[of]

    @cached_property
    def _logs(self) -> dict[str, Array]:
        return {}

    @cached_property
    def learnt_by_seed(self) -> Array:
        """1 for every run that has learnt, 0 for every other run, [cells, seeds]. NaN if the records do not say."""
        return values_by_seed(self.cells, lambda _, trial: trial.learnt)

    def table_by_seed(self, value: Callable[[CellResult, TrialResult], float]) -> Array:
        """The logarithm of a value of every run, [cells, seeds], as `stats.contrasts` expects it.

        NaN where a cell lacks the seed or the value is NaN or negative; -inf for 0.
        """
        return logs_by_seed(self.cells, value)


def plain(value: Any) -> Any:
    """The value as a plain Python value. A whole float becomes an integer: a column with gaps holds floats only."""
    value = value.item() if isinstance(value, np.generic) else value
    return int(value) if isinstance(value, float) and value.is_integer() and abs(value) < 2**53 else value


def mean(values: Iterable[float] | Array) -> float:
    """The mean of the values that are not NaN; NaN if there are none."""
    values = np.asarray(list(values) if not isinstance(values, np.ndarray) else values, dtype=np.float64)
    kept = values[~np.isnan(values)]
    return float(kept.mean()) if kept.size else float("nan")


def settings_key(settings: Mapping[str, Any]) -> str:
    """Settings as text that can be compared."""
    return repr(sorted(settings.items(), key=lambda item: item[0]))


def part_of(settings: Mapping[str, Any], prefix: str) -> dict[str, Any]:
    """The settings below `prefix`, as their class expects them. Lists, which the mirror keeps as text, become lists."""
    return {
        path.removeprefix(prefix): _list_or_value(value)
        for path, value in settings.items()
        if path.startswith(prefix)
    }


def _list_or_value(value: Any) -> Any:
    """The list in a text that the mirror keeps; any other value, and text that is no list, as given."""
    if not (isinstance(value, str) and value.startswith("[")):
        return value
    try:
        return json.loads(value)
    except DAMAGE:
        return value


def _task_names(tasks: Sequence[Mapping[str, Any]]) -> list[str]:
    """For each task its kind, if kinds differ, and the settings in which tasks of this kind differ."""
    kinds = defaultdict[Any, list[Mapping[str, Any]]](list)
    for task in tasks:
        kinds[task.get("task.kind")].append(task)
    varied = {
        kind: [
            *(["task.kind"] if len(kinds) > 1 else []),
            *(
                path
                for path in dict.fromkeys(path for task in of_kind for path in task)
                if len({repr(task.get(path)) for task in of_kind}) > 1
            ),
        ]
        for kind, of_kind in kinds.items()
    }
    return [
        ", ".join(f"{path}={task[path]}" for path in varied[task.get("task.kind")] if path in task)
        for task in tasks
    ]


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

    def __init__(
        self,
        trials: pd.DataFrame,
        curves: pd.DataFrame,
        history: pd.DataFrame,
        floors: Callable[[], Floors],
        prompts: int,
    ) -> None:
        self._trials, self._curves, self._history = trials, curves, history
        self._floors, self._prompts = floors, prompts

    @cached_property
    def trials(self) -> tuple[TrialResult, ...]:
        keys = [str(key) for key in self._trials["trial"]] if len(self._trials) else []
        words = {name: self._words(name) for name in ("cell", "label", "role", "outcome", "detail")}
        return tuple(
            TrialResult(
                trial=key,
                number=int(number or 0),
                seed=None if seed is None else int(seed),
                steps_factor=int(factor or 1),
                _tables=self,
                _row=row,
                **dict(zip(words, texts, strict=True)),
            )
            for row, (key, number, seed, factor, *texts) in enumerate(
                zip(
                    keys,
                    *map(self._column, ("number", "seed", "steps_factor")),
                    *words.values(),
                    strict=True,
                )
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
                    "evaluated"
                    if name.startswith(EVALUATED_PREFIX)
                    else "settings"
                    if "." in name
                    else "measures"
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
        for name in ("error", "sem", "raw", "median", "regret", "regret_sem", *PLAY_COLUMNS):
            grids[name] = np.full((len(loops), len(points)), np.nan)
            if name in rows:
                grids[name][loop_at, point_at] = rows[name]
        regret = grids.pop("regret")
        return TrialCurve(
            loops, points, **grids, _recorded_regret=regret, _floor=lambda: self._by_key[trial].floor
        )

    @cached_property
    def _by_key(self) -> dict[str, TrialResult]:
        return {trial.trial: trial for trial in self.trials}

    def floor(self, task: Mapping[str, Any], purpose: Literal["validate", "evaluate"]) -> MeanFloor | None:
        prompts = self._prompts if purpose == "evaluate" else VALIDATION_PROMPTS
        return self._floors().floor(part_of(task, "task."), purpose, prompts) if task else None

    def floor_keys(self) -> set[str]:
        evaluated = {settings_key(trial.task): trial.task for trial in self.trials}
        nets = [trial for trial in self.trials if trial.role != "baseline"]
        trained = {settings_key(trial.trained_task): trial.trained_task for trial in nets}
        return {
            *(floor_key(part_of(task, "task."), "evaluate", self._prompts) for task in evaluated.values()),
            *(floor_key(part_of(task, "task."), "validate", VALIDATION_PROMPTS) for task in trained.values()),
        }

    def learning(self, trial: str) -> LearningState | None:
        """The state of a training. A tuning trial is judged with the scatter of the replicates, if there are any."""
        if trial not in self._states:
            history = self.reports(self._by_key[trial])
            self._states[trial] = history and learning_state(history, self._scatter)
        return self._states[trial]

    @cached_property
    def _states(self) -> dict[str, LearningState | None]:
        return {}

    @cached_property
    def _scatter(self) -> PooledVariance | None:
        """The scatter between reports, pooled over replicates; without any, over the best tuning trial of each cell."""
        finished = [trial for trial in self.trials if trial.finished and trial.role != "baseline"]
        pooled = [trial for trial in finished if trial.role == "replicate"]
        if not pooled:
            by_cell = dict[str, TrialResult]()
            for trial in sorted(finished, key=lambda trial: trial["error"], reverse=True):
                by_cell[trial.cell] = trial
            pooled = list(by_cell.values())
        return pooled_scatter([history for trial in pooled if (history := self.reports(trial))])

    def reports(self, trial: TrialResult) -> History | None:
        """The validations of a training with floor and ignorance on the same prompts."""
        steps, error = self.history(trial.trial, "error")
        steps, error = (
            steps[steps > 0],
            error[steps > 0],
        )  # step 0 is before training
        if not len(steps):
            return None
        if "validate_floor" in trial.measures:
            least, ignorance = trial.measures["validate_floor"], trial.measures["validate_ignorance"]
        else:
            floor = self.floor(trial.trained_task, "validate")
            if floor is None:
                return None
            least, ignorance = float(floor.error.mean()), float(floor.ignorance.mean())
        return History(steps.astype(np.float64), error, least, ignorance)

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
