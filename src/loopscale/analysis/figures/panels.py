"""Panels for many series, and error bars that stand side by side.

A series is all traces of one legend group. Traces without a legend group, such as classical algorithms, are references.
More than six series in one picture cannot be told apart. The series are then drawn in panels with the same axes. Every
panel repeats the references.
"""

import copy
import math
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import plotly.graph_objects as go

from loopscale.analysis.figures.style import as_floats, with_decimal_ticks
from loopscale.analysis.recorded.results import Array

MOST_CURVES = 6
"""The largest number of series in one panel."""
PANEL_COLUMNS = 2
ROW = 300
"""The height of a row of panels in pixels, with the space below."""
GAP = 64
"""The space between two rows of panels in pixels, for ticks and titles."""
APART = 0.012
"""The distance of two error bars at one place, relative to the length of the axis."""
WIDEST_TITLE = 30
"""The largest number of characters of a line beside a panel."""
Trace = dict[str, Any]


@dataclass(frozen=True)
class Panel:
    """Some series of a figure, and the setting that they share. The title is empty if they share none."""

    title: str
    groups: tuple[str, ...]


def shows_values(figure: go.Figure) -> bool:
    """False for a figure without data, and for a figure of series that all lack values: only references are left."""
    traces = _traces(figure)
    series = [trace for trace in traces if trace.get("legendgroup")]
    return any(map(_has_values, series)) if series else bool(traces)


def finished(figure: go.Figure) -> go.Figure:
    """The figure as readers see it: error bars side by side, plain decimals as ticks, and panels for many series."""
    if (figure.layout.meta or {}).get("finished"):
        return figure
    names = _series(figure)
    rows = "category" in (figure.layout.xaxis.type, figure.layout.yaxis.type)
    if not rows and len(names) > MOST_CURVES:  # a panel of series without values would be empty
        valued = {trace.get("legendgroup") for trace in _traces(figure) if _has_values(trace)}
        names = {group: name for group, name in names.items() if group in valued} or names
        kept = [trace for trace in _traces(figure) if trace.get("legendgroup", "") in ("", None, *names)]
        figure = go.Figure(kept, figure.layout)
    panels = [Panel("", tuple(names))] if rows or len(names) <= MOST_CURVES else split(names)
    if not rows:
        for panel in panels:
            _stand_apart(figure, panel.groups)
    figure = with_decimal_ticks(figure)
    if len(panels) > 1:
        figure = _in_panels(figure, panels)
    return figure.update_layout(meta={"finished": True, "panels": len(panels)})


def split(names: Mapping[str, str]) -> list[Panel]:
    """Panels of at most six series each.

    If one setting of the labels divides the series into such panels, its values are the titles. Otherwise the series
    are divided in their order.

    Parameters
    ----------
    names
        The names of the series in the legend, by legend group.
    """
    parts = {group: name.split(", ") for group, name in names.items()}
    places = range(min(map(len, parts.values())))
    divisions = [_divided(parts, place) for place in places]
    fitting = [
        panels
        for panels in divisions
        if len(panels) > 1 and max(len(panel.groups) for panel in panels) <= MOST_CURVES
    ]
    if fitting and len(best := min(fitting, key=len)) < len(names):
        return best
    groups, count = tuple(names), math.ceil(len(names) / MOST_CURVES)
    ends = [round(place * len(groups) / count) for place in range(count + 1)]
    return [Panel("", groups[start:end]) for start, end in pairwise(ends)]


def _divided(parts: Mapping[str, Sequence[str]], place: int) -> list[Panel]:
    of_values: dict[str, list[str]] = {}
    for group, texts in parts.items():
        of_values.setdefault(texts[place], []).append(group)
    return [Panel(value, tuple(groups)) for value, groups in of_values.items()]


def _series(figure: go.Figure) -> dict[str, str]:
    """The name of every series in the legend, by legend group."""
    names: dict[str, str] = {}
    for trace in _traces(figure):
        group = trace.get("legendgroup")
        if group and trace.get("showlegend") is not False:
            names.setdefault(group, str(trace.get("name") or group))
    return names


def _traces(figure: go.Figure) -> list[Trace]:
    # Plotly's own objects answer slowly.
    return [
        trace.to_plotly_json()  # pyright: ignore[reportAttributeAccessIssue]: plotly declares traces as strings
        for trace in figure.select_traces()
    ]


