"""The expected share of runs that learn: from the study's own records, and from a table that ships with the package.

The table has a row for each task and model, over all studies of the project with records, with the fitted model of the
step of emergence (`loopscale.stats.emergence_times`). If several recipes were recorded, each has a row too. All rows
have the slopes of the dimension, the condition number and T over all records, see `loopscale.foresight.recipes`. The
command `make noise` builds the table again.
"""

import csv
import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache, cached_property
from importlib import resources
from io import StringIO
from typing import Any, TypeVar

from loopscale.foresight.recipes import ANY_RECIPE, USUAL, Covariates, Recipe
from loopscale.stats.emergence_times import Cell, EmergenceTimes, PlannedCell, fit_emergence_times
from loopscale.stats.power import percent

EMERGENCE_FILE = "emergence.csv"
ANY = ""
"""In place of a task or a model: all of them together."""
ENOUGH_LEARN = 0.8
"""A plan warns of recipes with a smaller expected share of runs that learn."""
LEAST_GAIN = 0.1
"""A plan names another recipe only if the share of runs that learn is larger by at least this much."""


@dataclass(frozen=True)
class RecordedCell:
    """The emergence of the replicates of one recorded cell."""

    study: str
    label: str
    task: str
    """The kind of the task."""
    model: str
    """The kind of the model."""
    steps: int
    """Steps of each training."""
    runs: tuple[tuple[float, float], ...]
    """Each run emerged after the first step, and not later than the second (inf if never)."""
    recipe: Recipe
    covariates: Covariates = USUAL

    @property
    def times(self) -> Cell:
        return Cell(self.runs, self.covariates)


@dataclass(frozen=True)
class EmergenceRow:
    """The model of the steps to emergence of one model on one task, and the trainings behind the model."""

    task: str
    """The kind of the task; `ANY` for all tasks."""
    model: str
    """The kind of the model; `ANY` for all models."""
    optimizer: str
    init: str
    """The recipe; empty for all recipes."""
    studies: int
    runs: int
    emerged: int
    """The number of runs that left the plateau."""
    least_steps: int
    most_steps: int
    """The lengths of the shortest and of the longest training."""
    most_dim: int
    """The largest dimension of a task."""
    level: float
    level_error: float
    study_sd: float
    cell_sd: float
    run_sd: float
    dim_slope: float
    condition_slope: float
    loops_slope: float
    """The slopes are those of all records together, see `Covariates`."""

    @property
    def recipe(self) -> Recipe:
        return Recipe(self.optimizer, self.init)

    @property
    def times(self) -> EmergenceTimes:
        slopes = self.dim_slope, self.condition_slope, self.loops_slope
        return EmergenceTimes(self.level, self.level_error, self.study_sd, self.cell_sd, self.run_sd, slopes)


@dataclass(frozen=True)
class ExpectedLearning:
    """The expected share of planned runs that learn, and the recorded runs behind the expectation."""

    share: float
    """The mean over the planned runs."""
    least_steps: int
    most_steps: int
    """The lengths of the shortest and of the longest planned training."""
    source: str
    """The kind of the recorded runs, in words."""
    runs: int
    """The number of recorded runs."""
    emerged: int
    """The number of these runs that have learnt."""
    studies: int
    recorded_steps: tuple[int, int]
    """The lengths of the shortest and of the longest recorded training."""
    own: int = 0
    """The number of recorded runs of this study, which count first."""
    larger_dim: bool = False
    """Whether a planned dimension is larger than all recorded ones."""

    @property
    def extrapolations(self) -> list[str]:
        """What the expectation assumes beyond the records, in words."""
        longer = self.most_steps > self.recorded_steps[1]
        dims = ["no recorded task has as many dimensions"] * self.larger_dim
        return ["no recorded training is as long"] * longer + dims


@dataclass(frozen=True)
class PlannedRuns:
    """Planned runs of one cell."""

    label: str
    task: str
    model: str
    steps: int
    runs: int
    recipe: Recipe
    covariates: Covariates = USUAL


