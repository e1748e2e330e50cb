"""The style of all figures, with colours and markers for colour-blind readers.

Classical algorithms are muted and dashed, exact references black. Only plotly's basic traces are used, so that a report
carries 1.2 MB of plotly and not 4.8 MB.
"""

import html
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go

from loopscale.analysis.recorded.results import Array
from loopscale.core.palette import PALETTE as PALETTE
from loopscale.core.palette import SYMBOLS as SYMBOLS
from loopscale.stats.contrasts import mean_interval
from loopscale.stats.milestones import Milestone

MUTED = ("#444444", "#8a6fae", "#8c7b5a", "#5b8a8a", "#a5647c")
"""The colours of classical algorithms and bounds."""
NEUTRAL = "#777777"
"""The colour of a legend entry that stands for lines of several colours."""
DASHES = ("dash", "dot", "dashdot", "longdash", "longdashdot")
EXACT_DASHES = ("9px,2px", "3px,3px", "9px,2px,2px,2px", "16px,4px", "9px,2px,2px,2px,2px,2px")
"""The dashes of exact references. No algorithm has one of these dashes."""
ERROR_TITLE = "error (1 = predicting nothing)"
REGRET = "regret (1 = predicting nothing)"
MOST_MARKS = 60
"""The largest number of markers on one line."""
DEEPEST = 10.0
"""References and predictions are visible up to this factor beyond the measured values and their intervals."""
PREDICTED = "line-ew-open"
"""The mark of a predicted value."""


def colour_of(index: int) -> str:
    """The colour of a series. A cell has the same colour in every figure."""
    return PALETTE[index % len(PALETTE)]


