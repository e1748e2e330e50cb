"""The course of training: validation error by step, and error against cost."""

import plotly.graph_objects as go

from loopscale.analysis.figures.style import ERROR, blank, colour_of, rounded, safe, symbol_of
from loopscale.analysis.results import Results

MOST_STEPS = 200
"""A run with more recorded steps is thinned."""
MOST_MARKED = 10
"""The largest number of markers on the line of one run."""


def learning_curves(results: Results) -> go.Figure:
    """The validation error of the runs that answer for each cell, by training step."""
    figure = blank("training step (count)", f"validation {ERROR}", log_x=False)
    for cell in results.cells:
        for number, run in enumerate(cell.runs):
            steps, errors = run.history("error")
            thin = slice(None, None, max(1, len(steps) // MOST_STEPS))
            figure.add_scatter(
                x=steps[thin].tolist(),
                y=rounded(errors[thin]),
                mode="lines+markers",
                name=safe(cell.label),
                legendgroup=cell.key,
                showlegend=number == 0,
                line={"color": colour_of(cell.index), "width": 1.8},
                marker={"size": 6, "symbol": symbol_of(cell.index), "maxdisplayed": MOST_MARKED},
            )
    return figure


def error_against_cost(results: Results) -> go.Figure:
    """The error of every finished tuning trial against its training FLOPs."""
    figure = blank("training cost (FLOPs)", ERROR)
    for cell in results.cells:
        finished = [trial for trial in cell.tuning if trial.finished]
        figure.add_scatter(
            x=[trial["flops"] for trial in finished],
            y=[trial["error"] for trial in finished],
            mode="markers",
            marker={"size": 9, "color": colour_of(cell.index), "symbol": symbol_of(cell.index)},
            name=safe(cell.label),
        )
    return figure
