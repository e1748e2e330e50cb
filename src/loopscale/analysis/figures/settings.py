"""What was measured against one setting of numbers: trained nets, and classical algorithms on the same tasks."""

# pandas types every selection as a union of all that it could be: those rules find nothing here but that.
# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportCallIssue=false
# pyright: reportGeneralTypeIssues=false, reportReturnType=false, reportOperatorIssue=false
# pyright: reportOptionalMemberAccess=false

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from loopscale.analysis.axes import axis_name, in_step, independent, is_number, rest
from loopscale.analysis.figures.style import blank, colour_of, dashed, measured, rounded, safe, symbol_of
from loopscale.analysis.tables import (
    Query,
    StudyTable,
    answers,
    baselines_of,
    curve_at,
    error_after,
    numbers,
    solver_name,
)
from loopscale.stats.intervals import mean_intervals, pool

DEPTHS = ("training.loops", "model.layers")
"""Settings that count steps of computation: an iterative algorithm stands there after as many steps of its own."""
QUERIES: dict[str, Query] = {"error": "mean", "error_last": "last"}
Point = tuple[float, float, float, float]
"""Where on the axis, the mean, and the ends of its interval, NaN where there is none."""
MOST = 9
"""Lines of classical algorithms in one figure; where tasks differ so much that there would be more, none is drawn."""


def axes(study: StudyTable, least: int = 3) -> list[str]:
    """The scientific settings that have at least so many numbers as values; one for those that differ in step."""
    return independent(study, least)


def against_axis(
    study: StudyTable,
    trials: pd.DataFrame,
    curves: pd.DataFrame,
    path: str,
    of: str = "error",
    only: Mapping[str, Any] | None = None,
) -> go.Figure:
    """A measure at T with its 95 % interval against one scientific setting; a line for what else sets cells apart.

    `of` is any measure that trials have, such as `error_last` or a task's own; `only` are settings, by dotted path,
    that the cells drawn have. Settings that differ in step with `path` are on the axis too, which is named by all.
    Classical algorithms are those of each cell's task; along loops or layers, after as many steps. Raises ValueError
    for a measure that no trial has.
    """
    _check(trials, of)
    beside = in_step(study, path)
    fixed = {path, *beside, *(only or {})}
    cells = [
        cell for cell in study["cells"] if is_number(cell["values"].get(path)) and _has(cell, only or {})
    ]
    found = [answers(trials, cell["key"]) for cell in cells]
    known = [n for n, (rows, _) in enumerate(found) if len(rows) and np.isfinite(numbers(rows[of])).all()]
    intervals = _intervals([_several(*found[n], of) for n in known])
    other = {name for cell in cells for name in cell["values"] if not name.startswith("task.")}
    labels, tasks = rest(cells, fixed), rest(cells, fixed | other)
    lines: dict[str, list[Point]] = {}
    algorithms: dict[str, dict[float, float]] = {}
    for n, interval in zip(known, intervals, strict=True):
        rows, x = found[n][0], float(cells[n]["values"][path])
        lines.setdefault(labels[n], []).append((x, numbers(rows[of]).mean(), *(interval or (np.nan, np.nan))))
        for name, value in _classical(trials, curves, rows.iloc[0], of, int(x) if path in DEPTHS else None):
            algorithms.setdefault(", ".join(filter(None, (name, tasks[n]))), {})[x] = value
    wide = [float(cell["values"][path]) for cell in cells]
    logarithmic = bool(wide) and min(wide) > 0 and max(wide) >= 4 * min(wide)
    figure = blank(axis_name(path, beside), measured(of), log_x=logarithmic)
    for index, (label, points) in enumerate(lines.items()):
        _line(figure, label or of.replace("_", " "), index, sorted(points))
    if len(algorithms) <= MOST:
        for order, (name, values) in enumerate(algorithms.items()):
            dashed(figure, safe(name), order, pd.Series(values).sort_index())
    _scaled(figure)
    return figure


def _check(trials: pd.DataFrame, of: str) -> None:
    if of not in trials or not np.isfinite(numbers(trials[of])).any():
        known = [
            str(name) for name in trials.columns
            if "." not in str(name) and pd.api.types.is_float_dtype(trials[name])
        ]  # fmt: skip
        raise ValueError(f"no trial has the measure {of}; there are {', '.join(known)}")


def _has(cell: Mapping[str, Any], only: Mapping[str, Any]) -> bool:
    return all(cell["values"].get(name) == value for name, value in only.items())


def _classical(
    trials: pd.DataFrame, curves: pd.DataFrame, row: pd.Series, of: str, step: int | None
) -> Iterator[tuple[str, float]]:
    """The algorithms on a trial's task: after `step`, where errors are recorded step by step, or as they ended."""
    for _, solver in baselines_of(trials, row).iterrows():
        if step is None:
            value = float(numbers([solver.get(of)])[0])
        elif of in QUERIES and len(curve := curve_at(curves, solver["trial"])):
            value = error_after(curve, step, QUERIES[of])
        else:
            continue
        if np.isfinite(value):
            yield solver_name(solver), value


def _several(rows: pd.DataFrame, replicated: bool, of: str) -> np.ndarray:
    return numbers(rows[of]) if replicated and len(rows) > 1 else np.empty(0)


def _intervals(groups: Sequence[np.ndarray]) -> list[tuple[float, float] | None]:
    """On the log scale, as errors are; where a measure may be 0 or less, as it stands."""
    if all((group > 0).all() for group in groups):
        return mean_intervals(groups)
    spread = pool(groups)
    halves = [spread.half_width(len(group)) if spread and len(group) else None for group in groups]
    return [
        None if half is None else (float(group.mean()) - half, float(group.mean()) + half)
        for group, half in zip(groups, halves, strict=True)
    ]


def _line(figure: go.Figure, label: str, index: int, points: Sequence[Point]) -> None:
    x, middle, low, high = np.array(points).T
    figure.add_scatter(
        x=x,
        y=rounded(middle),
        error_y={
            "type": "data",
            "symmetric": False,
            "array": high - middle,
            "arrayminus": middle - low,
            "width": 5,
        },
        mode="lines+markers",
        name=safe(label),
        line={"color": colour_of(index), "width": 2},
        marker={"size": 8, "symbol": symbol_of(index)},
    )


def _scaled(figure: go.Figure) -> None:
    """Not logarithmic where a measured value is 0 or less, or where all lie within a factor of two."""
    values = np.concatenate(
        [numbers(trace.y) for trace in figure.data if trace.mode != "lines"] or [np.zeros(0)]
    )
    values = values[np.isfinite(values)]
    if len(values) and (values.min() <= 0 or values.max() < 2 * values.min()):
        figure.update_yaxes(type="linear")
