"""Laws and surfaces as figures: the data, the fit, and the theory beside the fit."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import plotly.graph_objects as go
from typing_extensions import override

from loopscale.analysis.figures.base import Drawing, Figure, Part, Reported
from loopscale.analysis.figures.style import (
    ERROR_TITLE,
    MUTED,
    PREDICTED,
    blank,
    colour_of,
    interval_bars,
    legend_entry,
    measure_title,
    rounded,
    safe,
    scatter,
    series,
)
from loopscale.analysis.laws.held_out import AFTERWARDS, PredictedValue
from loopscale.analysis.laws.law import Law
from loopscale.analysis.laws.surface import Surface
from loopscale.analysis.recorded.axes import axis_title
from loopscale.core.titles import bound_name
from loopscale.questions.axes.base import axis_of

BOUND_DASHES = ("dot", "dash", "dashdot")
"""The dashes of a cell's first, second and third bound."""


@dataclass(frozen=True)
class _BoundLine:
    """The line of one bound beside one cell's law. `shift` is the fitted constant, 1 for an absolute bound."""

    theory: str
    absolute: bool
    dash: str
    cell: str
    trace: int
    shift: float


def law_figure(laws: Sequence[Law]) -> go.Figure:
    """Laws along one axis: the means with intervals, the fit, and the bound.

    If a bound has an unknown constant or describes another quantity, only its shape is compared: the line has a fitted
    constant, which the legend gives. A bound beside several cells has one entry in the legend.
    """
    first = laws[0]
    log_x = first.log_axis or axis_of(first.along).logarithmic
    figure = blank(axis_title(first.along, first.beside), measure_title(first.of), log_x=log_x)
    bounds: list[_BoundLine] = []
    for place, cell in enumerate(dict.fromkeys(law.cell for law in laws)):
        of_cell = [law for law in laws if law.cell == cell]
        colour, name = colour_of(place), safe(cell) or "all"
        _fits(figure, of_cell, place, name)
        for order, law in enumerate(of_cell):
            bound = _bound(figure, law, colour, BOUND_DASHES[order % 3], name)
            bounds += [bound] if bound else []
    _shared_legend(figure, bounds)
    return figure


def _fits(figure: go.Figure, laws: Sequence[Law], index: int, name: str) -> None:
    """One cell's data, and every fitted form once, also if several bounds are compared with the form."""
    law = laws[0]
    series(figure, index, law.x, law.y, name, error_y=_bars(law), legendgroup=name)
    spaced = np.geomspace if min(law.x) > 0 else np.linspace
    x = spaced(min(law.x), max(law.x), 80)
    for fit in {law.form: law for law in laws}.values():
        scatter(
            figure,
            x=x,
            y=rounded(fit.value(x)),
            mode="lines",
            line={"color": colour_of(index)},
            showlegend=False,
            legendgroup=name,
            hovertemplate="fit %{y:.3g}<extra></extra>",
        )
    for value in law.predictions:
        _prediction(figure, value, index, name)


def _prediction(figure: go.Figure, value: PredictedValue, index: int, name: str) -> None:
    """The prediction of a held-out value with its interval, and the runs there."""
    low, middle, high = (
        np.exp([end]) for end in (value.prediction.low, value.prediction.centre, value.prediction.high)
    )
    common = {"mode": "markers", "showlegend": False, "legendgroup": name}
    scatter(
        figure,
        x=[value.at],
        y=rounded(middle),
        error_y=interval_bars(middle, low, high, width=8) | {"thickness": 1},
        marker={"color": colour_of(index), "symbol": PREDICTED, "size": 12},
        hovertemplate=f"{'foretold' if value.foretold else AFTERWARDS} %{{y:.3g}}<extra></extra>",
        **common,
    )
    if value.errors:
        scatter(
            figure,
            x=[value.at],
            y=rounded(np.exp([np.log(value.errors).mean()])),
            marker={"color": colour_of(index), "symbol": "diamond-open", "size": 9},
            hovertemplate=f"held out: %{{y:.3g}}, {value.verdict}<extra></extra>",
            **common,
        )


