"""Figures: one function a figure, tables in, plotly out, in one style that colour-blind readers can tell
apart.

Cells keep their colour and marker from figure to figure; classical algorithms are grey, dashed and on the
same axes. Plotly, so that a reader can zoom and hide; only its basic traces, so that the report carries 1.2
MB of it, not 4.8.
"""

# pandas types every selection as a union of all that it could be: those rules find nothing here but that.
# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportCallIssue=false
# pyright: reportGeneralTypeIssues=false, reportReturnType=false, reportOperatorIssue=false
# pyright: reportOptionalMemberAccess=false

import html
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from loopscale.analysis.best import best
from loopscale.analysis.floors import floors_of
from loopscale.analysis.intervals import mean_intervals
from loopscale.analysis.laws import Law
from loopscale.analysis.tables import (
    StudyTable,
    answers,
    baselines_of,
    curve_at,
    finished,
    loop_of,
    numbers,
    solver_name,
    task_of,
)

PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#8C6D1F")
"""Okabe and Ito (2008), the yellow darkened to be read on white."""
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "x", "cross", "star", "triangle-down")
GREYS = ("#444444", "#777777", "#999999", "#5f5f5f", "#888888")
DASHES = ("dash", "dot", "dashdot", "longdash", "longdashdot")
ERROR = "error (1 = predicting nothing)"
MOST_STEPS = 200
DEEPEST = 10.0
"""How far below the lowest measured value a figure reaches for what it is set beside."""


def against_loops(
    study: StudyTable, trials: pd.DataFrame, curves: pd.DataFrame, cells: Sequence[str]
) -> go.Figure:
    """Mean error over queries after every loop or layer; a ring marks T, the loop that was trained for."""
    figure = _figure("loop or layer (count)", ERROR)
    drawn = _drawn(study, trials, curves, cells)
    for index, label, rows in drawn:
        groups = [_by(curve_at(curves, row["trial"]), "loop") for _, row in rows.iterrows()]
        _line(figure, label, index, groups)
        at = loop_of(rows.iloc[0], curve_at(curves, rows.iloc[0]["trial"]))
        height = float(np.mean([group.get(at, np.nan) for group in groups]))
        ring = {"size": 14, "symbol": "circle-open", "color": PALETTE[index % 8], "line": {"width": 2.5}}
        figure.add_scatter(
            x=[at],
            y=[height],
            mode="markers",
            marker=ring,
            showlegend=False,
            legendgroup=label,
            hovertemplate=f"trained for T = {at}<extra>{label}</extra>",
        )
    for order, (name, curve) in enumerate(_classical(trials, curves, drawn)):
        _dashed(figure, name, order, _by(curve, "loop"))
    for name, floor in _floors(curves, drawn):
        _exact(figure, name, pd.Series(float(floor.mean()), index=sorted(set(_xs(figure)))))
    return figure


def against_points(
    study: StudyTable, trials: pd.DataFrame, curves: pd.DataFrame, cells: Sequence[str]
) -> go.Figure:
    """Error at loop T against the pairs seen before the query; classical algorithms after their last step."""
    figure = _figure("pairs seen before the query (count)", ERROR, log_x=False)
    drawn = _drawn(study, trials, curves, cells)
    for index, label, rows in drawn:
        groups = []
        for _, row in rows.iterrows():
            curve = curve_at(curves, row["trial"])
            groups.append(_by(curve[curve["loop"] == loop_of(row, curve)], "point"))
        _line(figure, label, index, groups)
    for order, (name, curve) in enumerate(_classical(trials, curves, drawn)):
        _dashed(figure, name, order, _by(curve[curve["loop"] == curve["loop"].max()], "point"))
    for name, floor in _floors(curves, drawn):
        _exact(figure, name, floor)
    return figure


