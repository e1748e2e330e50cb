"""Matched steps against one numeric setting, or against the pairs seen before the query."""

import math
from collections.abc import Iterable, Sequence

import numpy as np
import plotly.graph_objects as go
from typing_extensions import override

from loopscale.analysis.answers.matched_steps import (
    Match,
    iterative_baselines,
    match_points,
    match_query,
    steps_in_theory,
)
from loopscale.analysis.figures.base import Drawing, Figure, Part, Reported
from loopscale.analysis.figures.style import blank, exact_line, interval_bars, safe, series
from loopscale.analysis.recorded.axes import axis_title, in_step, independent_axes
from loopscale.analysis.recorded.results import CellResult, Query, Results, TrialResult
from loopscale.core.titles import readable
from loopscale.questions.axes.base import is_number
from loopscale.studies.axes import labels_without

OUTSIDE = {"more": "triangle-up-open", "fewer": "triangle-down-open"}
"""The markers of nets whose error lies outside the recorded steps."""
QUERY_TITLES: dict[Query, str] = {"mean": "mean error", "last": "error of the last query"}


def iterative_algorithms(results: Results) -> list[str]:
    """The names of the algorithms whose recorded error changes from step to step."""
    return list(
        dict.fromkeys(baseline.solver for cell in results.answered for baseline in iterative_baselines(cell))
    )


def matched_along(results: Results, path: str, algorithm: str, query: Query = "last") -> go.Figure:
    """The matched steps of every cell with their 95 % interval against one scientific setting.

    Each combination of the other settings has a line. Black: the steps for which the layers of the nets suffice, by a
    theorem whose conditions hold.

    Parameters
    ----------
    algorithm
        One of `iterative_algorithms`.
    """
    beside = in_step(results, path)
    cells = [cell for cell in results.cells if is_number(cell.values.get(path))]
    labels = labels_without(cells, {path, *beside})
    lines: dict[str, list[tuple[float, Match]]] = {}
    theory: dict[str, list[tuple[float, float]]] = {}
    for cell, label in zip(cells, labels, strict=True):
        baseline = _baseline(cell, algorithm)
        if baseline is None or not cell.curves:
            continue
        x = float(cell.values[path])
        lines.setdefault(label, []).append((x, match_query(results, cell, baseline, query)))
        if steps := steps_in_theory(cell.runs[0], baseline):
            theory.setdefault(label, []).append((x, float(steps)))
    places = [x for points in lines.values() for x, _ in points]
    logarithmic = bool(places) and min(places) > 0 and max(places) >= 4 * min(places)
    figure = _blank(axis_title(path, beside), algorithm, QUERY_TITLES[query], logarithmic)
    for index, (label, points) in enumerate(lines.items()):
        _line(figure, label or "nets", index, sorted(points, key=lambda point: point[0]))
    for order, (label, points) in enumerate(theory.items()):
        x, y = zip(*sorted(points), strict=True)
        exact_line(
            figure, safe(", ".join(filter(None, (readable(label), "steps in theory")))), x, np.array(y), order
        )
    return figure


def matched_by_point(results: Results, cells: Sequence[CellResult], algorithm: str) -> go.Figure:
    """The matched steps of cells with their 95 % interval at every query, against the pairs seen before the query."""
    figure = _blank(axis_title("point"), algorithm, "error of the query", log_x=False)
    for cell in cells:
        baseline = _baseline(cell, algorithm)
        if baseline is None or not cell.curves:
            continue
        points = [(float(point), match) for point, match in match_points(results, cell, baseline) if point]
        _line(figure, cell.name or "nets", cell.index, points)
    return figure


def _blank(x: str, algorithm: str, query: str, log_x: bool) -> go.Figure:
    """An empty figure. The algorithm heads the legend, because the name is too long for the title of an axis."""
    figure = blank(x, f"matched steps (count),<br>{query}", log_x)
    return figure.update_layout(
        legend={"title": {"text": f"Steps of {safe(readable(algorithm))}", "side": "top"}}
    )


def _baseline(cell: CellResult, algorithm: str) -> TrialResult | None:
    return next((each for each in iterative_baselines(cell) if each.solver == algorithm), None)


def _line(figure: go.Figure, label: str, index: int, points: Sequence[tuple[float, Match]]) -> None:
    """Matches as a line with error bars. Censored matches are triangles at the end of the recorded steps."""
    known = [(x, match) for x, match in points if not math.isnan(match.place)]
    _marks(
        figure, label, index, [(x, None if match.censored else match) for x, match in known], "lines+markers"
    )
    for censored, symbol in OUTSIDE.items():
        outside = [(x, match) for x, match in known if match.censored == censored]
        if outside:
            _marks(figure, label, index, outside, "markers", symbol)


def _marks(
    figure: go.Figure,
    label: str,
    index: int,
    points: Sequence[tuple[float, Match | None]],
    mode: str,
    symbol: str = "",
) -> None:
    """One trace. A place without a match interrupts the line."""
    middle, low, high = (np.array([_height(match, end) for _, match in points]) for end in (None, 0, 1))
    series(
        figure,
        index,
        np.array([x for x, _ in points]),
        middle,
        safe(readable(label)),
        mode,
        size=13 if symbol else 8,
        error_y=interval_bars(middle, low, high),
        legendgroup=label,
        showlegend=not symbol,
        hovertext=[match.words if match else "" for _, match in points],
        hovertemplate="%{x}: %{hovertext} steps<extra></extra>",
    )
    if symbol:
        figure.update_traces({"marker": {"symbol": symbol}}, selector=-1)


def _height(match: Match | None, end: int | None) -> float:
    """The place of a match, or of an end of its interval. Beyond the recorded steps: their first or last one."""
    if match is None or (end is not None and match.interval is None):
        return math.nan
    place = match.place if end is None or match.interval is None else match.interval[end]
    return min(max(place, float(match.first)), float(match.last))


class MatchedSteps(Figure, kind="matched"):
    """A figure for each numeric setting and iterative algorithm."""

    place = 300

    @override
    def parts(self, study: Reported) -> Iterable[Part]:
        algorithms = iterative_algorithms(study.results)
        for place, path in enumerate(independent_axes(study.results)):
            for number, algorithm in enumerate(algorithms):
                yield f"{place}-{number}", (path, algorithm)

    @override
    def draw(self, study: Reported, part: tuple[str, str]) -> Drawing:
        path, algorithm = part
        named = readable(algorithm)
        text = (
            f"The steps of {named} after which its error of the last query is that of the nets, with 95 %"
            " intervals. Triangles mark nets whose error lies outside the recorded steps."
        )
        setting = path.rpartition(".")[2].replace("_", " ")
        title = f"Steps of {named} that match the nets, by {setting}"
        return Drawing(title, text, matched_along(study.results, path, algorithm, "last"))