def symbol_of(index: int) -> str:
    """The marker of a series. When the colours repeat after eight series, the markers change, so 64 series differ."""
    return SYMBOLS[(index + index // len(PALETTE)) % len(SYMBOLS)]


def measure_title(of: str) -> str:
    """The title of an axis of a measure, with its unit."""
    titles = {
        "error": ERROR_TITLE,
        "error_last": f"last query's<br>{ERROR_TITLE}",
        "regret": REGRET,
        "regret_last": f"last query's<br>{REGRET}",
    }
    if milestone := Milestone.parse(of):
        return milestone.words
    unit = " (target's units²)" if of in ("raw_error", "excess") else ""
    return titles.get(of, of.replace("_", " ") + unit)


def scatter(figure: go.Figure, **options: Any) -> None:
    """Add a trace of kind scatter. `figure.add_scatter` takes twice as long, because it checks all options twice."""
    figure.add_trace({"type": "scatter", **options})


def exact_line(
    figure: go.Figure, name: str, x: Iterable[Any], y: Sequence[float] | Array, order: int = 0
) -> None:
    """An exact reference, which has no fitted constant. `order` counts the exact references of the figure."""
    y = np.asarray(y, dtype=np.float64)
    scatter(
        figure,
        x=list(x),
        y=rounded(np.where(y > 1e-12, y, np.nan)),
        mode="lines",
        name=f"{name.replace('_', ' ')}, exact",
        line={"color": "#101828", "width": 2, "dash": EXACT_DASHES[order % len(EXACT_DASHES)]},
    )


def mean_line(figure: go.Figure, name: str, index: int, x: Array, values: Array) -> None:
    """The mean over runs with its 95 % band.

    Parameters
    ----------
    x, values
        Places on the axis [places], and errors [places, runs].
    """
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.log(values)
    intervals = [mean_interval(logs, place) for place in range(len(logs))]
    if intervals and all(intervals):
        ends = np.array(intervals, dtype=np.float64)
        band(figure, name, colour_of(index), x, ends[:, 0], ends[:, 1])
    means, style = values.mean(1), {"size": 7, "width": 2.4, "most_marks": MOST_MARKS}
    series(figure, index, x, means, name, "lines+markers", legendgroup=name, **style)


def series(
    figure: go.Figure,
    index: int,
    x: Iterable[Any],
    y: Iterable[Any],
    name: str,
    mode: str = "markers",
    *,
    size: int = 9,
    width: float = 2.0,
    most_marks: int = 0,
    **options: Any,
) -> None:
    """Points in the colour and with the marker of a series. With `most_marks` above 0, a line has at most that many."""
    colour = colour_of(index)
    marker = {"size": size, "color": colour, "symbol": symbol_of(index), "maxdisplayed": most_marks}
    line = {"color": colour, "width": width}
    scatter(figure, x=x, y=rounded(y), mode=mode, name=name, marker=marker, line=line, **options)


def band(figure: go.Figure, name: str, colour: str, x: Array, low: Array, high: Array) -> None:
    """The area between two curves, without the places where an end is NaN."""
    kept = np.isfinite(x) & np.isfinite(low) & np.isfinite(high)
    x, low, high = x[kept], low[kept], high[kept]
    scatter(
        figure,
        x=np.r_[x, x[::-1]],
        y=rounded(np.r_[high, low[::-1]]),
        fill="toself",
        mode="none",
        fillcolor=_faint(colour),
        showlegend=False,
        legendgroup=name,
        hoverinfo="skip",
    )


def interval_bars(middle: Array, low: Array, high: Array, width: int = 5) -> dict[str, Any]:
    """Error bars of intervals; no bar where an end is NaN."""
    return {
        "type": "data",
        "symmetric": False,
        "array": rounded(high - middle),
        "arrayminus": rounded(middle - low),
        "width": width,
    }


def interval_points(
    figure: go.Figure, names: Sequence[str], ends: Sequence[Iterable[Any]], index: int, **options: Any
) -> None:
    """One marker with its interval in each row of `named_rows`; `ends` are the middles, the lows and the highs."""
    middle, low, high = (as_floats(values) for values in ends)
    marker = {"size": 11, "color": PALETTE[index], "symbol": SYMBOLS[index]}
    bars = interval_bars(middle, low, high, width=8)
    scatter(figure, x=rounded(middle), y=list(names), error_x=bars, mode="markers", marker=marker, **options)


def dashed_line(figure: go.Figure, name: str, order: int, x: Iterable[Any], y: Array) -> None:
    """A classical algorithm. An algorithm that is exact everywhere is not drawn: 0 is not on a logarithmic axis."""
    y = np.asarray(y, dtype=np.float64)
    if not (y > 1e-12).any():
        return
    style = {"color": MUTED[order % 5], "width": 2, "dash": DASHES[(order + order // 5) % 5]}
    scatter(figure, x=list(x), y=rounded(np.where(y > 1e-12, y, np.nan)), mode="lines", name=name, line=style)


def legend_entry(figure: go.Figure, name: str, style: dict[str, Any]) -> None:
    """An entry of the legend without points, for something that is drawn many times."""
    scatter(figure, x=[None], y=[None], mode="lines", line=style, name=name, hoverinfo="skip")


def blank(x: str, y: str, log_x: bool = True) -> go.Figure:
    """An empty figure with these axis titles; y is logarithmic."""
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


def named_rows(x: str, names: Sequence[str]) -> go.Figure:
    """An empty figure with one row for each name, the first at the top. Rows are high enough for wrapped names."""
    figure = blank(x, "")
    lines = max((name.count("<br>") + 1 for name in names), default=1)
    figure.update_yaxes(
        type="category", categoryorder="array", categoryarray=list(names), autorange="reversed"
    )
    figure.update_layout(height=max(240, 120 + len(names) * max(36, 18 * lines + 12)))
    return figure


def with_decimal_ticks(figure: go.Figure) -> go.Figure:
    """The figure with plain decimals on logarithmic axes. Plotly's own labels omit the leading digit between powers.

    Dashed and dotted lines and predictions may leave the picture. Otherwise an algorithm that is exact after three
    pairs, or the prediction of a law that does not fit, would compress all measured values into one line. Zooming out
    shows the whole.
    """
    figure.update_layout(height=max(figure.layout.height or 0, 440 + 24 * max(0, _legend_rows(figure) - 3)))
    values = "x" if figure.layout.yaxis.type == "category" else "y"
    # Plotly's own objects answer slowly.
    traces = [
        trace.to_plotly_json()  # pyright: ignore[reportAttributeAccessIssue]: plotly declares traces as strings
        for trace in figure.select_traces()
    ]
    for name, update in (("x", figure.update_xaxes), ("y", figure.update_yaxes)):
        if figure.layout[f"{name}axis"].type == "log":
            drawn, measured = _positive(traces, name), _positive(filter(_is_measured, traces), name)
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
    """The number of legend rows for a width of 640 pixels. Each legend group is a column."""
    groups = dict[str, list[int]]()
    traces: list[Any] = list(figure.select_traces())
    for place, trace in enumerate(traces):
        if trace.showlegend is not False:
            groups.setdefault(trace.legendgroup or f" {place}", []).append(len(str(trace.name)))
    rows, free_pixels, column_height = 0, 0.0, 0
    for lengths in groups.values():
        width = 56 + 7.5 * max(lengths)
        if width > free_pixels:
            rows, free_pixels, column_height = rows + column_height, 640.0, 0
        free_pixels, column_height = free_pixels - width, max(column_height, len(lengths))
    return rows + column_height


def _positive(traces: Iterable[Mapping[str, Any]], name: str) -> Array:
    """The positive values of traces along the axis `name`, with the ends of their intervals."""
    values = np.concatenate([end for trace in traces for end in _extent(trace, name)] or [np.zeros(0)])
    return values[values > 0]


def _extent(trace: Mapping[str, Any], name: str) -> list[Array]:
    values, bars = as_floats(trace.get(name, ())), trace.get(f"error_{name}", {})
    if "array" not in bars or "arrayminus" not in bars:
        return [values]
    return [values, values + as_floats(bars["array"]), values - as_floats(bars["arrayminus"])]


def _is_measured(trace: Mapping[str, Any]) -> bool:
    predicted = trace.get("marker", {}).get("symbol") == PREDICTED
    return not predicted and trace.get("line", {}).get("dash", "solid") == "solid"


def _ticks(low: float, high: float) -> list[float]:
    """About ten round numbers in the range, and further numbers on both sides for zooming out."""
    decades = np.log10(high / low)
    if decades < 0.35:  # on so short a range a logarithm is nearly linear
        span = 1.25 * high - low / 1.25
        power = 10.0 ** np.floor(np.log10(span / 8))
        step = power * next(factor for factor in (1, 2, 5, 10) if span / (factor * power) <= 8)
        places = step * np.arange(np.ceil(low / 2 / step), 2 * high / step)
        return [float(f"{place:.4g}") for place in places if place > 0]
    digits = (1, 1.5, 2, 3, 4, 5, 7) if decades < 0.8 else (1, 2, 5) if decades < 3 else (1,)
    powers = range(int(np.floor(np.log10(low))) - 1, int(np.ceil(np.log10(high))) + 2)
    return [digit * 10.0**power for power in powers[:: max(1, int(decades // 8))] for digit in digits]


def as_floats(values: Iterable[Any]) -> Array:
    """Values as floats; NaN for None and for text."""
    if isinstance(values, np.ndarray) and values.dtype.kind in "fiub":
        return values.astype(np.float64)
    return np.array(
        [
            value
            if type(value) is float
            else float(value)
            if isinstance(value, int | float | np.number)
            else math.nan
            for value in values
        ],
        dtype=np.float64,
    )


def rounded(values: Iterable[Any]) -> list[float | None]:
    """Values with four digits, which suffice for a screen. Values that are not finite become None, which is a gap."""
    return [float(f"{value:.4g}") if math.isfinite(value) else None for value in as_floats(values).tolist()]


def _faint(colour: str) -> str:
    return "rgba({},{},{},0.16)".format(*(int(colour[i : i + 2], 16) for i in (1, 3, 5)))


def wrapped(label: str) -> str:
    """A cell's label with one setting on each line."""
    return safe(label).replace(", ", "<br>")


def safe(text: str) -> str:
    """Text with escaped markup, because plotly interprets tags in names."""
    return html.escape(text, quote=False)
