"""The expected share of runs that learn: from the study's own records, and from a table that ships with the package.

The table has a row for each task and model, over all studies of the project with records, with the fitted model of the
step of emergence (`loopscale.stats.emergence_times`). If several recipes were recorded, each has a row too. The command
`make noise` builds the table again.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources

from loopscale.stats.emergence_times import (
    Cell,
    EmergenceTimes,
    PlannedCell,
    fit_emergence_times,
)
from loopscale.stats.power import percent
from loopscale.studies.csv_rows import read_rows
from loopscale.studies.recipes import ANY_RECIPE, Recipe

EMERGENCE_FILE = "emergence.csv"
ANY = ""
"""In place of a task or a model: all of them together."""
ENOUGH_LEARN = 0.8
"""A plan warns of recipes with a smaller expected share of runs that learn."""


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
    runs: Cell
    recipe: Recipe


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
    level: float
    level_error: float
    study_sd: float
    cell_sd: float
    run_sd: float

    @property
    def recipe(self) -> Recipe:
        return Recipe(self.optimizer, self.init)

    @property
    def times(self) -> EmergenceTimes:
        return EmergenceTimes(self.level, self.level_error, self.study_sd, self.cell_sd, self.run_sd)


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

    @property
    def beyond(self) -> bool:
        """True if planned trainings are longer than all recorded trainings."""
        return self.most_steps > self.recorded_steps[1]


def emergence_rows(cells: Iterable[RecordedCell]) -> list[EmergenceRow]:
    """The rows of the table.

    A recipe has the row of its model as prior, a model on a task the row of the task, and the task that of all tasks.
    """
    cells = list(cells)
    everything = _row(cells, ANY, ANY)
    rows = [everything]
    for task in sorted({cell.task for cell in cells}):
        of_task = [cell for cell in cells if cell.task == task]
        rows.append(whole := _row(of_task, task, ANY, everything))
        for model in sorted({cell.model for cell in of_task}):
            of_model = [cell for cell in of_task if cell.model == model]
            rows.append(mixed := _row(of_model, task, model, whole))
            recipes = sorted({cell.recipe for cell in of_model})
            for recipe in recipes if len(recipes) > 1 else ():
                of_recipe = [cell for cell in of_model if cell.recipe == recipe]
                rows.append(_row(of_recipe, task, model, mixed, recipe))
    return rows


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
        groups.setdefault((cell.study, cell.task, cell.model), []).append(cell.runs)
    if general:
        spread = math.hypot(general.study_sd, general.level_error)
        times = fit_emergence_times(list(groups.values()), general.level, spread)
    else:
        times = fit_emergence_times(list(groups.values()))
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
        times.level,
        times.level_error,
        times.study_sd,
        times.cell_sd,
        times.run_sd,
    )


@cache
def shipped_times() -> Mapping[tuple[str, str, Recipe], EmergenceRow]:
    """The rows of the table that ships with the package, by task, model and recipe."""
    text = resources.files("loopscale.studies").joinpath(EMERGENCE_FILE).read_text(encoding="utf-8")
    return {(row.task, row.model, row.recipe): row for row in read_rows(EmergenceRow, text)}


@dataclass(frozen=True)
class PlannedRuns:
    """Planned runs of one cell."""

    label: str
    task: str
    model: str
    steps: int
    runs: int
    recipe: Recipe


def chance_that_all_learn(planned: Sequence[PlannedRuns], recorded: Sequence[RecordedCell] = ()) -> float:
    """The chance that all planned runs of a study learn, with the study's own records.

    Runs whose chance is not known count as runs that learn, see `unknown_learning`.
    """
    chance = 1.0
    for kinds, cells in _known(planned, recorded).items():
        own = _own(recorded, *kinds)
        plans = [PlannedCell(cell.steps, cell.runs, own.pop(cell.label, ())) for cell in cells]
        chance *= _find(*kinds)[0].times.chance(plans, list(own.values()))
    return chance


def expected_learning(
    planned: Sequence[PlannedRuns], recorded: Sequence[RecordedCell] = ()
) -> list[ExpectedLearning]:
    """The expected share of learnt runs for each task, model and recipe among the planned runs, if it is known."""
    expected: list[ExpectedLearning] = []
    for kinds, cells in _known(planned, recorded).items():
        row, source = _find(*kinds)
        own = _own(recorded, *kinds)
        shares = [
            row.times.chance(
                [PlannedCell(cell.steps, 1, own.get(cell.label, ()))],
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
            )
        )
    return expected


def recipe_remarks(planned: Sequence[PlannedRuns], recorded: Sequence[RecordedCell] = ()) -> Iterator[str]:
    """Yield one sentence for each task and model whose recipe lets few runs learn, if the records know a better one."""
    for (task, model, recipe), cells in _known(planned, recorded).items():
        [own] = expected_learning(cells, recorded)
        if own.share >= ENOUGH_LEARN:
            continue
        others = [row.recipe for row in shipped_times().values() if (row.task, row.model) == (task, model)]
        tried = [
            (expected_learning([replace(cell, recipe=other) for cell in cells])[0], other)
            for other in others
            if other not in (recipe, ANY_RECIPE)
        ]
        better, name = max(tried, key=lambda each: each[0].share, default=(own, recipe))
        if better.share > own.share:
            steps = f"{own.most_steps:,} steps" if own.least_steps == own.most_steps else "these steps"
            yield (
                f"with {recipe.words}, {percent(own.share)} of {model} on {task} are expected to learn within {steps}; "
                f"with {name.words}, {percent(better.share)} ({better.emerged} of {better.runs} recorded nets have "
                f"learnt): write {name.remedy}"
            )


def unknown_learning(planned: Sequence[PlannedRuns], recorded: Sequence[RecordedCell] = ()) -> Iterator[str]:
    """Yield one sentence for each task on which no net was recorded: other tasks say nothing of its nets."""
    known = _known(planned, recorded)
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
    planned: Sequence[PlannedRuns], recorded: Sequence[RecordedCell]
) -> dict[tuple[str, str, Recipe], list[PlannedRuns]]:
    """The planned runs of tasks with records: in the package, or of these very kinds in this study."""
    return {
        kinds: cells
        for kinds, cells in _by_kinds(planned).items()
        if (kinds[0], ANY, ANY_RECIPE) in shipped_times() or _own(recorded, *kinds)
    }


def _by_kinds(planned: Sequence[PlannedRuns]) -> dict[tuple[str, str, Recipe], list[PlannedRuns]]:
    groups: dict[tuple[str, str, Recipe], list[PlannedRuns]] = {}
    for cell in planned:
        groups.setdefault((cell.task, cell.model, cell.recipe), []).append(cell)
    return groups


def _own(recorded: Sequence[RecordedCell], task: str, model: str, recipe: Recipe) -> dict[str, Cell]:
    """The recorded runs of a model on a task with a recipe, by the label of the cell."""
    kinds = task, model, recipe
    return {cell.label: cell.runs for cell in recorded if (cell.task, cell.model, cell.recipe) == kinds}


def _find(task: str, model: str, recipe: Recipe) -> tuple[EmergenceRow, str]:
    """The most special row for a model on a task with a recipe, and its runs in words."""
    rows = shipped_times()
    if row := rows.get((task, model, recipe)):
        return row, f"{model} on {task} with {recipe.words}"
    if row := rows.get((task, model, ANY_RECIPE)):
        return row, f"{model} on {task}"
    if row := rows.get((task, ANY, ANY_RECIPE)):
        return row, f"all models on {task}"
    return rows[ANY, ANY, ANY_RECIPE], "all models on all tasks"
