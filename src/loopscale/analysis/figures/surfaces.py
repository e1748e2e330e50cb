"""Error over two axes against training cost, with the least error for every number of FLOPs."""

import numpy as np
import plotly.graph_objects as go

from loopscale.analysis.axes import FLOPS, axis_title
from loopscale.analysis.figures.style import ERROR, blank, colour_of, rounded, symbol_of
from loopscale.analysis.laws.surface import Surface


def compute_optimal(surface: Surface, x: str, z: str) -> go.Figure:
    """Error against FLOPs: cells as markers, the fitted surface as a line for every z, and its envelope in black.

    The envelope is the least error of the surface at each cost, within the range of the trained cells. If the surface
    has no law of the best pair, there is no envelope, and the figure gives the reason.

    Parameters
    ----------
    x, z
        The names of the surface's axes.
    """
    figure = blank(axis_title(FLOPS), ERROR)
    cells = surface.cells
    for index, value in enumerate(np.unique(cells.z)):
        at_value = cells.z == value
        places = cells.x[at_value]
        colour, name = colour_of(index), f"{z} = {value:g}"
        figure.add_scatter(
            x=rounded(surface.flops(places, value)),
            y=rounded(cells.error[at_value]),
            mode="markers",
            marker={"size": 9, "color": colour, "symbol": symbol_of(index)},
            name=name,
            legendgroup=name,
            hovertext=[f"{x} = {place:g}, {name}" for place in places],
        )
        along = np.geomspace(places.min(), places.max(), 60)
        figure.add_scatter(
            x=rounded(surface.flops(along, value)),
            y=rounded(surface.value(along, value)),
            mode="lines",
            line={"color": colour, "width": 1.8},
            legendgroup=name,
            showlegend=False,
            hovertemplate=f"surface at {name}: %{{y:.3g}}<extra></extra>",
        )
    try:
        envelope = surface.envelope()
    except ValueError as problem:
        corner = {"xref": "paper", "yref": "paper", "x": 1, "y": 1, "xanchor": "right", "yanchor": "top"}
        reason = f"no line of least error: {problem}".replace(", so that", ",<br>so that")
        figure.add_annotation(text=reason, showarrow=False, align="right", bgcolor="white", **corner)
        return figure
    costs = surface.flops(cells.x, cells.z)
    budgets = np.geomspace(costs.min(), costs.max(), 60)
    best = [surface.best(budget) for budget in budgets]
    trained = np.array([surface.within_cells(*pair) for pair in best])
    figure.add_scatter(
        x=rounded(budgets),
        y=rounded(np.where(trained, envelope(budgets), np.nan)),
        mode="lines",
        line={"color": "#101828", "width": 2.4, "dash": "longdash"},
        name=f"least error: {envelope.floor:.2g} + {envelope.scale:.2g} FLOPs^-{envelope.exponent:.2g}",
        hovertext=[f"best {x} = {best_x:.3g}, {z} = {best_z:.3g}" for best_x, best_z in best],
    )
    return figure
