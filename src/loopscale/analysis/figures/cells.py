"""Cells side by side: replicates, and error against two settings."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go
from typing_extensions import override

from loopscale.analysis.answers.best_cells import best
from loopscale.analysis.figures.base import Drawing, Reported, TaskFigure
from loopscale.analysis.figures.style import (
    ERROR_TITLE,
    blank,
    colour_of,
    interval_bars,
    named_rows,
    safe,
    scatter,
    symbol_of,
    wrapped,
)
from loopscale.analysis.recorded.axes import axis_title, in_step, independent_axes
from loopscale.analysis.recorded.results import CellResult, Results
from loopscale.core.titles import readable


def replicates(results: Results, cells: Sequence[CellResult]) -> go.Figure:
    """The mean of every cell with its 95 % interval, and the single runs."""
    answers = {answer.cell: answer for answer in best(results)}
    cells = [cell for cell in cells if cell.runs]
    names = [wrapped(name) for name in _without_shared_parts([cell.name for cell in cells])]
    figure = named_rows(ERROR_TITLE, names)
    for cell, name in zip(cells, names, strict=True):
        answer = answers[cell.key]
        low, high = answer.error_low, answer.error_high
        bars = None
        if answer.error is not None and low is not None and high is not None:
            ends = (np.array([value]) for value in (answer.error, low, high))
            bars = interval_bars(*ends, width=8) | {"thickness": 2.5}
        colour = colour_of(cell.index)
        marker = {"size": 12, "color": colour, "symbol": symbol_of(cell.index)}
        scatter(
            figure, x=[answer.error], y=[name], error_x=bars, mode="markers", marker=marker, showlegend=False
        )
        ticks = {"size": 12, "color": colour, "symbol": "line-ns-open", "line": {"width": 1.5}}
        runs = cell.values_of("error")
        scatter(
            figure,
            x=runs,
            y=[name] * len(runs),
            mode="markers",
            marker=ticks,
            showlegend=False,
            hovertemplate="one run: %{x:.4g}<extra></extra>",
        )
    return figure


def _without_shared_parts(labels: Sequence[str]) -> Sequence[str]:
    """The labels without the parts that all of them have, such as the task of a figure of one task."""
    parts = [label.split(", ") for label in labels]
    shared = set.intersection(*map(set, parts)) if len(labels) > 1 else set[str]()
    short = [", ".join(part for part in of_label if part not in shared) for of_label in parts]
    return short if all(short) and len(set(short)) == len(short) else labels


def heat_map(results: Results, x: str, y: str) -> go.Figure:
    """Mean error at T over two crossed settings, as colour and number. The 95 % interval appears in hover.

    The map consists of square markers, because the report carries plotly's basic traces only. If further settings vary,
    only their first combination is drawn. Raises ValueError for a setting that the study does not vary.
    """
    for path in (x, y):
        if all(path not in cell.values for cell in results.cells):
            axes = ", ".join(independent_axes(results))
            raise ValueError(f"{results.name} does not vary {path}; its axes are {axes}")
    varied = {x, y, *in_step(results, x), *in_step(results, y)}
    values = {cell.key: cell.values for cell in results.cells if x in cell.values and y in cell.values}
    known = [answer for answer in best(results) if answer.cell in values and answer.error is not None]
    shared = {
        key: {path: value for path, value in settings.items() if path not in varied}
        for key, settings in values.items()
    }
    known = [answer for answer in known if shared[answer.cell] == shared[known[0].cell]]
    figure = blank(axis_title(x, in_step(results, x)), axis_title(y, in_step(results, y)), log_x=False)
    if not known:
        return figure
    logs = np.log10([answer.error or np.nan for answer in known])
    dark = logs < (logs.min() + logs.max()) / 2
    scatter(
        figure,
        x=[str(values[answer.cell][x]) for answer in known],
        y=[str(values[answer.cell][y]) for answer in known],
        mode="markers+text",
        marker={
            "size": 58,
            "symbol": "square",
            "color": logs,
            "colorscale": "Cividis",
            "showscale": True,
            "colorbar": {"title": {"text": "log₁₀ error"}, "thickness": 12},
        },
        text=[f"{answer.error:.2g}" for answer in known],
        textfont={"size": 13, "color": ["white" if on_dark else "#101828" for on_dark in dark]},
        hovertext=[f"{safe(readable(answer.label))}<br>{answer.words}" for answer in known],
        hoverinfo="text",
        showlegend=False,
    )
    for update, path in ((figure.update_xaxes, x), (figure.update_yaxes, y)):
        places = _ordered({values[answer.cell][path] for answer in known})
        update(type="category", categoryorder="array", categoryarray=places, showgrid=False)
    return figure


def _ordered(values: set[Any]) -> list[str]:
    return [str(value) for value in sorted(values, key=lambda value: (isinstance(value, str), value))]


class Replicates(TaskFigure, kind="runs"):
    """The runs of every cell."""

    place = 60

    @override
    def draw(self, study: Reported, part: tuple[str, list[CellResult]]) -> Drawing:
        task, cells = part
        text = "Mean error at T of every cell with its 95 % interval. The dashes are single runs."
        return Drawing(f"Replicates{task}", text, replicates(study.results, cells))
