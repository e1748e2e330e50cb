"""Figures of a study: one function a figure, tables in, plotly out.

Cells keep their colour and marker from figure to figure; classical algorithms are on the same axes.
"""

# pandas types every selection as a union of all that it could be: those rules find nothing here but that.
# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportCallIssue=false
# pyright: reportGeneralTypeIssues=false, reportReturnType=false, reportOperatorIssue=false
# pyright: reportOptionalMemberAccess=false

from collections.abc import Iterator, Sequence

import numpy as np
import pandas as pd
import plotly.graph_objects as go

from loopscale.analysis.best import Best, best
from loopscale.analysis.drawing import (
    DEEPEST,
    ERROR,
    PALETTE,
    SYMBOLS,
    blank,
    dashed,
    exact,
    line,
    rounded,
    safe,
    wrapped,
)
from loopscale.analysis.floors import floors_of
from loopscale.analysis.laws import Law
from loopscale.analysis.tables import (
    StudyTable,
    answers,
    baselines_of,
    curve_at,
    finished,
    loop_of,
    numbers,
    solver_name,
    task_of,
)

MOST_STEPS = 200


def against_loops(
    study: StudyTable, trials: pd.DataFrame, curves: pd.DataFrame, cells: Sequence[str]
) -> go.Figure:
    """Mean error over queries after every loop or layer; a ring marks T, the loop that was trained for."""
    figure = blank("loop or layer (count)", ERROR)
    drawn = _drawn(study, trials, curves, cells)
    for index, label, rows in drawn:
        groups = [_by(curve_at(curves, row["trial"]), "loop") for _, row in rows.iterrows()]
        line(figure, label, index, groups)
        at = loop_of(rows.iloc[0], curve_at(curves, rows.iloc[0]["trial"]))
        height = float(np.mean([group.get(at, np.nan) for group in groups]))
        ring = {"size": 14, "symbol": "circle-open", "color": PALETTE[index % 8], "line": {"width": 2.5}}
        figure.add_scatter(
            x=[at],
            y=[height],
            mode="markers",
            marker=ring,
            showlegend=False,
            legendgroup=label,
            hovertemplate=f"trained for T = {at}<extra>{label}</extra>",
        )
    for order, (name, curve) in enumerate(_classical(trials, curves, drawn)):
        dashed(figure, name, order, _by(curve, "loop"))
    for name, floor in _floors(curves, drawn):
        exact(figure, name, pd.Series(float(floor.mean()), index=sorted(set(_xs(figure)))))
    return figure


def against_points(
    study: StudyTable, trials: pd.DataFrame, curves: pd.DataFrame, cells: Sequence[str]
) -> go.Figure:
    """Error at loop T against the pairs seen before the query; classical algorithms after their last step."""
    figure = blank("pairs seen before the query (count)", ERROR, log_x=False)
    drawn = _drawn(study, trials, curves, cells)
    for index, label, rows in drawn:
        groups = []
        for _, row in rows.iterrows():
            curve = curve_at(curves, row["trial"])
            groups.append(_by(curve[curve["loop"] == loop_of(row, curve)], "point"))
        line(figure, label, index, groups)
    for order, (name, curve) in enumerate(_classical(trials, curves, drawn)):
        dashed(figure, name, order, _by(curve[curve["loop"] == curve["loop"].max()], "point"))
    for name, floor in _floors(curves, drawn):
        exact(figure, name, floor)
    return figure