def _stand_apart(figure: go.Figure, groups: Sequence[str]) -> None:
    """Move error bars that share a place. Hover and the table of numbers show the true place (`customdata`)."""
    traces = _traces(figure)
    barred = [
        place
        for place, trace in enumerate(traces)
        if trace.get("legendgroup") in groups and np.isfinite(_bars(trace)).any()
    ]
    sides = list(dict.fromkeys(traces[place]["legendgroup"] for place in barred))
    if len(sides) < 2:
        return
    logarithmic = figure.layout.xaxis.type == "log"
    places = {place: _scaled(as_floats(traces[place]["x"]), logarithmic) for place in barred}
    taken = np.unique(np.concatenate(list(places.values())))
    taken = taken[np.isfinite(taken)]
    if len(taken) == sum(np.isfinite(x).sum() for x in places.values()):
        return  # no two bars share a place
    span = float(np.ptp(taken)) or 1.0
    nearest = float(np.diff(taken).min()) if len(taken) > 1 else span
    step = min(APART * span, nearest / (len(sides) + 1))
    for place in barred:
        trace = traces[place]
        moved = places[place] + (sides.index(trace["legendgroup"]) - (len(sides) - 1) / 2) * step
        x = 10.0**moved if logarithmic else moved
        name = trace.get("name", "")
        figure.data[place].update(
            x=[float(f"{value:.5g}") for value in x],
            customdata=list(trace["x"]),
            hovertemplate=trace.get("hovertemplate")
            or f"%{{customdata:.4~g}}: %{{y:.4~g}}<extra>{name}</extra>",
        )


def _has_values(trace: Trace) -> bool:
    """True if a reader sees something of the trace: numbers, words on an axis of words, or a map of numbers."""
    y = trace.get("y", ())
    return "z" in trace or bool(np.isfinite(as_floats(y)).any()) or any(isinstance(each, str) for each in y)


def _bars(trace: Trace) -> Array:
    return as_floats(trace.get("error_y", {}).get("array") or [])


def _scaled(values: Array, logarithmic: bool) -> Array:
    return np.log10(np.where(values > 0, values, np.nan)) if logarithmic else values


def _in_panels(figure: go.Figure, panels: Sequence[Panel]) -> go.Figure:
    document = figure.to_dict()
    layout = document["layout"]
    rows = math.ceil(len(panels) / PANEL_COLUMNS)
    extra = max(0, (layout.get("height") or 0) - 440)  # for the legend
    layout["height"] = height = rows * ROW + 140 + extra
    inside = height - 140 - extra
    shapes, drawn = list(layout.get("shapes", ())), list[Trace]()
    layout["shapes"], notes = [], list(layout.get("annotations", ()))
    title = layout["yaxis"].get("title", {}).get("text", "")
    layout["yaxis"]["title"] = {"text": _in_lines(title), "font": {"size": 12}}
    axes = {axis: copy.deepcopy(layout[f"{axis}axis"]) for axis in "xy"}
    for place, panel in enumerate(panels):
        suffix = str(place + 1) if place else ""
        row, column = divmod(place, PANEL_COLUMNS)
        top = 1 - row * ROW / inside
        domains = {
            "x": [0.0, 0.46] if column == 0 else [0.54, 1.0],
            "y": [max(0.0, top - (ROW - GAP) / inside), top],
        }
        for axis, other in ("xy", "yx"):
            options = copy.deepcopy(axes[axis]) | {"domain": domains[axis], "anchor": f"{other}{suffix}"}
            if place:
                options["matches"] = axis
            last = place + PANEL_COLUMNS >= len(panels)
            if (axis == "y" and column) or (axis == "x" and not last):
                options["title"] = {"text": ""}
            layout[f"{axis}axis{suffix}"] = options
        drawn += _of_panel(document["data"], panel, suffix)
        layout["shapes"] += [
            shape | {axis: shape[axis].replace(axis[0], f"{axis[0]}{suffix}", 1) for axis in ("xref", "yref")}
            for shape in shapes
            if {"xref", "yref"} <= set(shape)
        ]
        if panel.title:
            where = {"xref": f"x{suffix} domain", "yref": f"y{suffix} domain", "x": 0, "y": 1}
            text = {
                "text": f"<b>{panel.title}</b>",
                "showarrow": False,
                "xanchor": "left",
                "yanchor": "bottom",
            }
            notes.append(where | text)
    layout["annotations"] = notes
    layout["margin"] = layout.get("margin", {}) | {"t": 32}
    return go.Figure({"data": drawn, "layout": layout})


def _in_lines(title: str) -> str:
    """A title in lines that fit a panel's height."""
    return "<br>".join(line for part in title.split("<br>") for line in textwrap.wrap(part, WIDEST_TITLE))


def _of_panel(traces: Sequence[Trace], panel: Panel, suffix: str) -> list[Trace]:
    """The traces of a panel: its series, and a copy of the references, which are in the legend once."""
    chosen: list[Trace] = []
    axes = {"xaxis": f"x{suffix}", "yaxis": f"y{suffix}"}
    for trace in traces:
        group = trace.get("legendgroup")
        if group in panel.groups:
            chosen.append({**trace, **axes})
        elif not group and (not suffix or any(x is not None for x in trace.get("x", ()))):
            once = {"showlegend": False, "meta": {"copy": True}} if suffix else {}
            chosen.append({**trace, **axes, "legendgroup": f"reference {trace.get('name', '')}", **once})
    return chosen
