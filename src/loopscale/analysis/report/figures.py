"""The figures of a study's report, each with a title and a caption."""

from collections.abc import Iterator, Sequence

from loopscale.analysis.answers.importance import RELIABLE, Importance
from loopscale.analysis.axes import independent_axes
from loopscale.analysis.figures import cells, curves, settings, training, tuning
from loopscale.analysis.figures.laws import law_figure
from loopscale.analysis.laws.law import Law
from loopscale.analysis.report.page import Figure
from loopscale.analysis.results import CellResult, Results

MOST_GROUPS = 12
"""The largest number of tasks, and of tuned cells, with figures of their own."""
FEWEST_LINES = 5
"""With fewer finished trials a cell has no figure of parallel coordinates."""
FEWEST_VALUES = 3
"""A numeric setting with fewer values has no figure."""
LEGEND = (
    " A ring marks T, the number of trained loops. Grey and dashed: classical algorithms. Black: exact lower bound of"
    " the mean error."
)
MEDIANS = (
    " Thin and dotted, from T on: the median over prompts, which a few very large errors do not change. The lower bound"
    " does not apply to the median."
)


def study_figures(
    results: Results, laws: Sequence[Law], importances: Sequence[Importance]
) -> Iterator[Figure]:
    """All figures: first the answers, then the tuning, then the training."""
    yield from _of_tasks(results)
    yield from _of_axes(results, laws)
    yield from _of_tuning(results, importances)
    if len(results.history):
        text = "Validation error during training of the runs that answer for each cell."
        yield Figure("Learning curves", text, "learning", training.learning_curves(results))


def _of_tasks(results: Results) -> Iterator[Figure]:
    for place, (name, of_task) in enumerate(list(results.tasks.items())[:MOST_GROUPS]):
        title = f": {name}" if name else ""
        text = "Error after every loop or layer, averaged over all queries, with 95 % bands over replicates."
        drawing = curves.against_loops(results, of_task)
        legend = LEGEND + (MEDIANS if any(drawing.select_traces({"name": curves.MEDIANS_ENTRY})) else "")
        yield Figure(f"Error against loops{title}", text + legend, f"loops{place}", drawing)
        text = "Error at T against the pairs seen before the query, with 95 % bands over replicates."
        drawing = curves.against_points(results, of_task)
        yield Figure(f"Error against points{title}", text, f"points{place}", drawing)
        text = "Mean error at T of every cell with its 95 % interval. The dashes are single runs."
        yield Figure(f"Replicates{title}", text, f"runs{place}", cells.replicates(results, of_task))


def _of_axes(results: Results, laws: Sequence[Law]) -> Iterator[Figure]:
    for place, path in enumerate(independent_axes(results, FEWEST_VALUES)):
        text = (
            "Mean error at T of every cell with its 95 % interval over replicates, and classical algorithms on the same"
            " task. Along loops or layers, algorithms are shown after as many steps."
        )
        yield Figure(f"Error against {path}", text, f"axis{place}", settings.against_axis(results, path))
    for place, (along, of) in enumerate(dict.fromkeys((law.along, law.of) for law in laws)):
        same = [law for law in laws if (law.along, law.of) == (along, of)]
        text = (
            "Means over runs, fitted laws, and the prediction of theory (dotted or dashed). A prediction that is exact"
            " for this quantity is drawn as is. Of any other prediction only the shape counts: its constant is fitted."
        )
        yield Figure(f"Law: {of} along {along}", text, f"law{place}", law_figure(same))


def _of_tuning(results: Results, importances: Sequence[Importance]) -> Iterator[Figure]:
    varied = tuning.varied_settings(results)
    for place, setting in enumerate(varied):
        text = (
            f"The error of finished trials for each tried value of {setting}, by cell. Crosses at the top mark trials"
            " that diverged or ran out of memory."
        )
        drawing = tuning.tuning_slice(results, setting)
        yield Figure(f"Tuning: {setting}", text, f"tuning{place}", drawing)
    several = [cell for cell in results.cells if _varied_count(cell, varied) > 1]
    for place, cell in enumerate(several[:MOST_GROUPS]):
        text = "Every finished tuning trial as a line through its settings to its error. The best fifth is darkest."
        drawing = tuning.parallel_coordinates(results, cell, varied)
        name = cell.label or "the only cell"
        yield Figure(f"Tuning of {name}, all settings at once", text, f"parallel{place}", drawing)
    if any(importance.shares for importance in importances):
        text = (
            "How strongly each setting distinguishes the better quarter of a cell's trials (PED-ANOVA). The shares of a"
            f" cell sum to 1. Hollow markers are unreliable, because they rest on fewer than {RELIABLE} trials."
        )
        drawing = tuning.importances(importances)
        yield Figure("Importance of the tuned settings", text, "importance", drawing)
    if results.two_objectives:
        text = "Error of every finished trial against its training cost. A table above lists the best points."
        yield Figure("Error against cost", text, "front", training.error_against_cost(results))


def _varied_count(cell: CellResult, settings: Sequence[str]) -> int:
    """The number of settings with more than one value in the cell; 0 if the cell has too few finished trials."""
    trials = [trial for trial in cell.tuning if trial.finished]
    if len(trials) < FEWEST_LINES:
        return 0
    return sum(len({repr(trial.settings.get(path)) for trial in trials}) > 1 for path in settings)
