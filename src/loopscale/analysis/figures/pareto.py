"""Regret against the cost of training, with the Pareto front of all cells."""

from collections.abc import Iterable
from typing import Any

import plotly.graph_objects as go
from typing_extensions import override

from loopscale.analysis.answers.pareto import CostPoint, Front
from loopscale.analysis.figures.base import Drawing, Figure, Part, Reported
from loopscale.analysis.figures.style import ERROR_TITLE, blank, rounded, safe, scatter, series
from loopscale.core.titles import readable

COSTS = {"flops": "training cost (FLOPs)", "seconds": "training cost at the planned pace (s)"}
FRONT = "Pareto front"


def cost_front(front: Front) -> go.Figure:
    """The reports of every cell as a line, a large marker at the end of each training, and the front above all."""
    title = f"validation {ERROR_TITLE}" if front.measure == "error" else f"validation {front.measure}"
    figure = blank(COSTS[front.basis], title)
    by_cell = dict[int, list[CostPoint]]()
    for point in front.points:
        by_cell.setdefault(point.index, []).append(point)
    _draw_front(figure, front)
    for index, points in by_cell.items():
        name, group = safe(readable(points[0].label)), points[0].cell
        _draw(
            figure,
            index,
            points,
            name,
            "lines+markers",
            size=4,
            width=1.5,
            legendgroup=group,
            showlegend=False,
        )
        on_front = [point for point in points if point in front.best]
        _draw(figure, index, on_front, name, "markers", size=6, legendgroup=group, showlegend=False)
        ends = [point for point in points if point.complete] or points[-1:]
        _draw(figure, index, ends, name, "markers", size=13, legendgroup=group)
    return figure


def _draw_front(figure: go.Figure, front: Front) -> None:
    """Steps, because between two points the cheaper net is the best known."""
    costs, values = ([getattr(point, name) for point in front.best] for name in ("cost", "value"))
    line = {"color": "#101828", "width": 9, "shape": "hv"}
    scatter(
        figure,
        x=rounded(costs),
        y=rounded(values),
        mode="lines",
        name=FRONT,
        line=line,
        opacity=0.22,
        hoverinfo="skip",
    )


def _draw(figure: go.Figure, index: int, points: list[CostPoint], name: str, mode: str, **style: Any) -> None:
    costs, values = ([getattr(point, part) for point in points] for part in ("cost", "value"))
    hover = [f"step {point.step:,}" for point in points]
    series(figure, index, rounded(costs), values, name, mode, text=hover, **style)


class ErrorAgainstCost(Figure, kind="front"):
    """A figure for each front."""

    place = 100

    @override
    def parts(self, study: Reported) -> Iterable[Part]:
        return [(str(place), front) for place, front in enumerate(study.fronts)]

    @override
    def draw(self, study: Reported, part: Front) -> Drawing:
        text = (
            f"Mean {part.measure} over runs at every report, on the validation prompts. The broad grey line is the"
            " least that any cell reaches for this cost. Large markers are ends of trainings. Points before the end are"
            " indicative, because their schedules are not complete."
        )
        cost = "FLOPs" if part.basis == "flops" else "time"
        measure = "Regret" if part.measure == "regret" else "Error"
        task = f": {part.task}" if part.task else ""
        return Drawing(f"{measure} against {cost}{task}", text, cost_front(part))
