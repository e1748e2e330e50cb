"""A measure against one numeric setting: trained nets, and classical algorithms on the same tasks."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import plotly.graph_objects as go
from typing_extensions import override

from loopscale.analysis.figures.base import Drawing, Figure, Part, Reported
from loopscale.analysis.figures.style import (
    as_floats,
    blank,
    dashed_line,
    interval_bars,
    measure_title,
    safe,
    series,
)
from loopscale.analysis.recorded.axes import axis_title, in_step, independent_axes
from loopscale.analysis.recorded.results import CellResult, Query, Results, mean
from loopscale.core.titles import readable
from loopscale.questions.axes.base import is_number
from loopscale.stats.contrasts import mean_interval, pool
from loopscale.studies.axes import labels_without

DEPTHS = ("training.loops", "model.layers")
"""Settings that count steps of computation. Along these axes, algorithms show their error after as many steps."""
QUERIES: dict[str, Query] = {"error": "mean", "error_last": "last"}
Point = tuple[float, float, float, float]
"""The place on the axis, the mean, and the ends of its interval, which are NaN without an interval."""
MOST_ALGORITHMS = 9
"""The largest number of lines of classical algorithms in one figure. If there would be more, none is drawn."""


def against_axis(
    results: Results, path: str, of: str = "error", only: Mapping[str, Any] | None = None
) -> go.Figure:
    """A measure at T with its 95 % interval against one scientific setting. Each combination of others has a line.

    Settings that vary in step with `path` belong to the axis, and the title names them. The classical algorithms ran on
    each cell's task. Along loops or layers, their errors are those after as many steps.

    Parameters
    ----------
    of
        Any measure of the trials, such as `error_last` or a task's own.
    only
        Settings by dotted path. Only cells with these settings are drawn.

    Raises
    ------
    ValueError
        For a measure that no trial has.
    """
    _check_measure(results, of)
    beside = in_step(results, path)
    fixed = {path, *beside, *(only or {})}
    cells = [
        cell for cell in results.cells if is_number(cell.values.get(path)) and _matches(cell, only or {})
    ]
    others = {name for cell in cells for name in cell.values if not name.startswith("task.")}
    labels, tasks = labels_without(cells, fixed), labels_without(cells, fixed | others)
    known = [cell for cell in cells if cell.runs and np.isfinite(cell.values_of(of)).all()]
    if is_regret := of.startswith(
        "regret"
    ):  # a regret of 0 or less is noise, which a logarithmic axis leaves out
        known = [cell for cell in known if (cell.values_of(of) > 0).all()]
    intervals = _intervals(results, known, of)
    lines: dict[str, list[Point]] = {}
    algorithms: dict[str, dict[float, float]] = {}
    for cell, label, task in zip(cells, labels, tasks, strict=True):
        if cell.key in intervals:
            x = float(cell.values[path])
            lines.setdefault(label, []).append((x, mean(cell.values_of(of)), *intervals[cell.key]))
            for name, value in _algorithms(cell, of, int(x) if path in DEPTHS else None):
                algorithms.setdefault(", ".join(filter(None, (name, task))), {})[x] = value
    places = [float(cell.values[path]) for cell in cells]
    logarithmic = bool(places) and min(places) > 0 and max(places) >= 4 * min(places)
    figure = blank(axis_title(path, beside), measure_title(of), log_x=logarithmic)
    for index, (label, points) in enumerate(lines.items()):
        _line(figure, label or of.replace("_", " "), index, sorted(points))
    if len(algorithms) <= MOST_ALGORITHMS:
        for order, (name, values) in enumerate(algorithms.items()):
            x, y = zip(*sorted(values.items()), strict=True)
            dashed_line(figure, safe(name), order, x, np.array(y))
    if not is_regret:
        _choose_scale(figure)
    return figure


def _check_measure(results: Results, of: str) -> None:
    if not any(np.isfinite(trial[of]) for trial in results.everything):
        known = dict.fromkeys(name for trial in results.everything for name in trial.measures)
        raise ValueError(f"no trial has the measure {of}; there are {', '.join(known)}")


def _matches(cell: CellResult, only: Mapping[str, Any]) -> bool:
    return all(cell.values.get(name) == value for name, value in only.items())


def _algorithms(cell: CellResult, of: str, step: int | None) -> Iterator[tuple[str, float]]:
    """A measure of the algorithms on a cell's task. After a `step`, only errors are recorded."""
    for baseline in cell.baselines:
        if step is None:
            value = baseline[of]
        elif of in QUERIES and baseline.curve:
            value = baseline.curve.error_after(step, QUERIES[of])
        else:
            continue
        if np.isfinite(value):
            yield baseline.algorithm, value


