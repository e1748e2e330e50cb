"""Which figures a study's records allow, each with its title and with what it shows in words."""

# pandas types every selection as a union of all that it could be: those rules find nothing here but that.
# pyright: reportGeneralTypeIssues=false

from collections.abc import Iterator, Sequence

import pandas as pd

from loopscale.analysis import figures
from loopscale.analysis.answers.importance import RELIABLE, Importance
from loopscale.analysis.figures import tuning as tuning_figures
from loopscale.analysis.figures.curves import MEDIANS_ARE
from loopscale.analysis.laws.law import Law
from loopscale.analysis.report.page import Figure
from loopscale.analysis.tables import StudyTable, by_task, finished, several_objectives

MOST_GROUPS = 12
"""Task settings, and tuned cells, that get figures of their own."""
FEWEST_LINES = 5
"""Finished trials below which a table of the slices says more than lines do."""
MARKED = (
    " A ring marks T, the loop that was trained for; grey and dashed: classical algorithms; black: an exact"
    " bound below which no mean can be."
)

MEDIANS = (
    " Thin and dotted, from T on: the median over prompts, which a few prompts that explode do not move; it may lie"
    " below the bound, which is of the mean."
)


def pictures(
    study: StudyTable,
    trials: pd.DataFrame,
    curves: pd.DataFrame,
    history: pd.DataFrame,
    fitted: Sequence[Law],
    mattered: Sequence[Importance],
) -> Iterator[Figure]:
    """Every figure, those of the answer first, those of the tuning and the training last."""
    yield from _of_tasks(study, trials, curves)
    yield from _of_axes(study, trials, curves, fitted)
    yield from _of_tuning(study, trials, mattered)
    if len(history):
        text = "Validation error while the runs above were trained."
        yield Figure("Learning curves", text, "learning", figures.learning(study, trials, history))


def _of_tasks(study: StudyTable, trials: pd.DataFrame, curves: pd.DataFrame) -> Iterator[Figure]:
    for place, (name, cells) in enumerate(list(by_task(study, trials).items())[:MOST_GROUPS]):
        title = f": {name}" if name else ""
        text = "Error after every loop or layer, averaged over all queries, with 95 % bands over replicates."
        drawing = figures.against_loops(study, trials, curves, cells)
        marked = MARKED + (MEDIANS if any(drawing.select_traces({"name": MEDIANS_ARE})) else "")
        yield Figure(f"Error against loops{title}", text + marked, f"loops{place}", drawing)
        text = "Error at T against the pairs seen before the query, with 95 % bands over replicates."
        drawing = figures.against_points(study, trials, curves, cells)
        yield Figure(f"Error against points{title}", text, f"points{place}", drawing)
        text = "Mean error at T of every cell with its 95 % interval; the dashes are single runs."
        yield Figure(f"Replicates{title}", text, f"runs{place}", figures.replicates(study, trials, cells))


def _of_axes(
    study: StudyTable, trials: pd.DataFrame, curves: pd.DataFrame, fitted: Sequence[Law]
) -> Iterator[Figure]:
    for place, path in enumerate(figures.axes(study)):
        text = (
            "Mean error at T of every cell with its 95 % interval, over replicates; beside them classical algorithms "
            "on the same task, along loops or layers after as many steps."
        )
        drawing = figures.against_axis(study, trials, curves, path)
        yield Figure(f"Error against {path}", text, f"axis{place}", drawing)
    for place, (along, of) in enumerate(dict.fromkeys((law.along, law.of) for law in fitted)):
        mine = [law for law in fitted if (law.along, law.of) == (along, of)]
        text = (
            "Means over runs, fitted laws, and (dotted or dashed) what theory predicts: at its own height where it is "
            "exact for this very quantity, else its shape at the data's height."
        )
        yield Figure(f"Law: {of} along {along}", text, f"law{place}", figures.law(mine))


def _of_tuning(study: StudyTable, trials: pd.DataFrame, mattered: Sequence[Importance]) -> Iterator[Figure]:
    settings = tuning_figures.tuned(study, trials)
    for place, setting in enumerate(settings):
        text = (
            f"The error that each tried value of {setting} gave, by cell: finished trials, with crosses at the top for"
            " those that diverged or ran out of memory."
        )
        drawing = tuning_figures.tuning_slice(study, trials, setting)
        yield Figure(f"Tuning: {setting}", text, f"tuning{place}", drawing)
    several = [cell for cell in study["cells"] if len(_moved(trials, cell["key"], settings)) > 1]
    for place, cell in enumerate(several[:MOST_GROUPS]):
        text = "Every finished tuning trial as a line through its settings to its error; the best fifth is darkest."
        drawing = tuning_figures.parallel(study, trials, cell["key"], settings)
        name = cell["label"] or "the only cell"
        yield Figure(f"Tuning of {name}, all settings at once", text, f"parallel{place}", drawing)
    if any(one.shares for one in mattered):
        text = (
            "How much each setting tells the better quarter of a cell's trials from the others (PED-ANOVA), as shares"
            f" of a sum of 1. Hollow marks rest on fewer than {RELIABLE} trials and are unreliable."
        )
        yield Figure("Importance of what was tuned", text, "importance", tuning_figures.importances(mattered))
    if several_objectives(study):
        text = "Error against training cost of every finished point; the table above lists the front."
        yield Figure("Error against cost", text, "front", figures.front(study, trials))


def _moved(trials: pd.DataFrame, cell: str, settings: Sequence[str]) -> list[str]:
    """The settings that took more than one value in the cell, if it has trials enough to be drawn."""
    rows = finished(trials, "tuning", cell)
    if len(rows) < FEWEST_LINES:
        return []
    return [path for path in settings if path in rows and rows[path].nunique() > 1]
