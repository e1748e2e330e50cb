"""Error over two axes as a surface: against what it costs, with the least error for every number of FLOPs."""

import numpy as np
import plotly.graph_objects as go

from loopscale.analysis.axes import FLOPS, axis_name
from loopscale.analysis.figures.style import ERROR, blank, colour_of, rounded, symbol_of
from loopscale.analysis.laws.surface import Surface


def compute_optimal(surface: Surface, x: str, z: str) -> go.Figure:
    """Error against FLOPs: cells as markers, the fitted surface as a line for every z, its envelope in black.

    The envelope is the surface's least error at that cost, within the range of what was trained; where no pair is known
    to be best there is none, and the figure says why. `x` and `z` are what the surface's axes are called.
    """
    figure = blank(axis_name(FLOPS), ERROR)
    cells = surface.cells
    for index, value in enumerate(np.unique(cells.z)):
        here = cells.z == value
        colour, name = colour_of(index), f"{z} = {value:g}"
        marker = {"size": 9, "color": colour, "symbol": symbol_of(index)}
        text = [f"{x} = {each:g}, {name}" for each in cells.x[here]]
        figure.add_scatter(x=rounded(surface.flops(cells.x[here], value)), y=rounded(cells.error[here]), mode="markers",
                           marker=marker, name=name, legendgroup=name, hovertext=text)  # fmt: skip
        along = np.geomspace(cells.x[here].min(), cells.x[here].max(), 60)
        figure.add_scatter(x=rounded(surface.flops(along, value)), y=rounded(surface.value(along, value)), mode="lines",
                           line={"color": colour, "width": 1.8}, legendgroup=name, showlegend=False,
                           hovertemplate=f"surface at {name}: %{{y:.3g}}<extra></extra>")  # fmt: skip
    try:
        law = surface.law()
    except ValueError as problem:
        where = {"xref": "paper", "yref": "paper", "x": 1, "y": 1, "xanchor": "right", "yanchor": "top"}
        why = f"no line of least error: {problem}".replace(", so that", ",<br>so that")
        figure.add_annotation(text=why, showarrow=False, align="right", bgcolor="white", **where)
        return figure
    costs = surface.flops(cells.x, cells.z)
    budgets = np.geomspace(costs.min(), costs.max(), 60)
    best = [surface.best(each) for each in budgets]
    inside = np.array([
        cells.x.min() <= one <= cells.x.max() and cells.z.min() <= other <= cells.z.max() for one, other in best
    ])  # fmt: skip
    style = {"color": "#101828", "width": 2.4, "dash": "longdash"}
    figure.add_scatter(
        x=rounded(budgets), y=rounded(np.where(inside, law(budgets), np.nan)), mode="lines", line=style,
        name=f"least error: {law.floor:.2g} + {law.scale:.2g} FLOPs^-{law.exponent:.2g}",
        hovertext=[f"best {x} = {one:.3g}, {z} = {other:.3g}" for one, other in best],
    )  # fmt: skip
    return figure
