"""Cells beside each other: replicates, and error against two settings."""

# pandas types every selection as a union of all that it could be: those rules find nothing here but that.
# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportCallIssue=false
# pyright: reportGeneralTypeIssues=false, reportReturnType=false, reportOperatorIssue=false
# pyright: reportOptionalMemberAccess=false

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from loopscale.analysis.answers.best import Best, best
from loopscale.analysis.axes import axis_name, in_step, independent
from loopscale.analysis.figures.style import ERROR, blank, colour_of, listed, safe, symbol_of, wrapped
from loopscale.analysis.tables import StudyTable, answers, numbers


def replicates(study: StudyTable, trials: pd.DataFrame, cells: Sequence[str]) -> go.Figure:
    """Every cell's mean with its 95 % interval, and the single runs behind it."""
    found = best(trials, study)
    figure = listed(
        ERROR, [wrapped(one.label) for one in found if one.error is not None and one.cell in cells]
    )
    for index, answer in enumerate(found):
        if answer.error is None or answer.cell not in cells:
            continue
        runs = numbers(answers(trials, answer.cell)[0]["error"])
        low, high = answer.error_low, answer.error_high
        bars = (
            {
                "type": "data",
                "symmetric": False,
                "array": [high - answer.error],
                "thickness": 2.5,
                "width": 8,
                "arrayminus": [answer.error - low],
            }
            if low is not None and high is not None
            else None
        )
        name, colour = wrapped(answer.label), colour_of(index)
        marker = {"size": 12, "color": colour, "symbol": symbol_of(index)}
        figure.add_scatter(
            x=[answer.error], y=[name], error_x=bars, mode="markers", marker=marker, showlegend=False
        )
        ticks = {"size": 12, "color": colour, "symbol": "line-ns-open", "line": {"width": 1.5}}
        figure.add_scatter(
            x=runs,
            y=[name] * len(runs),
            mode="markers",
            marker=ticks,
            showlegend=False,
            hovertemplate="one run: %{x:.4g}<extra></extra>",
        )
    return figure


def heat_map(study: StudyTable, trials: pd.DataFrame, x: str, y: str) -> go.Figure:
    """Mean error at T over two crossed settings, as colour and number; the 95 % interval appears in hover.

    Squares, since the report's plotly draws nothing but its basic traces. Where other settings set cells apart, those
    of the first combination are drawn. Raises ValueError for a setting that the study does not vary.
    """
    for path in (x, y):
        if all(path not in cell["values"] for cell in study["cells"]):
            raise ValueError(
                f"{study['name']} does not vary {path}; its axes are {', '.join(independent(study))}"
            )
    mine = {x, y, *in_step(study, x), *in_step(study, y)}
    values = {
        cell["key"]: cell["values"] for cell in study["cells"] if x in cell["values"] and y in cell["values"]
    }
    known = [one for one in best(trials, study) if one.cell in values and one.error is not None]
    shared = {
        one.cell: {path: value for path, value in values[one.cell].items() if path not in mine}
        for one in known
    }
    known = [one for one in known if shared[one.cell] == shared[known[0].cell]]
    figure = blank(axis_name(x, in_step(study, x)), axis_name(y, in_step(study, y)), log_x=False)
    if not known:
        return figure
    logs = np.log10([one.error for one in known])
    dark = logs < (logs.min() + logs.max()) / 2
    colours = {"size": 58, "symbol": "square", "color": logs, "colorscale": "Cividis", "showscale": True}
    colours["colorbar"] = {"title": {"text": "log₁₀ error"}, "thickness": 12}
    places = {path: _ordered(values[one.cell][path] for one in known) for path in (x, y)}
    figure.add_scatter(
        x=[str(values[one.cell][x]) for one in known],
        y=[str(values[one.cell][y]) for one in known],
        mode="markers+text",
        marker=colours,
        text=[f"{one.error:.2g}" for one in known],
        textfont={"size": 13, "color": ["white" if each else "#101828" for each in dark]},
        hovertext=[f"{safe(one.label)}<br>{_interval(one)}" for one in known],
        hoverinfo="text",
        showlegend=False,
    )
    for update, path in ((figure.update_xaxes, x), (figure.update_yaxes, y)):
        update(type="category", categoryorder="array", categoryarray=places[path], showgrid=False)
    return figure


def _ordered(values: Iterable[Any]) -> list[str]:
    return [str(value) for value in sorted(set(values), key=lambda value: (isinstance(value, str), value))]


def _interval(answer: Best) -> str:
    if answer.error_low is None or answer.error_high is None:
        return f"{answer.error:.3g}, no interval: fewer than two replicates"
    return f"{answer.error:.3g}, 95 % interval {answer.error_low:.3g} to {answer.error_high:.3g}"