@dataclass(frozen=True)
class EmergenceTable:
    """What recorded studies say of the trainings that learn."""

    rows: tuple[EmergenceRow, ...]

    @classmethod
    def of(cls, cells: Iterable[RecordedCell], tasks: Collection[str] | None = None) -> "EmergenceTable":
        """The table of recorded cells.

        A recipe has the row of its model as prior, a model on a task the row of the task, and the task that of all
        tasks.

        Parameters
        ----------
        tasks
            The kinds of tasks that have rows. All by default.
        """
        cells = list(cells)
        everything = _row(cells, ANY, ANY)
        rows = [everything]
        for task in sorted({cell.task for cell in cells if tasks is None or cell.task in tasks}):
            of_task = [cell for cell in cells if cell.task == task]
            rows.append(whole := _row(of_task, task, ANY, everything))
            for model in sorted({cell.model for cell in of_task}):
                of_model = [cell for cell in of_task if cell.model == model]
                rows.append(mixed := _row(of_model, task, model, whole))
                recipes = sorted({cell.recipe for cell in of_model})
                for recipe in recipes if len(recipes) > 1 else ():
                    of_recipe = [cell for cell in of_model if cell.recipe == recipe]
                    rows.append(_row(of_recipe, task, model, mixed, recipe))
        return cls(tuple(rows))

    @classmethod
    def read(cls, text: str) -> "EmergenceTable":
        """The table of a CSV file."""
        return cls(tuple(read_rows(EmergenceRow, text)))

    @property
    def text(self) -> str:
        """The table as a CSV file."""
        return write_rows(EmergenceRow, self.rows)

    @cached_property
    def by_kinds(self) -> Mapping[tuple[str, str, Recipe], EmergenceRow]:
        """The rows by task, model and recipe."""
        return {(row.task, row.model, row.recipe): row for row in self.rows}

    def chance_that_all_learn(
        self, planned: Sequence[PlannedRuns], recorded: Sequence[RecordedCell] = ()
    ) -> float:
        """The chance that all planned runs of a study learn, with the study's own records.

        Runs whose chance is not known count as runs that learn, see `unknown_learning`.
        """
        chance = 1.0
        for kinds, cells in self._known(planned, recorded).items():
            own = _own(recorded, *kinds)
            plans = [
                PlannedCell(cell.steps, cell.runs, own.pop(cell.label, Cell((), cell.covariates)))
                for cell in cells
            ]
            chance *= self._find(*kinds)[0].times.chance(plans, list(own.values()))
        return chance

    def expected_learning(
        self, planned: Sequence[PlannedRuns], recorded: Sequence[RecordedCell] = ()
    ) -> list[ExpectedLearning]:
        """The expected share of learnt runs for each task, model and recipe among the planned runs, if it is known."""
        expected: list[ExpectedLearning] = []
        for kinds, cells in self._known(planned, recorded).items():
            row, source = self._find(*kinds)
            own = _own(recorded, *kinds)
            shares = [
                row.times.chance(
                    [PlannedCell(cell.steps, 1, own.get(cell.label, Cell((), cell.covariates)))],
                    [runs for label, runs in own.items() if label != cell.label],
                )
                for cell in cells
            ]
            lengths = [cell.steps for cell in cells]
            known = [cell for cell in recorded if (cell.task, cell.model, cell.recipe) == kinds]
            steps = [row.least_steps, row.most_steps, *(cell.steps for cell in known)]
            expected.append(
                ExpectedLearning(
                    sum(share * cell.runs for share, cell in zip(shares, cells, strict=True))
                    / sum(cell.runs for cell in cells),
                    min(lengths),
                    max(lengths),
                    source,
                    row.runs,
                    row.emerged,
                    row.studies,
                    (min(steps), max(steps)),
                    sum(len(cell.runs) for cell in known),
                    max(cell.covariates.dimension for cell in cells)
                    > max(row.most_dim, *(cell.covariates.dimension for cell in known), 0),
                )
            )
        return expected

    def recipe_remarks(
        self, planned: Sequence[PlannedRuns], recorded: Sequence[RecordedCell] = ()
    ) -> Iterator[str]:
        """Yield a sentence for each task and model whose recipe lets few runs learn, if a better one is recorded."""
        for (task, model, recipe), cells in self._known(planned, recorded).items():
            [own] = self.expected_learning(cells, recorded)
            if own.share >= ENOUGH_LEARN:
                continue
            others = [row.recipe for row in self.rows if (row.task, row.model) == (task, model)]
            tried = [
                (self.expected_learning([replace(cell, recipe=other) for cell in cells])[0], other)
                for other in others
                if other not in (recipe, ANY_RECIPE)
            ]
            better, name = max(tried, key=lambda each: each[0].share, default=(own, recipe))
            if better.share - own.share >= LEAST_GAIN:
                steps = f"{own.most_steps:,} steps" if own.least_steps == own.most_steps else "these steps"
                yield (
                    f"with {recipe.words}, {percent(own.share)} of {model} on {task} are expected to learn within "
                    f"{steps}; with {name.words}, {percent(better.share)} ({better.emerged} of {better.runs} recorded "
                    f"nets have learnt): write {name.remedy}"
                )

    def unknown_learning(
        self, planned: Sequence[PlannedRuns], recorded: Sequence[RecordedCell] = ()
    ) -> Iterator[str]:
        """Yield one sentence for each task on which no net was recorded: other tasks say nothing of its nets."""
        known = self._known(planned, recorded)
        unknown: dict[str, list[str]] = {}
        for task, model, recipe in _by_kinds(planned):
            if (task, model, recipe) not in known:
                unknown.setdefault(task, []).append(model)
        for task, models in unknown.items():
            named = " and ".join(dict.fromkeys(models))
            yield (
                f"how many {named} learn on {task} is not known, because no net was recorded there; the chances of "
                "verdicts hold if all of them learn"
            )

    def _known(
        self, planned: Sequence[PlannedRuns], recorded: Sequence[RecordedCell]
    ) -> dict[tuple[str, str, Recipe], list[PlannedRuns]]:
        """The planned runs of tasks with records: in the package, or of these very kinds in this study."""
        return {
            kinds: cells
            for kinds, cells in _by_kinds(planned).items()
            if (kinds[0], ANY, ANY_RECIPE) in self.by_kinds or _own(recorded, *kinds)
        }

    def _find(self, task: str, model: str, recipe: Recipe) -> tuple[EmergenceRow, str]:
        """The most special row for a model on a task with a recipe, and its runs in words."""
        rows = self.by_kinds
        if row := rows.get((task, model, recipe)):
            return row, f"{model} on {task} with {recipe.words}"
        if row := rows.get((task, model, ANY_RECIPE)):
            return row, f"{model} on {task}"
        if row := rows.get((task, ANY, ANY_RECIPE)):
            return row, f"all models on {task}"
        return rows[ANY, ANY, ANY_RECIPE], "all models on all tasks"


