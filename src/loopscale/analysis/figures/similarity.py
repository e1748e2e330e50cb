"""Nets in training beside the iterates of solvers: the best-matching iterate, and its similarity [@fu2023]."""

from collections.abc import Iterable

import numpy as np
import plotly.graph_objects as go
from typing_extensions import override

from loopscale.analysis.figures.base import Drawing, Figure, Part, Reported
from loopscale.analysis.figures.style import blank, mean_line, safe
from loopscale.analysis.recorded.results import CellResult, Results
from loopscale.core.titles import readable
from loopscale.stats.best_matches import HALF_MATCH, MATCH, SIMILARITY


def compared_solvers(results: Results) -> list[str]:
    """The kinds of the solvers that the runs were compared with in training."""
    metrics = results.history["metric"].unique()
    return sorted(name.removeprefix(SIMILARITY) for name in metrics if name.startswith(SIMILARITY))


def matches_along_training(results: Results, solver: str) -> go.Figure:
    """The best-matching iterate of a net's answer, by training step, with 95 % bands over runs.

    Of a looped net also the best-matching iterate of its answer after half of the loops.
    """
    title = f"best-matching iterate<br>of {readable(solver).replace('_', ' ')} (count)"
    figure = blank("training step (count)", title, log_x=False)
    lines = [(MATCH, ""), (HALF_MATCH, ", after half of the loops")]
    for prefix, place in lines:
        for cell in results.answered:
            index = cell.index + len(results.cells) * (prefix == HALF_MATCH)
            _add_line(figure, cell, prefix + solver, f"{safe(cell.name) or 'runs'}{place}", index)
    return figure


def similarity_along_training(results: Results, solver: str) -> go.Figure:
    """The similarity of a net's errors to those of its best-matching iterates, by training step."""
    title = f"similarity of errors<br>to {readable(solver).replace('_', ' ')} (cosine)"
    figure = blank("training step (count)", title, log_x=False)
    figure.update_yaxes(type="linear")
    for cell in results.answered:
        _add_line(figure, cell, SIMILARITY + solver, safe(cell.name) or "runs", cell.index)
    return figure


def _add_line(figure: go.Figure, cell: CellResult, metric: str, name: str, index: int) -> None:
    """The mean over the runs of a cell, at the steps that all of them have."""
    histories = [dict(zip(*run.history(metric), strict=True)) for run in cell.runs]
    known = [history for history in histories if history]
    if not known:
        return
    steps = sorted(set.intersection(*map(set, known)))
    values = np.array([[history[step] for history in known] for step in steps], np.float64)
    mean_line(figure, name, index, np.array(steps, np.float64), values.reshape(len(steps), len(known)))


class SolverFigure(Figure):
    """A figure for each solver that nets were compared with in training. The part is the solver's kind."""

    @override
    def parts(self, study: Reported) -> Iterable[Part]:
        return [(str(place), solver) for place, solver in enumerate(compared_solvers(study.results))]


class MatchesAlongTraining(SolverFigure, kind="trained_match"):
    """The best-matching iterate."""

    place = 800

    @override
    def draw(self, study: Reported, part: str) -> Drawing:
        named = readable(part).replace("_", " ")
        text = (
            f"The iterate of {named} whose errors are most similar to those of the net, on validation prompts. Along"
            " the loops a match of Newton's iteration grows linearly, and a match of gradient descent exponentially."
        )
        title = f"Matches of {named} along training"
        return Drawing(title, text, matches_along_training(study.results, part))


class SimilarityAlongTraining(SolverFigure, kind="trained_similarity"):
    """The similarity at the best match."""

    place = 810

    @override
    def draw(self, study: Reported, part: str) -> Drawing:
        text = (
            "The similarity at the best matches, the mean over the loops of a looped net. Solvers of one problem"
            " resemble each other, so a high similarity alone tells no algorithms apart."
        )
        title = f"Similarity to {readable(part).replace('_', ' ')} along training"
        return Drawing(title, text, similarity_along_training(study.results, part))