def replicates(study: StudyTable, trials: pd.DataFrame, cells: Sequence[str]) -> go.Figure:
    """Every cell's mean with its 95 % interval, and the single runs behind it."""
    figure = blank("cell", ERROR, log_x=False)
    for index, answer in enumerate(best(trials, study)):
        if answer.error is None or answer.cell not in cells:
            continue
        runs = numbers(answers(trials, answer.cell)[0]["error"])
        low, high = answer.error_low, answer.error_high
        bars = (
            {
                "type": "data",
                "symmetric": False,
                "array": [high - answer.error],
                "thickness": 2.5,
                "width": 10,
                "arrayminus": [answer.error - low],
            }
            if low is not None and high is not None
            else None
        )
        name, colour = wrapped(answer.label), PALETTE[index % 8]
        marker = {"size": 12, "color": colour, "symbol": SYMBOLS[index // 8 % 8]}
        figure.add_scatter(
            x=[name], y=[answer.error], error_y=bars, mode="markers", marker=marker, showlegend=False
        )
        ticks = {"size": 12, "color": colour, "symbol": "line-ew-open", "line": {"width": 1.5}}
        figure.add_scatter(
            x=[name] * len(runs),
            y=runs,
            mode="markers",
            marker=ticks,
            showlegend=False,
            hovertemplate="one run: %{y:.4g}<extra></extra>",
        )
    figure.update_xaxes(title_text="")
    return figure


def axes(study: StudyTable, least: int = 3) -> list[str]:
    """The scientific settings that have at least so many numbers as values."""
    values = [cell["values"] for cell in study["cells"]]
    paths = dict.fromkeys(path for each in values for path in each)
    return [
        path for path in paths if len({each[path] for each in values if _is_number(each.get(path))}) >= least
    ]


def against_axis(study: StudyTable, trials: pd.DataFrame, path: str) -> go.Figure:
    """Mean error at T with its 95 % interval against one scientific setting; a line for what else sets cells apart."""
    values = {cell["key"]: cell["values"] for cell in study["cells"] if _is_number(cell["values"].get(path))}
    lines: dict[str, list[Best]] = {}
    for answer in best(trials, study):
        if answer.cell in values and answer.error is not None:
            others = {name: value for name, value in values[answer.cell].items() if name != path}
            label = ", ".join(f"{name.rpartition('.')[2]}={value}" for name, value in others.items())
            lines.setdefault(label, []).append(answer)
    wide = [each[path] for each in values.values()]
    figure = blank(path, ERROR, log_x=bool(wide) and min(wide) > 0 and max(wide) >= 4 * min(wide))
    for index, (label, answers_) in enumerate(lines.items()):
        answers_.sort(key=lambda answer: values[answer.cell][path])
        middle = np.array([answer.error for answer in answers_], dtype=np.float64)
        low, high = (
            np.array([np.nan if end is None else end for end in ends], dtype=np.float64)
            for ends in zip(*((answer.error_low, answer.error_high) for answer in answers_), strict=True)
        )
        bars = {
            "type": "data",
            "symmetric": False,
            "array": high - middle,
            "arrayminus": middle - low,
            "width": 5,
        }
        style = {"color": PALETTE[index % 8], "width": 2}
        marker = {"size": 8, "symbol": SYMBOLS[index % 8]}
        figure.add_scatter(
            x=[values[answer.cell][path] for answer in answers_],
            y=rounded(middle),
            error_y=bars,
            mode="lines+markers",
            name=safe(label) or "error",
            line=style,
            marker=marker,
        )
    return figure


def tuning(study: StudyTable, trials: pd.DataFrame, setting: str) -> go.Figure:
    """What each value of a tuned setting gave, cell by cell."""
    figure = blank(setting, ERROR)
    for index, cell in enumerate(study["cells"]):
        rows = finished(trials, "tuning", cell["key"])
        marker = {"size": 9, "color": PALETTE[index % 8], "symbol": SYMBOLS[index % 8]}
        figure.add_scatter(
            x=numbers(rows[setting]),
            y=numbers(rows["error"]),
            mode="markers",
            name=safe(cell["label"]),
            marker=marker,
        )
    return figure


def tuned(study: StudyTable, trials: pd.DataFrame) -> list[str]:
    """The numeric settings that differ between tuning trials of one cell."""
    rows = trials[
        (trials["role"] == "tuning") & trials["cell"].isin([cell["key"] for cell in study["cells"]])
    ]
    paths = [path for path in rows.columns if "." in str(path) and np.isfinite(numbers(rows[path])).any()]
    return [str(path) for path in paths if (rows.groupby("cell")[path].nunique() > 1).any()]


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
                mode="lines",
                name=safe(cell["label"]),
                legendgroup=cell["key"],
                showlegend=number == 0,
                line={"color": PALETTE[index % 8], "width": 1.8},
            )
    return figure


def law(fitted: Sequence[Law]) -> go.Figure:
    """Laws along one axis: the data, the fit, and the bound; moved to the data's height if only its shape is known."""
    first = fitted[0]
    figure = blank(_axis_name(first.along), _measure(first.of), log_x=first.form in ("power", "power_floor"))
    for index, one in enumerate(fitted):
        colour, name = PALETTE[index % 8], safe(one.cell) or "all"
        marker = {"size": 9, "color": colour, "symbol": SYMBOLS[index % 8]}
        figure.add_scatter(
            x=one.x, y=rounded(one.y), mode="markers", marker=marker, name=name, legendgroup=name
        )
        x = np.geomspace(*_ends(one.x), 80) if min(one.x) > 0 else np.linspace(*_ends(one.x), 80)
        figure.add_scatter(
            x=x,
            y=rounded(one.value(x)),
            mode="lines",
            line={"color": colour},
            showlegend=False,
            legendgroup=name,
            hovertemplate="fit %{y:.3g}<extra></extra>",
        )
        shown = np.array([value if value > 1e-30 else np.nan for value in one.theory_y])
        if np.isfinite(shown).any():
            shift = 1.0 if one.absolute else np.exp(np.nanmean(np.log(np.array(one.y)) - np.log(shown)))
            figure.add_scatter(
                x=one.x,
                y=rounded(shown * shift),
                mode="lines",
                name=str(one.theory) if one.absolute else f"{one.theory}, shape only",
                line={"color": colour, "dash": "dot"},
                legendgroup=name,
            )
    if any(one.theory_y for one in fitted):
        heights = [np.array(one.theory_y) for one in fitted if one.absolute]
        values = np.concatenate([*(np.array(one.y) for one in fitted), *heights])
        values = np.log10(np.maximum(values, min(min(one.y) for one in fitted) / DEEPEST))
        figure.update_yaxes(range=[float(values.min()) - 0.4, float(values.max()) + 0.4])
    return figure


def front(study: StudyTable, trials: pd.DataFrame) -> go.Figure:
    """Error against training FLOPs of every finished point."""
    figure = blank("training cost (FLOPs)", ERROR)
    for index, cell in enumerate(study["cells"]):
        rows = finished(trials, "tuning", cell["key"])
        marker = {"size": 9, "color": PALETTE[index % 8], "symbol": SYMBOLS[index % 8]}
        figure.add_scatter(
            x=numbers(rows["flops"]),
            y=numbers(rows["error"]),
            mode="markers",
            marker=marker,
            name=safe(cell["label"]),
        )
    return figure


def by_task(study: StudyTable, trials: pd.DataFrame) -> dict[str, list[str]]:
    """Cells that share a task, and so their baselines, under what sets the task apart from the others."""
    tasks = {}
    for cell in study["cells"]:
        rows, _ = answers(trials, cell["key"])
        if len(rows):
            tasks[cell["key"]] = task_of(rows.iloc[0])
    varied = [
        path
        for path in dict.fromkeys(p for task in tasks.values() for p in task)
        if len({repr(task.get(path)) for task in tasks.values()}) > 1
    ]
    groups: dict[str, list[str]] = {}
    for key, task in tasks.items():
        groups.setdefault(", ".join(f"{path}={task.get(path)}" for path in varied), []).append(key)
    return groups


def _drawn(
    study: StudyTable, trials: pd.DataFrame, curves: pd.DataFrame, cells: Sequence[str]
) -> list[tuple[int, str, pd.DataFrame]]:
    found = []
    for index, cell in enumerate(study["cells"]):
        rows, _ = answers(trials, cell["key"])
        rows = rows[rows["trial"].isin(curves["trial"])]
        if cell["key"] in cells and len(rows):
            found.append((index, safe(cell["label"]), rows))
    return found


def _classical(
    trials: pd.DataFrame, curves: pd.DataFrame, drawn: Sequence[tuple[int, str, pd.DataFrame]]
) -> Iterator[tuple[str, pd.DataFrame]]:
    for _, row in baselines_of(trials, drawn[0][2].iloc[0]).iterrows() if drawn else ():
        curve = curve_at(curves, row["trial"])
        if len(curve):
            yield safe(solver_name(row)), curve


def _floors(
    curves: pd.DataFrame, drawn: Sequence[tuple[int, str, pd.DataFrame]]
) -> Iterator[tuple[str, pd.Series]]:
    """What no predictor beats on the task of the cells drawn, which share it, by pairs seen."""
    if drawn:
        row = drawn[0][2].iloc[0]
        yield from floors_of(row, curve_at(curves, row["trial"]))


def _xs(figure: go.Figure) -> list[float]:
    return [float(x) for trace in figure.data for x in trace.x if x is not None]


def _by(curve: pd.DataFrame, axis: str) -> pd.Series:
    return curve.groupby(axis)["error"].mean()


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _axis_name(along: str) -> str:
    return {"loop": "loop (count)", "point": "pairs seen before the query (count)"}.get(along, along)


def _measure(of: str) -> str:
    return {"error": ERROR, "error_last": f"last query's {ERROR}"}.get(
        of, of.replace("_", " ") + " (target's units²)"
    )


def _ends(x: Sequence[float]) -> tuple[float, float]:
    return min(x), max(x)