def replicates(study: StudyTable, trials: pd.DataFrame, cells: Sequence[str]) -> go.Figure:
    """Every cell's mean with its 95 % interval, and the single runs behind it."""
    figure = _figure("cell", ERROR, log_x=False)
    for index, answer in enumerate(best(trials, study)):
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
                "width": 10,
                "arrayminus": [answer.error - low],
            }
            if low is not None and high is not None
            else None
        )
        name, colour = _wrapped(answer.label), PALETTE[index % 8]
        marker = {"size": 12, "color": colour, "symbol": SYMBOLS[index // 8 % 8]}
        figure.add_scatter(
            x=[name], y=[answer.error], error_y=bars, mode="markers", marker=marker, showlegend=False
        )
        ticks = {"size": 12, "color": colour, "symbol": "line-ew-open", "line": {"width": 1.5}}
        figure.add_scatter(
            x=[name] * len(runs),
            y=runs,
            mode="markers",
            marker=ticks,
            showlegend=False,
            hovertemplate="one run: %{y:.4g}<extra></extra>",
        )
    figure.update_xaxes(title_text="")
    return figure


def tuning(study: StudyTable, trials: pd.DataFrame, setting: str) -> go.Figure:
    """What each value of a tuned setting gave, cell by cell."""
    figure = _figure(setting, ERROR)
    for index, cell in enumerate(study["cells"]):
        rows = finished(trials, "tuning", cell["key"])
        marker = {"size": 9, "color": PALETTE[index % 8], "symbol": SYMBOLS[index % 8]}
        figure.add_scatter(
            x=numbers(rows[setting]),
            y=numbers(rows["error"]),
            mode="markers",
            name=_safe(cell["label"]),
            marker=marker,
        )
    return figure


def tuned(study: StudyTable, trials: pd.DataFrame) -> list[str]:
    """The numeric settings that differ between tuning trials of one cell."""
    rows = trials[
        (trials["role"] == "tuning") & trials["cell"].isin([cell["key"] for cell in study["cells"]])
    ]
    paths = [path for path in rows.columns if "." in str(path) and np.isfinite(numbers(rows[path])).any()]
    return [str(path) for path in paths if (rows.groupby("cell")[path].nunique() > 1).any()]


def learning(study: StudyTable, trials: pd.DataFrame, history: pd.DataFrame) -> go.Figure:
    """The validation error of the runs that speak for each cell, as they were trained."""
    figure = _figure("training step (count)", f"validation {ERROR}", log_x=False)
    errors = history[history["metric"] == "error"]
    for index, cell in enumerate(study["cells"]):
        rows, _ = answers(trials, cell["key"])
        for number, trial in enumerate(rows["trial"]):
            mine = errors[errors["trial"] == trial].sort_values("step")
            mine = mine.iloc[:: max(1, len(mine) // MOST_STEPS)]
            figure.add_scatter(
                x=numbers(mine["step"]),
                y=_round(mine["value"]),
                mode="lines",
                name=_safe(cell["label"]),
                legendgroup=cell["key"],
                showlegend=number == 0,
                line={"color": PALETTE[index % 8], "width": 1.8},
            )
    return figure


def law(fitted: Sequence[Law]) -> go.Figure:
    """Laws along one axis: the data, the fit, and the bound; moved to the data's height if only its shape is known."""
    first = fitted[0]
    figure = _figure(
        _axis_name(first.along), _measure(first.of), log_x=first.form in ("power", "power_floor")
    )
    for index, one in enumerate(fitted):
        colour, name = PALETTE[index % 8], _safe(one.cell) or "all"
        marker = {"size": 9, "color": colour, "symbol": SYMBOLS[index % 8]}
        figure.add_scatter(
            x=one.x, y=_round(one.y), mode="markers", marker=marker, name=name, legendgroup=name
        )
        x = np.geomspace(*_ends(one.x), 80) if min(one.x) > 0 else np.linspace(*_ends(one.x), 80)
        figure.add_scatter(
            x=x,
            y=_round(one.value(x)),
            mode="lines",
            line={"color": colour},
            showlegend=False,
            legendgroup=name,
            hovertemplate="fit %{y:.3g}<extra></extra>",
        )
        shown = np.array([value if value > 1e-30 else np.nan for value in one.theory_y])
        if np.isfinite(shown).any():
            shift = 1.0 if one.absolute else np.exp(np.nanmean(np.log(np.array(one.y)) - np.log(shown)))
            figure.add_scatter(
                x=one.x,
                y=_round(shown * shift),
                mode="lines",
                name=str(one.theory) if one.absolute else f"{one.theory}, shape only",
                line={"color": colour, "dash": "dot"},
                legendgroup=name,
            )
    if any(one.theory_y for one in fitted):
        exact = [np.array(one.theory_y) for one in fitted if one.absolute]
        values = np.concatenate([*(np.array(one.y) for one in fitted), *exact])
        values = np.log10(np.maximum(values, min(min(one.y) for one in fitted) / DEEPEST))
        figure.update_yaxes(range=[float(values.min()) - 0.4, float(values.max()) + 0.4])
    return figure


def front(study: StudyTable, trials: pd.DataFrame) -> go.Figure:
    """Error against training FLOPs of every finished point."""
    figure = _figure("training cost (FLOPs)", ERROR)
    for index, cell in enumerate(study["cells"]):
        rows = finished(trials, "tuning", cell["key"])
        marker = {"size": 9, "color": PALETTE[index % 8], "symbol": SYMBOLS[index % 8]}
        figure.add_scatter(
            x=numbers(rows["flops"]),
            y=numbers(rows["error"]),
            mode="markers",
            marker=marker,
            name=_safe(cell["label"]),
        )
    return figure


def by_task(study: StudyTable, trials: pd.DataFrame) -> dict[str, list[str]]:
    """Cells that share a task, and so their baselines, under what sets the task apart from the others."""
    tasks = {}
    for cell in study["cells"]:
        rows, _ = answers(trials, cell["key"])
        if len(rows):
            tasks[cell["key"]] = task_of(rows.iloc[0])
    varied = [
        path
        for path in dict.fromkeys(p for task in tasks.values() for p in task)
        if len({repr(task.get(path)) for task in tasks.values()}) > 1
    ]
    groups: dict[str, list[str]] = {}
    for key, task in tasks.items():
        groups.setdefault(", ".join(f"{path}={task.get(path)}" for path in varied), []).append(key)
    return groups


def _drawn(
    study: StudyTable, trials: pd.DataFrame, curves: pd.DataFrame, cells: Sequence[str]
) -> list[tuple[int, str, pd.DataFrame]]:
    found = []
    for index, cell in enumerate(study["cells"]):
        rows, _ = answers(trials, cell["key"])
        rows = rows[rows["trial"].isin(curves["trial"])]
        if cell["key"] in cells and len(rows):
            found.append((index, _safe(cell["label"]), rows))
    return found


def _classical(
    trials: pd.DataFrame, curves: pd.DataFrame, drawn: Sequence[tuple[int, str, pd.DataFrame]]
) -> Iterator[tuple[str, pd.DataFrame]]:
    for _, row in baselines_of(trials, drawn[0][2].iloc[0]).iterrows() if drawn else ():
        curve = curve_at(curves, row["trial"])
        if len(curve):
            yield _safe(solver_name(row)), curve


def _floors(
    curves: pd.DataFrame, drawn: Sequence[tuple[int, str, pd.DataFrame]]
) -> Iterator[tuple[str, pd.Series]]:
    """What no predictor beats on the task of the cells drawn, which share it, by pairs seen."""
    if drawn:
        row = drawn[0][2].iloc[0]
        yield from floors_of(row, curve_at(curves, row["trial"]))


def _xs(figure: go.Figure) -> list[float]:
    return [float(x) for trace in figure.data for x in trace.x if x is not None]


def _exact(figure: go.Figure, name: str, values: pd.Series) -> None:
    """A reference that holds as it stands."""
    figure.add_scatter(
        x=numbers(values.index),
        y=_round(np.where(numbers(values) > 1e-12, numbers(values), np.nan)),
        mode="lines",
        name=f"{name.replace('_', ' ')}, exact",
        line={"color": "#101828", "width": 1.2, "dash": "longdash"},
    )


def _by(curve: pd.DataFrame, axis: str) -> pd.Series:
    return curve.groupby(axis)["error"].mean()


def _line(figure: go.Figure, name: str, index: int, groups: Sequence[pd.Series]) -> None:
    table = pd.concat(groups, axis=1)
    x, values = numbers(table.index), table.to_numpy(dtype=np.float64)
    colour = PALETTE[index % 8]
    intervals = mean_intervals(list(values))
    if all(interval is not None for interval in intervals) and len(groups) > 1:
        ends = np.array(intervals, dtype=np.float64)
        figure.add_scatter(
            x=np.r_[x, x[::-1]],
            y=_round(np.r_[ends[:, 1], ends[::-1, 0]]),
            fill="toself",
            mode="none",
            fillcolor=_faint(colour),
            showlegend=False,
            legendgroup=name,
            hoverinfo="skip",
        )
    style = {"color": colour, "width": 2.4, "dash": "solid"}
    marker = {"size": 7, "symbol": SYMBOLS[index % 8]}
    figure.add_scatter(
        x=x,
        y=_round(values.mean(1)),
        mode="lines+markers" if len(x) < 60 else "lines",
        name=name,
        line=style,
        marker=marker,
        legendgroup=name,
    )


def _dashed(figure: go.Figure, name: str, order: int, curve: pd.Series) -> None:
    y = numbers(curve)
    style = {"color": GREYS[order % 5], "width": 2, "dash": DASHES[order % 5]}
    figure.add_scatter(
        x=numbers(curve.index), y=_round(np.where(y > 1e-12, y, np.nan)), mode="lines", name=name, line=style
    )


def _figure(x: str, y: str, log_x: bool = True) -> go.Figure:
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


def ticked(figure: go.Figure) -> go.Figure:
    """With plain decimals on logarithmic axes: plotly's own labels drop the leading figure between powers.

    What is drawn dashed or dotted may leave the picture below: an algorithm that is exact after three pairs would
    press all that was measured into one line. Zooming out shows it whole.
    """
    for name, update in (("x", figure.update_xaxes), ("y", figure.update_yaxes)):
        if figure.layout[f"{name}axis"].type == "log":
            drawn, measured = _positive(figure.data, name), _positive(filter(_is_solid, figure.data), name)
            if len(drawn):
                low, high = float(drawn.min()), float(drawn.max())
                if len(measured) and name == "y":
                    low = max(low, float(measured.min()) / DEEPEST)
                    update(range=[np.log10(low) - 0.1, np.log10(high) + 0.1])
                places = _ticks(low, high)
                update(tickvals=places, ticktext=[f"{place:g}" for place in places])
    return figure


def _positive(traces: Iterable[go.Scatter], name: str) -> np.ndarray:
    values = np.concatenate([numbers(trace[name]) for trace in traces] or [np.zeros(0)])
    return values[values > 0]


def _is_solid(trace: go.Scatter) -> bool:
    return trace.line.dash in (None, "solid")


def _ticks(low: float, high: float) -> list[float]:
    """About ten round numbers, with a decade to spare on either side for zooming out."""
    decades = np.log10(high / low)
    digits = (1, 1.5, 2, 3, 4, 5, 7) if decades < 0.8 else (1, 2, 5) if decades < 3 else (1,)
    powers = range(int(np.floor(np.log10(low))) - 1, int(np.ceil(np.log10(high))) + 2)
    return [digit * 10.0**power for power in powers[:: max(1, int(decades // 8))] for digit in digits]


def _axis_name(along: str) -> str:
    return {"loop": "loop (count)", "point": "pairs seen before the query (count)"}.get(along, along)


def _measure(of: str) -> str:
    return {"error": ERROR, "error_last": f"last query's {ERROR}"}.get(
        of, of.replace("_", " ") + " (target's units²)"
    )


def _ends(x: Sequence[float]) -> tuple[float, float]:
    return min(x), max(x)


def _round(values: Iterable[float]) -> list[float | None]:
    """Four digits are more than a screen shows; what is not finite is a gap."""
    return [float(f"{value:.4g}") if np.isfinite(value) else None for value in numbers(values)]


def _faint(colour: str) -> str:
    return "rgba({},{},{},0.16)".format(*(int(colour[i : i + 2], 16) for i in (1, 3, 5)))


def _wrapped(label: str) -> str:
    return _safe(label).replace(", ", "<br>")


def _safe(text: str) -> str:
    """Plotly reads tags in names; a study's labels are no markup."""
    return html.escape(text, quote=False)
