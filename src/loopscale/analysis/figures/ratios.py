"""Ratios of errors as figures: nets relative to a classical algorithm, step by step."""

import numpy as np
import plotly.graph_objects as go

from loopscale.analysis.answers.claims import ratios_to_solver
from loopscale.analysis.figures.style import (
    band,
    blank,
    colour_of,
    rounded,
    safe,
    symbol_of,
    with_decimal_ticks,
)
from loopscale.analysis.results import Results


def ratios_by_step(results: Results, solver: str) -> go.Figure:
    """The ratio of every cell's error to a classical algorithm's error after as many steps, with 95 % bands.

    Below 1 the net is better. The figure is empty if the study did not run the algorithm.
    """
    ratios = ratios_to_solver(results, solver).astype({"ratio": float, "low": float, "high": float})
    ratios = ratios[np.isfinite(ratios["ratio"])]
    name = solver.replace("_", " ")
    figure = blank(
        "loop or layer, and step of the algorithm (count)", f"error over that of {name}", log_x=False
    )
    for cell in results.cells:
        rows = ratios[ratios["cell"] == cell.label]
        if rows.empty:
            continue
        label, colour = safe(cell.label), colour_of(cell.index)
        steps, ratio, low, high = (
            rows[column].to_numpy(np.float64) for column in ("step", "ratio", "low", "high")
        )
        band(figure, label, colour, steps, low, high)
        figure.add_scatter(
            x=steps,
            y=rounded(ratio),
            mode="lines+markers",
            name=label,
            legendgroup=label,
            line={"color": colour, "width": 2.4},
            marker={"size": 7, "symbol": symbol_of(cell.index)},
        )
    if len(ratios):
        ends = [float(ratios["step"].min()), float(ratios["step"].max())]
        style = {"color": "#444444", "width": 1.5, "dash": "dash"}
        figure.add_scatter(
            x=ends, y=[1, 1], mode="lines", line=style, name=f"as good as {name}", hoverinfo="skip"
        )
    return with_decimal_ticks(figure)
