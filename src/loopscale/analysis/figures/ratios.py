"""Ratios of errors as figures: a net over a classical algorithm, step by step."""

# pandas types every selection as a union of all that it could be: those rules find nothing here but that.
# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportCallIssue=false

import numpy as np
import plotly.graph_objects as go

from loopscale.analysis.answers.claims import Records, beside
from loopscale.analysis.figures.style import band, blank, colour_of, rounded, safe, symbol_of, ticked
from loopscale.analysis.tables import numbers


def over(records: Records, solver: str) -> go.Figure:
    """Every cell's error over a classical algorithm's after as many steps, with 95 % bands; below 1 the net is better.

    Empty where the study did not run the algorithm.
    """
    ratios = beside(records, solver)
    ratios = ratios[np.isfinite(numbers(ratios["ratio"]))]
    name = solver.replace("_", " ")
    figure = blank(
        "loop or layer, and step of the algorithm (count)", f"error over that of {name}", log_x=False
    )
    for index, cell in enumerate(records.study["cells"]):
        rows = ratios[ratios["cell"] == cell["label"]]
        if rows.empty:
            continue
        label, colour = safe(cell["label"]), colour_of(index)
        band(figure, label, colour, rows["step"], rows["low"], rows["high"])
        figure.add_scatter(
            x=numbers(rows["step"]),
            y=rounded(rows["ratio"]),
            mode="lines+markers",
            name=label,
            legendgroup=label,
            line={"color": colour, "width": 2.4},
            marker={"size": 7, "symbol": symbol_of(index)},
        )
    if len(ratios):
        ends = [float(ratios["step"].min()), float(ratios["step"].max())]
        style = {"color": "#444444", "width": 1.5, "dash": "dash"}
        figure.add_scatter(
            x=ends, y=[1, 1], mode="lines", line=style, name=f"as good as {name}", hoverinfo="skip"
        )
    return ticked(figure)
