"""How every figure looks: one style that colour-blind readers can tell apart, in plotly's basic traces.

Classical algorithms are grey and dashed, exact references black. Plotly, so that a reader can zoom and hide; only its
basic traces, so that a report carries 1.2 MB of it, not 4.8.
"""

# pandas types every selection as a union of all that it could be: those rules find nothing here but that.
# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportOptionalMemberAccess=false
# pyright: reportCallIssue=false

import html
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from loopscale.analysis.tables import numbers
from loopscale.stats.intervals import mean_intervals

PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#8C6D1F")
"""Okabe and Ito (2008), the yellow darkened to be read on white."""
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "x", "cross", "star", "triangle-down")
GREYS = ("#444444", "#777777", "#999999", "#5f5f5f", "#888888")
DASHES = ("dash", "dot", "dashdot", "longdash", "longdashdot")
ERROR = "error (1 = predicting nothing)"
MOST_MARKS = 60
"""On one line; of more points about so many are marked."""
DEEPEST = 10.0
"""How far beyond the lowest and the highest measured value a figure reaches for what it is set beside."""


def colour_of(index: int) -> str:
    """The colour of a series, cell by cell the same in every figure."""
    return PALETTE[index % len(PALETTE)]


def symbol_of(index: int) -> str:
    """Its mark. Colours come again after eight series, each with another mark than before: 64 can be told apart."""
    return SYMBOLS[(index + index // len(PALETTE)) % len(SYMBOLS)]


def measured(of: str) -> str:
    """What an axis of a measure is called, with its unit where it has one."""
    names = {"error": ERROR, "error_last": f"last query's<br>{ERROR}"}
    unit = " (target's units²)" if of in ("raw_error", "excess") else ""
    return names.get(of, of.replace("_", " ") + unit)


def exact(figure: go.Figure, name: str, values: pd.Series) -> None:
    """A reference that holds as it stands."""
    figure.add_scatter(
        x=numbers(values.index),
        y=rounded(np.where(numbers(values) > 1e-12, numbers(values), np.nan)),
        mode="lines",
        name=f"{name.replace('_', ' ')}, exact",
        line={"color": "#101828", "width": 1.2, "dash": "longdash"},
    )


def line(figure: go.Figure, name: str, index: int, groups: Sequence[pd.Series]) -> None:
    table = pd.concat(groups, axis=1)
    x, values = numbers(table.index), table.to_numpy(dtype=np.float64)
    colour = colour_of(index)
    intervals = mean_intervals(list(values))
    if all(interval is not None for interval in intervals) and len(groups) > 1:
        ends = np.array(intervals, dtype=np.float64)
        band(figure, name, colour, x, ends[:, 0], ends[:, 1])
    style = {"color": colour, "width": 2.4, "dash": "solid"}
    marker = {"size": 7, "symbol": symbol_of(index), "maxdisplayed": MOST_MARKS}
    figure.add_scatter(
        x=x,
        y=rounded(values.mean(1)),
        mode="lines+markers",
        name=name,
        line=style,
        marker=marker,
        legendgroup=name,
    )


def band(
    figure: go.Figure,
    name: str,
    colour: str,
    x: Iterable[float],
    low: Iterable[float],
    high: Iterable[float],
) -> None:
    """What lies between two curves; where an end is missing there is none."""
    ends = pd.DataFrame({"x": numbers(x), "low": numbers(low), "high": numbers(high)}).dropna()
    figure.add_scatter(
        x=np.r_[ends["x"], ends["x"][::-1]],
        y=rounded(np.r_[ends["high"], ends["low"][::-1]]),
        fill="toself",
        mode="none",
        fillcolor=_faint(colour),
        showlegend=False,
        legendgroup=name,
        hoverinfo="skip",
    )


def dashed(figure: go.Figure, name: str, order: int, curve: pd.Series) -> None:
    y = numbers(curve)
    if not (
        y > 1e-12
    ).any():  # exact everywhere: a logarithmic axis has no place for it, and the legend none to point at
        return
    style = {"color": GREYS[order % 5], "width": 2, "dash": DASHES[(order + order // 5) % 5]}
    figure.add_scatter(
        x=numbers(curve.index), y=rounded(np.where(y > 1e-12, y, np.nan)), mode="lines", name=name, line=style
    )


def entry(figure: go.Figure, name: str, style: dict[str, Any]) -> None:
    """A line of the legend for what is drawn many times: a series of no points."""
    figure.add_scatter(x=[None], y=[None], mode="lines", line=style, name=name, hoverinfo="skip")


def blank(x: str, y: str, log_x: bool = True) -> go.Figure:
    figure = go.Figure()
    axis = {
        "gridcolor": "#e4e7ec",
        "linecolor": "#667085",
        "zeroline": False,
        "ticks": "outside",
        "automargin": True,
    }
    figure.update_layout(
        template="none",
        font={"family": "system-ui, sans-serif", "size": 14, "color": "#1d2939"},
        paper_bgcolor="white",
        plot_bgcolor="white",
        margin={"l": 64, "r": 16, "t": 16, "b": 56},
        height=440,
        legend={"orientation": "h", "yref": "container", "yanchor": "bottom", "y": 0, "x": 0},
        hovermode="closest",
    )
    figure.update_xaxes(title_text=x, type="log" if log_x else None, **axis)
    figure.update_yaxes(title_text=y, type="log", **axis)
    return figure


def listed(x: str, names: Sequence[str]) -> go.Figure:
    """An empty figure of named rows, the first at the top: long names stay apart there, on a narrow screen too."""
    figure = blank(x, "")
    lines = max((name.count("<br>") + 1 for name in names), default=1)
    figure.update_yaxes(
        type="category", categoryorder="array", categoryarray=list(names), autorange="reversed"
    )
    figure.update_layout(height=max(240, 120 + len(names) * max(36, 18 * lines + 12)))
    return figure


def ticked(figure: go.Figure) -> go.Figure:
    """With plain decimals on logarithmic axes: plotly's own labels drop the leading figure between powers.

    What is drawn dashed or dotted may leave the picture: an algorithm that is exact after three pairs, or explodes
    with as many pairs as unknowns, would press all that was measured into one line. Zooming out shows it whole.
    """
    figure.update_layout(height=max(figure.layout.height or 0, 440 + 24 * max(0, _legend_rows(figure) - 3)))
    values = "x" if figure.layout.yaxis.type == "category" else "y"
    for name, update in (("x", figure.update_xaxes), ("y", figure.update_yaxes)):
        if figure.layout[f"{name}axis"].type == "log":
            drawn, measured = _positive(figure.data, name), _positive(filter(_is_solid, figure.data), name)
            if len(drawn):
                low, high = float(drawn.min()), float(drawn.max())
                if len(measured) and name == values:
                    low = max(low, float(measured.min()) / DEEPEST)
                    high = min(high, float(measured.max()) * DEEPEST)
                    update(range=[np.log10(low) - 0.1, np.log10(high) + 0.1])
                places = _ticks(low, high)
                update(tickvals=places, ticktext=[f"{place:g}" for place in places])
    return figure


def _legend_rows(figure: go.Figure) -> int:
    """Lines that the legend takes below a figure of 640 pixels: a group is a column, columns side by side."""
    groups = dict[str, list[int]]()
    for place, trace in enumerate(figure.data):
        if trace.showlegend is not False:
            groups.setdefault(trace.legendgroup or f" {place}", []).append(len(str(trace.name)))
    rows, left, tall = 0, 0.0, 0
    for names in groups.values():
        wide = 56 + 7.5 * max(names)
        if wide > left:
            rows, left, tall = rows + tall, 640.0, 0
        left, tall = left - wide, max(tall, len(names))
    return rows + tall


def _positive(traces: Iterable[go.Scatter], name: str) -> np.ndarray:
    values = np.concatenate([end for trace in traces for end in _reach(trace, name)] or [np.zeros(0)])
    return values[values > 0]


def _reach(trace: go.Scatter, name: str) -> list[np.ndarray]:
    """What a trace covers: its values, and the ends of their intervals."""
    values, bars = numbers(trace[name]), trace[f"error_{name}"]
    if bars.array is None or bars.arrayminus is None:
        return [values]
    return [values, values + numbers(bars.array), values - numbers(bars.arrayminus)]


def _is_solid(trace: go.Scatter) -> bool:
    return trace.line.dash in (None, "solid")


def _ticks(low: float, high: float) -> list[float]:
    """About ten round numbers, with a decade to spare on either side for zooming out."""
    decades = np.log10(high / low)
    if decades < 0.35:  # so close together that a logarithm is nearly a line
        wide = 1.25 * high - low / 1.25
        power = 10.0 ** np.floor(np.log10(wide / 8))
        step = power * next(each for each in (1, 2, 5, 10) if wide / (each * power) <= 8)
        places = step * np.arange(np.ceil(low / 2 / step), 2 * high / step)
        return [float(f"{place:.4g}") for place in places if place > 0]
    digits = (1, 1.5, 2, 3, 4, 5, 7) if decades < 0.8 else (1, 2, 5) if decades < 3 else (1,)
    powers = range(int(np.floor(np.log10(low))) - 1, int(np.ceil(np.log10(high))) + 2)
    return [digit * 10.0**power for power in powers[:: max(1, int(decades // 8))] for digit in digits]


def rounded(values: Iterable[float]) -> list[float | None]:
    """Four digits are more than a screen shows; what is not finite is a gap."""
    return [float(f"{value:.4g}") if np.isfinite(value) else None for value in numbers(values)]


def _faint(colour: str) -> str:
    return "rgba({},{},{},0.16)".format(*(int(colour[i : i + 2], 16) for i in (1, 3, 5)))


def wrapped(label: str) -> str:
    return safe(label).replace(", ", "<br>")


def safe(text: str) -> str:
    """Plotly reads tags in names; a study's labels are no markup."""
    return html.escape(text, quote=False)
