"""Error against loops and against points: trained nets, classical algorithms, exact references.

Beyond T, the loop that was trained for, a few prompts may explode and take the mean with them: there the median over
prompts is dotted beside the mean, where the records have it. Bounds and classical algorithms are means: a median may
lie below what no predictor can beat.
"""

# pandas types every selection as a union of all that it could be: those rules find nothing here but that.
# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportCallIssue=false
# pyright: reportGeneralTypeIssues=false, reportReturnType=false, reportOperatorIssue=false
# pyright: reportOptionalMemberAccess=false

from collections.abc import Sequence

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from loopscale.analysis.figures.references import references
from loopscale.analysis.figures.style import (
    DASHES,
    ERROR,
    GREYS,
    blank,
    colour_of,
    dashed,
    entry,
    exact,
    line,
    rounded,
)
from loopscale.analysis.figures.task import by, classical, drawn, floors
from loopscale.analysis.tables import StudyTable, curve_at, loop_of

MEDIANS = {"width": 1.1, "dash": "dot"}
MEDIANS_ARE = "dotted: median over prompts (bounds are of the mean)"
Runs = Sequence[tuple[int, str, pd.DataFrame]]


def against_loops(
    study: StudyTable, trials: pd.DataFrame, curves: pd.DataFrame, cells: Sequence[str]
) -> go.Figure:
    """Mean error over queries after every loop or layer; a ring marks T, the loop that was trained for."""
    figure = blank("loop or layer (count)", ERROR)
    runs = drawn(study, trials, curves, cells)
    _trained(figure, curves, runs)
    for order, (name, curve) in enumerate(classical(trials, curves, runs)):
        dashed(figure, name, order, by(curve, "loop"))
    for name, floor in floors(curves, runs):
        exact(figure, name, pd.Series(float(floor.mean()), index=sorted(set(_xs(figure)))))
    return figure


def against_references(
    study: StudyTable, trials: pd.DataFrame, curves: pd.DataFrame, cells: Sequence[str]
) -> go.Figure:
    """Mean error over queries after every loop, on the curves that theory gives exactly for the same task and loop.

    The cells share a task; the references are those of `references`, at their own height: no constant is fitted.
    """
    figure = blank("loop or layer (count)", ERROR)
    runs = drawn(study, trials, curves, cells)
    _trained(figure, curves, runs)
    loops = [int(x) for x in sorted(set(_xs(figure)))]
    for order, (name, values) in enumerate(references(runs[0][2].iloc[0], loops) if runs else ()):
        style = {"color": "#101828", "width": 1.6, "dash": DASHES[order % 5]}
        y = rounded(np.where(values > 1e-12, values, np.nan))
        figure.add_scatter(x=loops, y=y, mode="lines", name=name, line=style)
    return figure


def against_points(
    study: StudyTable, trials: pd.DataFrame, curves: pd.DataFrame, cells: Sequence[str]
) -> go.Figure:
    """Error at loop T against the pairs seen before the query; classical algorithms after their last step."""
    figure = blank("pairs seen before the query (count)", ERROR, log_x=False)
    runs = drawn(study, trials, curves, cells)
    for index, label, rows in runs:
        groups = []
        for _, row in rows.iterrows():
            curve = curve_at(curves, row["trial"])
            groups.append(by(curve[curve["loop"] == loop_of(row, curve)], "point"))
        line(figure, label, index, groups)
    for order, (name, curve) in enumerate(classical(trials, curves, runs)):
        dashed(figure, name, order, by(curve[curve["loop"] == curve["loop"].max()], "point"))
    for name, floor in floors(curves, runs):
        exact(figure, name, floor)
    return figure


def _trained(figure: go.Figure, curves: pd.DataFrame, runs: Runs) -> None:
    """Means with intervals, a ring at T, medians beyond it; one T for all is where the figure is shaded from."""
    ends, dotted = set[int](), False
    for index, label, rows in runs:
        own = [curve_at(curves, trial) for trial in rows["trial"]]
        groups = [by(curve, "loop") for curve in own]
        line(figure, label, index, groups)
        at = loop_of(rows.iloc[0], own[0])
        ends.add(at)
        _ring(figure, label, index, at, float(np.mean([group.get(at, np.nan) for group in groups])))
        if all("median" in curve and curve["median"].notna().any() for curve in own):
            beyond = [by(curve[curve["loop"] >= at], "loop", "median") for curve in own]
            dotted |= _medians(figure, label, index, pd.concat(beyond, axis=1).mean(axis=1))
    if dotted:
        entry(figure, MEDIANS_ARE, MEDIANS | {"color": GREYS[1]})
    last = max(_xs(figure), default=0)
    if len(ends) == 1 and last > (at := ends.pop()):
        words = {"text": "beyond the trained loops", "textposition": "top left", "font": {"color": "#475467"}}
        figure.add_shape(type="rect", x0=at, x1=last, yref="paper", y0=0, y1=1, layer="below", label=words,
                         fillcolor="#f2f4f7", line={"width": 0})  # fmt: skip


def _ring(figure: go.Figure, label: str, index: int, at: int, height: float) -> None:
    ring = {"size": 14, "symbol": "circle-open", "color": colour_of(index), "line": {"width": 2.5}}
    figure.add_scatter(
        x=[at],
        y=[height],
        mode="markers",
        marker=ring,
        showlegend=False,
        legendgroup=label,
        hovertemplate=f"trained for T = {at}<extra>{label}</extra>",
    )


def _medians(figure: go.Figure, label: str, index: int, medians: pd.Series) -> bool:
    """Whether there is more than T to draw them at."""
    if further := len(medians) > 1:
        figure.add_scatter(
            x=medians.index,
            y=rounded(medians),
            mode="lines",
            line=MEDIANS | {"color": colour_of(index)},
            opacity=0.6,
            name=f"{label}, median over prompts",
            legendgroup=label,
            showlegend=False,
            hovertemplate=f"median over prompts %{{y:.3g}}<extra>{label}</extra>",
        )
    return further


def _xs(figure: go.Figure) -> list[float]:
    return [float(x) for trace in figure.data for x in trace.x if x is not None]
