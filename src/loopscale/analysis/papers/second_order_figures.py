"""Figures of Fu et al. 2023 (arXiv:2310.17086, section 4), from the analysis of `second_order.py`."""

from collections.abc import Sequence

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray
from plotly.subplots import make_subplots

from loopscale.analysis.figures.style import (
    ERROR,
    blank,
    colour_of,
    dashed_line,
    mean_line,
    rounded,
    safe,
    symbol_of,
    with_decimal_ticks,
)
from loopscale.analysis.notebook import missing_figure
from loopscale.analysis.papers.best_matches import LEAST_SIMILARITY, TrendFit, fit_trend
from loopscale.analysis.papers.second_order import UNTRAINED, NetSimilarity, StepErrors

MOST_COLUMNS = 20
"""Columns of a heat map. Of more iterates so many are shown, evenly on a logarithmic scale."""
LOGARITHMIC = ("gradient descent",)
"""Solvers whose best match grows exponentially in the paper. On a logarithmic axis such growth is a straight line."""
STEP = "loop or layer (count)"


def heat_maps(similar: Sequence[NetSimilarity]) -> go.Figure:
    """The similarity of every step with every iterate, mean over replicates. A ring marks each step's best match."""
    if not similar:
        return missing_figure(UNTRAINED)
    panels = dict[tuple[str, str], list[NetSimilarity]]()
    for pair in similar:
        panels.setdefault((pair.cell, pair.solver), []).append(pair)
    cells, solvers = (list(dict.fromkeys(key[part] for key in panels)) for part in (0, 1))
    figure = make_subplots(
        len(cells),
        len(solvers),
        column_titles=[safe(solver) for solver in solvers],
        row_titles=[safe(cell) for cell in cells],
        vertical_spacing=0.3 / len(cells),
    )
    ring = {"symbol": "circle-open", "color": "white", "size": 9, "line": {"width": 2}}
    for (cell, solver), replicates in panels.items():
        row, column = cells.index(cell) + 1, solvers.index(solver) + 1
        mean = np.mean([pair.values for pair in replicates], axis=0)
        steps, columns = np.arange(1, len(mean) + 1), _columns(mean.shape[1])
        labels = [str(iterate) for iterate in columns]
        distance = np.abs(np.log(columns) - np.log(mean.argmax(1) + 1)[:, None])
        nearest = [labels[index] for index in distance.argmin(1)]
        shown = mean[:, columns - 1].round(3)
        figure.add_trace(go.Heatmap(x=labels, y=steps, z=shown, coloraxis="coloraxis"), row, column)
        rings = go.Scatter(x=nearest, y=steps, mode="markers", marker=ring, hoverinfo="skip")
        figure.add_trace(rings, row, column)
    figure.update_layout(blank("", "").layout.to_plotly_json() | {"annotations": figure.layout.annotations})
    figure.update_layout(height=130 + 190 * len(cells), showlegend=False, margin={"t": 40})
    bar = {"title": "similarity", "x": 1.06}  # beside the names of the nets
    figure.update_layout(coloraxis={"colorscale": "Cividis", "cmin": 0, "cmax": 1, "colorbar": bar})
    figure.update_xaxes(type="category", title_text="")
    figure.update_yaxes(type="linear", title_text="", dtick=1)
    figure.update_yaxes(title_text=STEP, col=1)
    figure.update_xaxes(title_text="iterate", row=len(cells))
    return figure


def best_matches_figure(
    similar: Sequence[NetSimilarity], solver: str, least: float = LEAST_SIMILARITY
) -> go.Figure:
    """The best-matching iterate of every step, with a marker for every replicate and both fitted trends.

    The axis is linear, so that a linear trend is straight. For gradient descent the axis is logarithmic, so that an
    exponential trend is straight. Small markers are matches that the trends leave out: below `least`, or at the last
    iterate. The legend gives the rates with their 95 % intervals over replicates.
    """
    rows = [row for row in similar if row.solver == solver]
    if not rows:
        return missing_figure(UNTRAINED)
    figure = blank(STEP, "best-matching iterate (count)", log_x=False)
    if solver not in LOGARITHMIC:
        highest = max(int(row.matches.iterates.max()) for row in rows)
        figure.update_yaxes(type="linear", range=[0, 1.1 * highest])
    for index, cell in enumerate(dict.fromkeys(row.cell for row in rows)):
        replicates = [row for row in rows if row.cell == cell]
        matches = [row.matches for row in replicates]
        name, colour = safe(cell), colour_of(index)
        middle = float(np.mean([row.replicate for row in replicates]))
        offsets = [(row.replicate - middle) * 0.06 for row in replicates]
        sizes = np.concatenate([np.where(found.clear(least), 9, 4) for found in matches])
        figure.add_scatter(
            x=np.concatenate([found.steps + offset for found, offset in zip(matches, offsets, strict=True)]),
            y=np.concatenate([found.iterates for found in matches]),
            mode="markers",
            marker={"color": colour, "symbol": symbol_of(index), "size": sizes},
            name=name,
        )
        trend = fit_trend(matches, least)
        for kind, dash in (("linear", "dash"), ("exponential", "dot")):
            fit = trend.fits.get(kind)
            if fit is None or trend.kind == "none":
                continue
            chosen = trend.kind == kind
            steps = np.linspace(trend.steps[0], trend.steps[-1], 40)
            style = {"color": colour, "dash": dash, "width": 1.8 if chosen else 1}
            label = f"{name}: {_rate_label(fit)}{', chosen' if chosen else ''}"
            figure.add_scatter(x=steps, y=rounded(fit.iterates(steps)), mode="lines", line=style, name=label)
    return with_decimal_ticks(figure)


def error_by_step(errors: Sequence[StepErrors]) -> go.Figure:
    """Error after every loop, layer or iterate: nets with their 95 % intervals over replicates, solvers dashed."""
    if not errors:
        return missing_figure(UNTRAINED)
    figure = blank("loop, layer or iterate (count)", ERROR)
    for index, cell in enumerate(dict.fromkeys(row.name for row in errors if row.replicate)):
        curves = np.stack([row.errors for row in errors if row.name == cell and row.replicate], axis=1)
        mean_line(figure, safe(cell), index, np.arange(1.0, len(curves) + 1), curves)
    for order, row in enumerate(row for row in errors if not row.replicate):
        dashed_line(figure, safe(row.name), order, range(1, len(row.errors) + 1), row.errors)
    return with_decimal_ticks(figure)


def _rate_label(fit: TrendFit) -> str:
    linear = fit.form == "linear"
    rate, *ends = (value if linear else np.exp(value) for value in (fit.rate, *(fit.interval or ())))
    text = f"{rate:.2f} a step" if linear else f"times {rate:.2f} a step"
    return f"{text} ({ends[0]:.2f} to {ends[1]:.2f})" if ends else text


def _columns(iterates: int) -> NDArray[np.int64]:
    """The iterates that a heat map shows."""
    if iterates <= MOST_COLUMNS:
        return np.arange(1, iterates + 1)
    return np.unique(np.geomspace(1, iterates, MOST_COLUMNS).round().astype(np.int64))