def _bound(figure: go.Figure, law: Law, colour: str, dash: str, name: str) -> _BoundLine | None:
    values = np.array([value if value > 1e-30 else np.nan for value in law.theory_y])
    if not np.isfinite(values).any():
        return None
    shift = 1.0 if law.absolute else float(np.exp(np.nanmean(np.log(np.array(law.y)) - np.log(values))))
    theory = bound_name(law.theory)
    scatter(
        figure,
        x=law.x,
        y=rounded(values * shift),
        mode="lines",
        name=_bound_name(theory, law.absolute, [shift]),
        line={"color": colour, "dash": dash},
        legendgroup=name,
    )
    place = len(list(figure.select_traces())) - 1
    return _BoundLine(theory, law.absolute, dash, law.cell, place, shift)


def _shared_legend(figure: go.Figure, bounds: Sequence[_BoundLine]) -> None:
    """A bound beside several cells gets one muted entry in the legend."""
    groups: dict[tuple[str, bool, str], list[_BoundLine]] = {}
    for bound in bounds:
        groups.setdefault((bound.theory, bound.absolute, bound.dash), []).append(bound)
    for (theory, absolute, dash), lines in groups.items():
        if len({line.cell for line in lines}) > 1:
            for line in lines:
                figure.data[line.trace].update(showlegend=False)
            name = _bound_name(theory, absolute, [line.shift for line in lines])
            legend_entry(figure, name, {"color": MUTED[0], "dash": dash})


def _bound_name(theory: str, absolute: bool, shifts: Sequence[float]) -> str:
    if absolute:
        return theory
    ends = dict.fromkeys(f"{end:.2g}" for end in (min(shifts), max(shifts)))
    constants = "constant" if len(shifts) == 1 else "constants"
    return f"{theory}: its shape, {constants} fitted (× {' to '.join(ends)})"


def _bars(law: Law) -> dict[str, Any] | None:
    if not law.halves:
        return None
    y, spread = np.array(law.y), np.exp(law.halves)
    return interval_bars(y, y / spread, y * spread, width=4) | {"thickness": 1.5}


def compute_optimal_figure(surface: Surface, x: str, z: str) -> go.Figure:
    """Error against FLOPs: cells as markers, the fitted surface as a line for every z, and its envelope in black.

    The envelope is the least error of the surface at each cost, within the range of the trained cells. If the surface
    has no law of the best pair, there is no envelope, and the figure gives the reason.

    Parameters
    ----------
    x, z
        The names of the surface's axes.
    """
    figure = blank(axis_title("flops"), ERROR_TITLE)
    cells = surface.cells
    for index, value in enumerate(np.unique(cells.z)):
        at_value = cells.z == value
        places = cells.x[at_value]
        colour, name = colour_of(index), f"{z} = {value:g}"
        hover = [f"{x} = {place:g}, {name}" for place in places]
        costs, errors = rounded(surface.flops(places, value)), cells.error[at_value]
        series(figure, index, costs, errors, name, legendgroup=name, hovertext=hover)
        along = np.geomspace(places.min(), places.max(), 60)
        scatter(
            figure,
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
    scatter(
        figure,
        x=rounded(budgets),
        y=rounded(np.where(trained, envelope(budgets), np.nan)),
        mode="lines",
        line={"color": "#101828", "width": 2.4, "dash": "longdash"},
        name=f"least error: {envelope.floor:.2g} + {envelope.scale:.2g} FLOPs^-{envelope.exponent:.2g}",
        hovertext=[f"best {x} = {best_x:.3g}, {z} = {best_z:.3g}" for best_x, best_z in best],
    )
    return figure


class LawAlongAxis(Figure, kind="law"):
    """A figure for each measure and axis with laws."""

    place = 400

    @override
    def parts(self, study: Reported) -> Iterable[Part]:
        laws: dict[tuple[str, str], list[Law]] = {}
        for law in study.laws:
            laws.setdefault((law.along, law.of), []).append(law)
        return [(str(place), same) for place, same in enumerate(laws.values())]

    @override
    def draw(self, study: Reported, part: Sequence[Law]) -> Drawing:
        text = (
            "Means over runs, fitted laws, and the prediction of theory (dotted or dashed). A prediction that is exact"
            " for this quantity is drawn as is. Of any other prediction only the shape counts: its constant is fitted."
            " Short bars with an interval are predictions of held-out values, and open diamonds are the runs there."
        )
        return Drawing(f"Law: {part[0].of} along {part[0].along}", text, law_figure(part))
