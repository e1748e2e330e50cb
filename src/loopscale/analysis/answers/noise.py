"""The noise between the replicates of a study, as `loopscale plan` needs it for the next study.

`python -m loopscale.analysis.answers.noise FOLDER FILE` reads all exported studies of a folder, and writes the table
that ships with the package, and beside the file the table of the steps to emergence (`make noise`).
"""

import sys
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np

from loopscale.analysis.laws.law import samples
from loopscale.analysis.recorded.load import load_results
from loopscale.analysis.recorded.results import CellResult, Results, TrialResult
from loopscale.foresight.learning_times import EMERGENCE_FILE, EmergenceTable, RecordedCell
from loopscale.foresight.noise import MEASURES, NoiseRow, NoiseTable
from loopscale.foresight.recipes import Covariates, Recipe
from loopscale.questions.axes.base import LawAxis
from loopscale.questions.runs import logs_by_seed
from loopscale.records.stores.exported import ABOUT
from loopscale.records.stores.opening import open_store
from loopscale.stats.contrasts import Array, pool
from loopscale.stats.fitting import Fit, clean
from loopscale.stats.forms.base import Form, variants
from loopscale.stats.milestones import REACHED
from loopscale.stats.power import ReplicateNoise

LEAST_PLACES = 4
"""A rate along fewer loops or points says little."""


def noise_table(studies: Iterable[Results]) -> NoiseTable:
    """The noise by task, model and measure over all studies."""
    return NoiseTable.with_totals(part for results in studies for part in noise_rows(results))


def noise_rows(results: Results) -> Iterator[NoiseRow]:
    """The noise of one study, with a row for each task, model and measure. Only replicates count."""
    groups: dict[tuple[str, str], list[CellResult]] = {}
    for cell in results.cells:
        if cell.replicated:
            first = cell.runs[0]
            kinds = str(first.task["task.kind"]), str(first.settings["model.kind"])
            groups.setdefault(kinds, []).append(cell)
    asked = [
        measure for law in results.study.get("laws") or [] if (measure := law.get("of", "error")) != REACHED
    ]
    for (task, model), cells in groups.items():
        learnt = logs_by_seed(cells, _learnt)
        for measure in dict.fromkeys([*MEASURES, *asked]):
            logs = logs_by_seed(cells, lambda _, run, measure=measure: run[measure])
            yield from _row(task, model, measure, np.where(np.isnan(learnt), np.nan, logs), learnt == 0)
        for along, axis in LawAxis.choices().items():
            if axis.curve:
                rates = _rates(results, cells, along, axis.rate_form)
                yield from _rate_row(task, model, axis().rate_measure, rates)


def recorded_cells(results: Results) -> Iterator[RecordedCell]:
    """The emergence of the replicates of each cell. Runs without a known floor, or without room, do not count."""
    for cell in results.cells:
        if not cell.replicated:
            continue
        first = cell.runs[0]
        states = [run.learning.emergence for run in cell.runs if run.learning]
        if runs := [(state.after, state.by) for state in states if state]:
            kinds = str(first.task["task.kind"]), str(first.settings["model.kind"])
            steps = int(first.settings["training.steps"])
            recipe, covariates = Recipe.of(first.settings), Covariates.of(first.task | first.settings)
            yield RecordedCell(results.name, cell.label, *kinds, steps, tuple(runs), recipe, covariates)


def _learnt(_: CellResult, run: TrialResult) -> float:
    """1 if a run has learnt, or if no floor is known; inf on the plateau; NaN if its task has no room."""
    state = run.learning
    if state is None or not state.floor_known:
        return 1.0
    if state.emergence is None:
        return float("nan")
    return 1.0 if state.emergence.emerged else float("inf")


def _row(task: str, model: str, measure: str, logs: Array, learnt: np.ndarray) -> Iterator[NoiseRow]:
    logs = np.where(np.isfinite(logs), logs, np.nan)
    noise = ReplicateNoise.of(logs, learnt)
    if noise is not None:
        runs = np.isfinite(logs)
        freedom = sum(int(row.sum()) - 1 for row in runs & learnt if row.any())
        yield NoiseRow.of(task, model, measure, noise, int(runs.sum()), freedom)


def _rates(results: Results, cells: Sequence[CellResult], along: str, form: str) -> list[Array]:
    """The rates of each cell's learnt runs along a curve, relative to their mean."""
    keys = {cell.label: cell for cell in cells}
    groups = list[Array]()
    shape: Form = variants(form)[0]
    for sample in samples(results, "error", along):
        if (cell := keys.get(sample.cell)) is None:
            continue
        data = clean(shape, sample.x, sample.y, sample.group)
        if len(np.unique(data.x)) < LEAST_PLACES:
            continue
        kept = [_learnt(cell, run) == 1.0 for run in cell.runs]
        rates = np.array(Fit.of(shape, data).rates())
        if len(rates) == len(kept) and (rates := rates[kept]).size > 1 and rates.mean() > 0:
            groups.append(rates / rates.mean())
    return groups


def _rate_row(task: str, model: str, measure: str, groups: Sequence[Array]) -> Iterator[NoiseRow]:
    if spread := pool(groups):
        runs = sum(map(len, groups))
        noise = ReplicateNoise(float(np.sqrt(spread.variance)))
        yield NoiseRow.of(task, model, measure, noise, runs, spread.freedom)


def exported_studies(folder: Path) -> Iterator[Results]:
    """The exported studies below a folder, in the order of their names."""
    for about in sorted(folder.glob(f"*/{ABOUT}")):
        store = open_store(about.parent)
        for name in sorted(store.studies()):
            yield load_results(store, name)


def main(folder: str, file: str) -> None:
    """Write the tables of all studies below a folder."""
    studies = list(exported_studies(Path(folder)))
    Path(file).write_text(noise_table(studies).text(), encoding="utf-8")
    table = EmergenceTable.of(cell for results in studies for cell in recorded_cells(results))
    Path(file).with_name(EMERGENCE_FILE).write_text(table.text, encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