@cache
def shipped_times() -> EmergenceTable:
    """The table that ships with the package."""
    text = resources.files("loopscale.foresight").joinpath(EMERGENCE_FILE).read_text(encoding="utf-8")
    return EmergenceTable.read(text)


def _row(
    cells: Sequence[RecordedCell],
    task: str,
    model: str,
    general: EmergenceRow | None = None,
    recipe: Recipe = ANY_RECIPE,
) -> EmergenceRow:
    """The model of these cells. The cells of one study, task and model share the effect of the study."""
    groups: dict[tuple[str, str, str], list[Cell]] = {}
    for cell in cells:
        groups.setdefault((cell.study, cell.task, cell.model), []).append(cell.times)
    times = fit_emergence_times(list(groups.values()), general.times if general else None)
    ends = [by for cell in cells for _, by in cell.runs]
    lengths = [cell.steps for cell in cells]
    return EmergenceRow(
        task,
        model,
        *recipe,
        len({cell.study for cell in cells}),
        len(ends),
        sum(map(math.isfinite, ends)),
        min(lengths),
        max(lengths),
        max(cell.covariates.dimension for cell in cells),
        times.level,
        times.level_error,
        times.study_sd,
        times.cell_sd,
        times.run_sd,
        *times.slopes,
    )


def _by_kinds(planned: Sequence[PlannedRuns]) -> dict[tuple[str, str, Recipe], list[PlannedRuns]]:
    groups: dict[tuple[str, str, Recipe], list[PlannedRuns]] = {}
    for cell in planned:
        groups.setdefault((cell.task, cell.model, cell.recipe), []).append(cell)
    return groups


def _own(recorded: Sequence[RecordedCell], task: str, model: str, recipe: Recipe) -> dict[str, Cell]:
    """The recorded runs of a model on a task with a recipe, by the label of the cell."""
    kinds = task, model, recipe
    return {cell.label: cell.times for cell in recorded if (cell.task, cell.model, cell.recipe) == kinds}


DIGITS = 4

Row = TypeVar("Row")


def read_rows(kind: type[Row], text: str) -> list[Row]:
    """The rows of a CSV file. The names of its columns are the fields of `kind`."""
    types: dict[str, Any] = {field.name: field.type for field in fields(kind)}  # pyright: ignore[reportArgumentType]
    return [
        kind(**{name: types[name](value) for name, value in line.items()})
        for line in csv.DictReader(StringIO(text))
    ]


def write_rows(kind: type[Row], rows: Iterable[Row]) -> str:
    """A CSV file of the rows, with `DIGITS` digits after the point."""
    names = [field.name for field in fields(kind)]  # pyright: ignore[reportArgumentType]
    lines = StringIO()
    writer = csv.writer(lines, lineterminator="\n")
    writer.writerow(names)
    for row in rows:
        values = [getattr(row, name) for name in names]
        writer.writerow(round(value, DIGITS) if isinstance(value, float) else value for value in values)
    return lines.getvalue()