def _intervals(results: Results, cells: Sequence[CellResult], of: str) -> dict[str, tuple[float, float]]:
    """The interval of every cell's mean; NaN without an interval.

    Intervals are those of logarithms or, if a value is 0 or less, those of the values themselves.
    """
    missing = (float("nan"), float("nan"))
    values = {cell.key: cell.values_of(of) for cell in cells}
    if all((value > 0).all() for value in values.values()):
        ends = [mean_interval(results.logs(of), cell.index) if cell.replicated else None for cell in cells]
        return {cell.key: interval or missing for cell, interval in zip(cells, ends, strict=True)}
    noise = pool([values[cell.key] for cell in cells if cell.replicated and len(cell.runs) > 1])
    intervals = {}
    for cell in cells:
        middle, several = mean(values[cell.key]), cell.replicated and len(cell.runs) > 1
        half = noise.half_width(len(cell.runs)) if noise and several else float("nan")
        intervals[cell.key] = (middle - half, middle + half)
    return intervals


def _line(figure: go.Figure, label: str, index: int, points: Sequence[Point]) -> None:
    x, middle, low, high = np.array(points).T
    bars = interval_bars(middle, low, high)
    series(
        figure,
        index,
        x,
        middle,
        safe(readable(label)),
        "lines+markers",
        size=8,
        error_y=bars,
        legendgroup=label,
    )


def _choose_scale(figure: go.Figure) -> None:
    """Make the y axis linear if a measured value is 0 or less, or if all values lie within a factor of two."""
    measured = [as_floats(trace["y"]) for trace in figure.data if trace["mode"] != "lines"]  # pyright: ignore[reportArgumentType, reportCallIssue]: traces support item access
    values = np.concatenate(measured or [np.zeros(0)])
    values = values[np.isfinite(values)]
    if len(values) and (values.min() <= 0 or values.max() < 2 * values.min()):
        figure.update_yaxes(type="linear")


FEWEST_VALUES = 3
"""A numeric setting with fewer values has no figure."""


class AxisFigure(Figure):
    """A figure for each numeric setting. The part is its dotted path."""

    @override
    def parts(self, study: Reported) -> Iterable[Part]:
        axes = independent_axes(study.results, FEWEST_VALUES)
        return [(str(place), path) for place, path in enumerate(axes)]


class RegretAgainstAxis(AxisFigure, kind="axis_regret"):
    """Regret against a numeric setting."""

    place = 200

    @override
    def draw(self, study: Reported, part: str) -> Drawing | None:
        if not any(np.isfinite(trial["regret"]) for trial in study.results.everything):
            return None
        text = (
            "Mean regret at T of every cell with its 95 % interval: the error that a better predictor could still"
            " lose. Cells with a run whose regret is not above zero are left out."
        )
        return Drawing(f"Regret against {part}", text, against_axis(study.results, part, "regret"))


class ErrorAgainstAxis(AxisFigure, kind="axis"):
    """Error against a numeric setting."""

    place = 210

    @override
    def draw(self, study: Reported, part: str) -> Drawing:
        text = (
            "Mean error at T of every cell with its 95 % interval over replicates, and classical algorithms on the same"
            " task. Along loops or layers, algorithms are shown after as many steps."
        )
        return Drawing(f"Error against {part}", text, against_axis(study.results, part))
