"""What training was like: validation error as it fell, error against cost."""

# pandas types every selection as a union of all that it could be: those rules find nothing here but that.
# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportCallIssue=false
# pyright: reportGeneralTypeIssues=false, reportReturnType=false, reportOperatorIssue=false
# pyright: reportOptionalMemberAccess=false

import pandas as pd
import plotly.graph_objects as go

from loopscale.analysis.figures.style import ERROR, blank, colour_of, rounded, safe, symbol_of
from loopscale.analysis.tables import StudyTable, answers, finished, numbers

MOST_STEPS = 200
MOST_MARKED = 10
"""Steps of a run that bear its cell's mark."""


def learning(study: StudyTable, trials: pd.DataFrame, history: pd.DataFrame) -> go.Figure:
    """The validation error of the runs that speak for each cell, as they were trained."""
    figure = blank("training step (count)", f"validation {ERROR}", log_x=False)
    errors = history[history["metric"] == "error"]
    for index, cell in enumerate(study["cells"]):
        rows, _ = answers(trials, cell["key"])
        for number, trial in enumerate(rows["trial"]):
            mine = errors[errors["trial"] == trial].sort_values("step")
            mine = mine.iloc[:: max(1, len(mine) // MOST_STEPS)]
            figure.add_scatter(
                x=numbers(mine["step"]),
                y=rounded(mine["value"]),
                mode="lines+markers",
                name=safe(cell["label"]),
                legendgroup=cell["key"],
                showlegend=number == 0,
                line={"color": colour_of(index), "width": 1.8},
                marker={"size": 6, "symbol": symbol_of(index), "maxdisplayed": MOST_MARKED},
            )
    return figure


def front(study: StudyTable, trials: pd.DataFrame) -> go.Figure:
    """Error against training FLOPs of every finished point."""
    figure = blank("training cost (FLOPs)", ERROR)
    for index, cell in enumerate(study["cells"]):
        rows = finished(trials, "tuning", cell["key"])
        marker = {"size": 9, "color": colour_of(index), "symbol": symbol_of(index)}
        figure.add_scatter(
            x=numbers(rows["flops"]),
            y=numbers(rows["error"]),
            mode="markers",
            marker=marker,
            name=safe(cell["label"]),
        )
    return figure
