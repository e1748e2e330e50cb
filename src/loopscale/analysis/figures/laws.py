"""Laws: data, fit, and what theory says of them."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go

from loopscale.analysis.axes import FLOPS, PROMPTS, axis_name
from loopscale.analysis.figures.style import (
    DEEPEST,
    GREYS,
    blank,
    colour_of,
    entry,
    measured,
    rounded,
    safe,
    symbol_of,
)
from loopscale.analysis.laws.law import Law

Kind = tuple[str, bool, str]
"""Of a bound: its name, whether it stands at its own height, its dash."""
Drawn = tuple[str, go.Scatter, float]
"""A bound as it is drawn: the cell, the line, the constant that was fitted."""
BOUNDS = ("dot", "dash", "dashdot")
"""Of a cell's bounds, the first, second and third."""


def law(fitted: Sequence[Law]) -> go.Figure:
    """Laws along one axis: the means with intervals, the fit, and the bound.

    Of a bound that hides its constant, or is of another quantity, the shape is drawn, with the constant fitted: the
    legend says so, and which it is. A bound of several cells is in the legend once.
    """
    first = fitted[0]
    figure = blank(axis_name(first.along, first.beside), measured(first.of), log_x=_straight(first))
    cells, bounds = list(dict.fromkeys(one.cell for one in fitted)), dict[Kind, list[Drawn]]()
    for place, cell in enumerate(cells):
        mine = [one for one in fitted if one.cell == cell]
        colour, name = colour_of(place), safe(cell) or "all"
        _fits(figure, mine, colour, name, symbol_of(place))
        for order, one in enumerate(mine):
            dash = BOUNDS[order % 3]
            if drawn := _theory(figure, one, {"color": colour, "dash": dash}, name):
                bounds.setdefault((str(one.theory), one.absolute, dash), []).append(drawn)
    _named_once(figure, bounds)
    if any(one.theory_y for one in fitted):
        heights = [np.array(one.theory_y) for one in fitted if one.absolute]
        values = np.concatenate([*(np.array(one.y) for one in fitted), *heights])
        values = np.log10(np.maximum(values, min(min(one.y) for one in fitted) / DEEPEST))
        figure.update_yaxes(range=[float(values.min()) - 0.4, float(values.max()) + 0.4])
    return figure


def _fits(figure: go.Figure, laws: Sequence[Law], colour: str, name: str, symbol: str) -> None:
    """One cell's data, and every form that was fitted to them: once, however many bounds they are held against."""
    one = laws[0]
    marker = {"size": 9, "color": colour, "symbol": symbol}
    figure.add_scatter(
        x=one.x,
        y=rounded(one.y),
        error_y=_bars(one),
        mode="markers",
        marker=marker,
        name=name,
        legendgroup=name,
    )
    x = np.geomspace(*_ends(one.x), 80) if min(one.x) > 0 else np.linspace(*_ends(one.x), 80)
    for fit in {one.form: one for one in laws}.values():
        figure.add_scatter(
            x=x,
            y=rounded(fit.value(x)),
            mode="lines",
            line={"color": colour},
            showlegend=False,
            legendgroup=name,
            hovertemplate="fit %{y:.3g}<extra></extra>",
        )


def _theory(figure: go.Figure, one: Law, line: dict[str, str], name: str) -> Drawn | None:
    shown = np.array([value if value > 1e-30 else np.nan for value in one.theory_y])
    if not np.isfinite(shown).any():
        return None
    shift = 1.0 if one.absolute else float(np.exp(np.nanmean(np.log(np.array(one.y)) - np.log(shown))))
    figure.add_scatter(
        x=one.x,
        y=rounded(shown * shift),
        mode="lines",
        name=_called(str(one.theory), one.absolute, [shift]),
        line=line,
        legendgroup=name,
    )
    return name, figure.data[-1], shift  # pyright: ignore[reportReturnType]: plotly types `data` as any trace


def _named_once(figure: go.Figure, bounds: Mapping[Kind, Sequence[Drawn]]) -> None:
    """A bound that is drawn for several cells has one line of the legend, in no cell's colour."""
    for (theory, absolute, dash), drawn in bounds.items():
        cells, traces, shifts = zip(*drawn, strict=True)
        if len(set(cells)) > 1:
            for trace in traces:
                trace.showlegend = False
            entry(figure, _called(theory, absolute, shifts), {"color": GREYS[0], "dash": dash})


def _called(theory: str, absolute: bool, shifts: Sequence[float]) -> str:
    if absolute:
        return theory
    ends = dict.fromkeys(f"{end:.2g}" for end in (min(shifts), max(shifts)))
    constants = "constant" if len(shifts) == 1 else "constants"
    return f"{theory}: its shape, {constants} fitted (× {' to '.join(ends)})"


def _straight(law: Law) -> bool:
    """Whether the law is a line where both axes are logarithmic."""
    return law.shape.log_axis or law.along in (FLOPS, PROMPTS)


def _bars(law: Law) -> dict[str, Any] | None:
    if not law.halves:
        return None
    y, spread = np.array(law.y), np.exp(law.halves)
    bars = {"type": "data", "symmetric": False, "thickness": 1.5, "width": 4}
    return bars | {"array": rounded(y * (spread - 1)), "arrayminus": rounded(y * (1 - 1 / spread))}


def _ends(x: Sequence[float]) -> tuple[float, float]:
    return min(x), max(x)
