"""Figures of tuning and training: slices, parallel coordinates, importance, error against cost, learning curves.

Parallel coordinates are drawn as lines, because the basic bundle of plotly in a report has no such trace.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go
from typing_extensions import override

from loopscale.analysis.answers.importance import RELIABLE, Importance
from loopscale.analysis.figures.base import MOST_GROUPS, Drawing, Figure, Part, Reported
from loopscale.analysis.figures.style import (
    ERROR_TITLE,
    as_floats,
    blank,
    colour_of,
    rounded,
    safe,
    scatter,
    series,
    symbol_of,
)
from loopscale.analysis.recorded.results import CellResult, Results, TrialResult
from loopscale.core.palette import FIFTHS, NAMES_OF_FIFTHS, SYMBOLS
from loopscale.core.titles import readable

WITHOUT_ERROR = ("diverged", "out_of_memory")


def varied_settings(results: Results) -> list[str]:
    """The settings, numeric or not, that differ between tuning trials of one cell."""
    tuned = results.tuned or [path for trial in results.trained for path in trial.settings]
    return [
        path
        for path in dict.fromkeys(sorted(tuned) if not results.tuned else tuned)
        if any(len(_values(cell.tuning, path)) > 1 for cell in results.cells)
    ]


def tuning_slice(results: Results, setting: str) -> go.Figure:
    """The error of each tried value of a setting, by cell. A cross at the top is a trial that left no error."""
    tried = [trial for cell in results.cells for trial in cell.tuning if setting in trial.settings]
    words = not np.isfinite(as_floats(trial.settings[setting] for trial in tried)).all()
    figure = blank(setting, ERROR_TITLE, log_x=not words and _log(results, setting))
    highest = max([1e-12, *(trial["error"] for trial in tried if trial.finished)])

    def places(trials: Sequence[TrialResult]) -> list[Any]:
        values = [trial.settings[setting] for trial in trials]
        return [str(value) for value in values] if words else values

    for cell in results.cells:
        trials = [trial for trial in cell.tuning if setting in trial.settings]
        finished = [trial for trial in trials if trial.finished]
        errors, name = [trial["error"] for trial in finished], safe(cell.name) or "trials"
        series(figure, cell.index, places(finished), errors, name, legendgroup=cell.key)
        without_error = [trial for trial in trials if trial.outcome in WITHOUT_ERROR]
        if without_error:
            cross = {
                "size": 10,
                "color": colour_of(cell.index),
                "symbol": "x-thin-open",
                "line": {"width": 2},
            }
            scatter(
                figure,
                x=places(without_error),
                y=[highest * 2] * len(without_error),
                mode="markers",
                showlegend=False,
                legendgroup=cell.key,
                marker=cross,
                text=[trial.outcome.replace("_", " ") for trial in without_error],
                hovertemplate="%{x}: %{text}<extra></extra>",
            )
    if words:
        figure.update_xaxes(type="category")
    return figure


def parallel_coordinates(results: Results, cell: CellResult, settings: Sequence[str]) -> go.Figure:
    """One line for each finished tuning trial, through its settings to its error.

    The best fifth has the thickest lines.
    """
    trials = [trial for trial in cell.tuning if trial.finished]
    settings = [path for path in settings if len(_values(trials, path)) > 1]
    figure = blank("", "", log_x=False)
    figure.update_yaxes(type="linear", visible=False, range=[-0.08, 1.06], fixedrange=True)
    errors = np.array([trial["error"] for trial in trials])
    scales = [
        _Scale([trial.settings.get(path) for trial in trials], _log(results, path)) for path in settings
    ]
    scales.append(_Scale(errors, True))
    names = [*settings, "error"]
    rank = np.argsort(np.argsort(errors, kind="stable"), kind="stable")
    fifth = np.minimum(5 * rank // max(len(trials), 1), 4)
    for part in range(4, -1, -1):  # the best fifth is drawn last, on top of the others
        numbers = np.flatnonzero(fifth == part)
        if len(numbers):
            scatter(
                figure,
                x=[x for _ in numbers for x in (*range(len(names)), None)],
                y=[y for n in numbers for y in (*rounded(scale.places[n] for scale in scales), None)],
                text=[text for n in numbers for text in (*(scale.texts[n] for scale in scales), None)],
                mode="lines+markers",
                name=NAMES_OF_FIFTHS[part],
                line={"color": FIFTHS[part], "width": 2.6 - 0.35 * part},
                marker={"size": 6, "symbol": SYMBOLS[part]},
                hovertemplate="%{text}<extra></extra>",
            )
    figure.update_layout(legend_traceorder="reversed")
    for place, scale in enumerate(scales):
        figure.add_shape(
            type="line", x0=place, x1=place, y0=0, y1=1, line={"color": "#667085", "width": 1}, layer="below"
        )
        for height, text in scale.ticks:
            figure.add_annotation(
                x=place,
                y=height,
                text=safe(text),
                showarrow=False,
                xshift=8,
                xanchor="left",
                font_size=11,
                bgcolor="rgba(255,255,255,0.75)",
            )
    figure.update_xaxes(
        tickvals=list(range(len(names))),
        ticktext=[safe(name.rpartition(".")[2]) for name in names],
        range=[-0.15, len(names) - 0.6],
        fixedrange=True,
        showgrid=False,
    )
    return figure


def importances(of_cells: Sequence[Importance]) -> go.Figure:
    """The importance of every tuned setting, with one marker for each cell."""
    figure = blank("share of importance", "", log_x=False)
    known = [importance for importance in of_cells if importance.shares]
    for index, importance in enumerate(known):
        symbol = symbol_of(index) + ("" if importance.reliable else "-open")
        scatter(
            figure,
            x=rounded(importance.shares.values()),
            y=[safe(path) for path in importance.shares],
            mode="markers",
            marker={"size": 11, "color": colour_of(index), "symbol": symbol},
            name=(safe(readable(importance.label)) or "trials")
            + ("" if importance.reliable else " (unreliable)"),
        )
    figure.update_xaxes(range=[0, 1.02])
    figure.update_yaxes(type="category", automargin=True)
    settings = {path for importance in known for path in importance.shares}
    figure.update_layout(height=200 + 45 * len(settings))
    return figure


class _Scale:
    """The place of every value of one setting, from 0 to 1, and the ticks beside the axis."""

    def __init__(self, values: Sequence[Any] | np.ndarray, log: bool) -> None:
        numbers = as_floats(values)
        self.texts = [_text(value) for value in values]
        if np.isfinite(numbers).all() and len(numbers):
            log = log and numbers.min() > 0
            scaled = np.log(numbers) if log else numbers
            low, high = float(scaled.min()), float(scaled.max())
            self.places = (scaled - low) / (high - low) if high > low else np.full(len(numbers), 0.5)
            ends = np.linspace(low, high, 3) if high > low else np.array([low])
            texts = [_text(float(np.exp(end) if log else end)) for end in ends]
            self.ticks = list(zip(np.linspace(0, 1, 3) if high > low else [0.5], texts, strict=True))
        else:
            words = sorted(set(self.texts))
            step = {word: place / max(len(words) - 1, 1) for place, word in enumerate(words)}
            self.places = np.array([step[word] for word in self.texts])
            self.ticks = [(step[word], word) for word in words]


def _values(trials: Sequence[TrialResult], path: str) -> set[str]:
    return {repr(trial.settings[path]) for trial in trials if path in trial.settings}


def _text(value: Any) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


def _log(results: Results, setting: str) -> bool:
    """True if the study searches the setting on a log scale, or does not tune the setting."""
    axis = (results.study.get("nuisance") or {}).get(setting) or {"scale": "log"}
    return axis.get("scale") == "log"


MOST_STEPS = 200
"""A run with more recorded steps is thinned."""
MOST_MARKED = 10
"""The largest number of markers on the line of one run."""


def learning_curves(results: Results) -> go.Figure:
    """The validation error of the runs that answer for each cell, by training step."""
    figure = blank("training step (count)", f"validation {ERROR_TITLE}", log_x=False)
    for cell in results.cells:
        for number, run in enumerate(cell.runs):
            steps, errors = run.history("error")
            thin = slice(None, None, max(1, len(steps) // MOST_STEPS))
            x, y, name = steps[thin].tolist(), errors[thin], safe(cell.name)
            style = {"size": 6, "width": 1.8, "most_marks": MOST_MARKED, "legendgroup": cell.key}
            series(figure, cell.index, x, y, name, "lines+markers", showlegend=number == 0, **style)
    return figure


def error_against_cost(results: Results) -> go.Figure:
    """The error of every finished tuning trial against its training FLOPs."""
    figure = blank("training cost (FLOPs)", ERROR_TITLE)
    for cell in results.cells:
        finished = [trial for trial in cell.tuning if trial.finished]
        flops, errors = ([trial[name] for trial in finished] for name in ("flops", "error"))
        series(figure, cell.index, flops, errors, safe(cell.name), legendgroup=cell.key)
    return figure


FEWEST_LINES = 5
"""With fewer finished trials a cell has no figure of parallel coordinates."""


class TuningSlice(Figure, kind="tuning"):
    """A figure for each tuned setting."""

    place = 500

    @override
    def parts(self, study: Reported) -> Iterable[Part]:
        return [(str(place), path) for place, path in enumerate(varied_settings(study.results))]

    @override
    def draw(self, study: Reported, part: str) -> Drawing:
        text = (
            f"The error of finished trials for each tried value of {part}, by cell. Crosses at the top mark trials"
            " that diverged or ran out of memory."
        )
        return Drawing(f"Tuning: {part}", text, tuning_slice(study.results, part))


class ParallelCoordinates(Figure, kind="parallel"):
    """A figure for each cell with several tuned settings."""

    place = 600

    @override
    def parts(self, study: Reported) -> Iterable[Part]:
        varied = varied_settings(study.results)
        several = [cell for cell in study.results.cells if _varied_count(cell, varied) > 1]
        return [(str(place), (cell, varied)) for place, cell in enumerate(several[:MOST_GROUPS])]

    @override
    def draw(self, study: Reported, part: tuple[CellResult, list[str]]) -> Drawing:
        cell, varied = part
        text = (
            "Every finished tuning trial as a line through its settings to its error. The best fifth has the thickest"
            " lines."
        )
        title = f"Tuning of {cell.name or 'the only cell'}, all settings at once"
        return Drawing(title, text, parallel_coordinates(study.results, cell, varied))


def _varied_count(cell: CellResult, settings: Sequence[str]) -> int:
    """The number of settings with more than one value in the cell; 0 if the cell has too few finished trials."""
    trials = [trial for trial in cell.tuning if trial.finished]
    if len(trials) < FEWEST_LINES:
        return 0
    return sum(len({repr(trial.settings.get(path)) for trial in trials}) > 1 for path in settings)


class ImportanceOfSettings(Figure, kind="importance"):
    """The importance of all tuned settings."""

    place = 700

    @override
    def draw(self, study: Reported, part: Results) -> Drawing | None:
        if not any(importance.shares for importance in study.importances):
            return None
        text = (
            "How strongly each setting distinguishes the better quarter of a cell's trials (PED-ANOVA). The shares of a"
            f" cell sum to 1. Hollow markers are unreliable, because they rest on fewer than {RELIABLE} trials."
        )
        return Drawing("Importance of the tuned settings", text, importances(study.importances))


class TwoObjectives(Figure, kind="objectives"):
    """The trials of a study with two objectives."""

    place = 710

    @override
    def draw(self, study: Reported, part: Results) -> Drawing | None:
        if not part.two_objectives:
            return None
        text = "Error of every finished trial against its training cost. A table above lists the best points."
        return Drawing("Error against cost", text, error_against_cost(part))


class LearningCurves(Figure, kind="learning"):
    """Validation errors during training."""

    place = 720

    @override
    def draw(self, study: Reported, part: Results) -> Drawing | None:
        if not len(part.history):
            return None
        text = "Validation error during training of the runs that answer for each cell."
        return Drawing("Learning curves", text, learning_curves(part))
