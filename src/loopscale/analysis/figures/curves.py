"""Error, and ratios of errors, against loops and points: trained nets, classical algorithms, exact references.

Beyond T, the number of trained loops, the errors of a few prompts may explode and dominate the mean. A dotted line
therefore shows the median over prompts, if the records have it. Bounds and classical algorithms are means, so a median
may lie below the least possible error.
"""

from collections.abc import Iterator, Sequence
from typing import Literal

import numpy as np
import plotly.graph_objects as go
from numpy.typing import NDArray
from typing_extensions import override

from loopscale.analysis.answers.comparisons import ratios_to_solver
from loopscale.analysis.figures.base import Drawing, Reported, TaskFigure
from loopscale.analysis.figures.style import (
    DASHES,
    ERROR_TITLE,
    EXACT_DASHES,
    NEUTRAL,
    REGRET,
    band,
    blank,
    colour_of,
    dashed_line,
    exact_line,
    legend_entry,
    mean_line,
    rounded,
    safe,
    scatter,
    series,
    with_decimal_ticks,
)
from loopscale.analysis.recorded.references import BAYES, BOUNDS, floors, references
from loopscale.analysis.recorded.results import Array, CellResult, Results, TrialCurve, TrialResult, mean
from loopscale.stats.learning import MeanFloor

MEDIANS = {"width": 1.1, "dash": "2px,4px"}
MEDIANS_ENTRY = "dotted: median over prompts (bounds are of the mean)"


def against_loops(
    results: Results, cells: Sequence[CellResult], of: Literal["error", "regret"] = "error"
) -> go.Figure:
    """Mean error (or regret) over queries after every loop or layer; a ring marks T, the number of trained loops."""
    figure = blank("loop or layer (count)", ERROR_TITLE if of == "error" else REGRET)
    drawn = _trained_loops(figure, cells, of)
    for order, (name, curve) in enumerate(_algorithms(drawn)):
        dashed_line(figure, name, order, curve.loops, _positive(curve.by_loop(of)))
    if drawn and of == "error":
        loops = sorted(set(_xs(figure)))
        for order, (name, _, errors) in enumerate(_least_errors(drawn[0].runs[0])):
            exact_line(figure, name, loops, np.full(len(loops), errors.mean()), order)
    return figure


def has_regret(cells: Sequence[CellResult]) -> bool:
    """Whether the regret of a trained net is known after some loop."""
    return any(bool((curve.by_loop("regret") > 0).any()) for cell in cells for curve in cell.curves)


def has_points(cells: Sequence[CellResult]) -> bool:
    """True if prompts ask more than one query. Sentences have one query, so nothing varies with the pairs seen."""
    return any(curve.points.size > 1 for cell in cells for curve in cell.curves)


def _positive(values: Array) -> Array:
    """The values that a logarithmic axis can show. A regret that is rounding or noise may be negative."""
    return np.where(values > 0, values, np.nan)


def against_references(results: Results, cells: Sequence[CellResult]) -> go.Figure:
    """Mean error over queries after every loop, beside the exact references of the same task.

    The cells share a task. The references have no fitted constant. The least error is that on the evaluation prompts,
    if the records know it: on few prompts a net may be below the least error of all prompts.
    """
    figure = blank("loop or layer (count)", ERROR_TITLE)
    drawn = _trained_loops(figure, cells)
    loops = [int(x) for x in sorted(set(_xs(figure)))]
    for order, (name, values) in enumerate(_references(drawn[0].runs[0], loops) if drawn else ()):
        style = {"color": "#101828", "width": 1.6, "dash": (EXACT_DASHES + DASHES)[order % 10]}
        y = rounded(np.where(values > 1e-12, values, np.nan))
        scatter(figure, x=loops, y=y, mode="lines", name=name, line=style)
    return figure


def _references(run: TrialResult, loops: Sequence[int]) -> Iterator[tuple[str, Array]]:
    """The references of a run's task, with the least error on the evaluation prompts in place of the expected one."""
    if (floor := _recorded_floor(run)) is not None:
        yield _floor_name(floor), np.full(len(loops), floor.error.mean())
    yield from references(
        run, loops, BOUNDS if floor is None else [bound for bound in BOUNDS if bound != BAYES]
    )


def _least_errors(run: TrialResult) -> Iterator[tuple[str, NDArray[np.int64], Array]]:
    """The least errors at every query [points]: those on the evaluation prompts, else expected ones by theory."""
    floor = _recorded_floor(run)
    if floor is not None and len(floor.error) == len(run.curve.points):
        yield _floor_name(floor), run.curve.points, floor.error
    else:
        yield from floors(run)


def _recorded_floor(run: TrialResult) -> MeanFloor | None:
    """The least error on the prompts of the evaluation, which no net can be below; None if it is not known."""
    return run.floor if run.floor and run.floor.how in ("bayes", "exact") else None


def _floor_name(floor: MeanFloor) -> str:
    return f"least error on these prompts ({floor.name.replace('_', ' ')})"


def against_points(
    results: Results, cells: Sequence[CellResult], of: Literal["error", "regret"] = "error"
) -> go.Figure:
    """Error (or regret) at T against the pairs seen before the query; classical algorithms after their last step."""
    figure = blank(
        "pairs seen before the query (count)", ERROR_TITLE if of == "error" else REGRET, log_x=False
    )
    drawn = [cell for cell in cells if cell.curves]
    for cell in drawn:
        runs = [run for run in cell.runs if run.curve]
        values = [_positive(getattr(run.curve, of)[run.curve.row(run.loop)]) for run in runs]
        x, table = _on_shared_axis([run.curve.points for run in runs], values)
        mean_line(figure, safe(cell.name), cell.index, x, table)
    for order, (name, curve) in enumerate(_algorithms(drawn)):
        dashed_line(figure, name, order, curve.points, _positive(getattr(curve, of)[-1]))
    if drawn and of == "error":
        for order, (name, points, errors) in enumerate(_least_errors(drawn[0].runs[0])):
            exact_line(figure, name, points, errors, order)
    return figure


def against_rounds(
    results: Results,
    cells: Sequence[CellResult],
    of: Literal["play_regret", "play_regret_greedy"] = "play_regret",
) -> go.Figure:
    """The cumulative pseudo-regret of play after every round: trained nets at T, policies and constructions.

    All players meet the same games with the same luck. A player whose records lack the rounds is left out.
    """
    figure = blank("rounds of play (count)", f"cumulative {of.replace('_', ' ')} (reward)", log_x=False)
    figure.update_yaxes(type="linear", rangemode="tozero")
    drawn = [cell for cell in cells if any(curve.played for curve in cell.curves)]
    for cell in drawn:
        runs = [run for run in cell.runs if run.curve.played]
        values = [getattr(run.curve, of)[run.curve.row(run.loop)] for run in runs]
        x, table = _on_shared_axis([run.curve.points + 1 for run in runs], values)
        mean_line(figure, safe(cell.name), cell.index, x, table)
    for order, (name, curve) in enumerate(_algorithms(drawn)):
        if curve.played:
            dashed_line(figure, name, order, curve.points + 1, getattr(curve, of)[-1])
    return figure


def _trained_loops(
    figure: go.Figure, cells: Sequence[CellResult], of: Literal["error", "regret"] = "error"
) -> list[CellResult]:
    """Draw means with intervals, a ring at T and medians beyond T. If all cells share T, shade the loops beyond T."""
    drawn = [cell for cell in cells if cell.curves]
    trained, dotted = set[int](), False
    for cell in drawn:
        label, runs = safe(cell.name), [run for run in cell.runs if run.curve]
        loop = runs[0].loop
        trained.add(loop)
        x, values = _on_shared_axis(
            [curve.loops for curve in cell.curves], [_positive(curve.by_loop(of)) for curve in cell.curves]
        )
        mean_line(figure, label, cell.index, x, values)
        if (at_loop := mean(curve.error_after(loop, of=of) for curve in cell.curves)) > 0:
            _ring(figure, label, cell.index, loop, at_loop)
        dotted |= of == "error" and _medians(figure, label, cell, loop)
    if dotted:
        legend_entry(figure, MEDIANS_ENTRY, MEDIANS | {"color": NEUTRAL})
    last = max(_xs(figure), default=0)
    if len(trained) == 1 and last > (loop := trained.pop()):
        font = {"color": "#475467"}
        label = {"text": "beyond the trained loops", "textposition": "top left", "font": font}
        figure.add_vrect(x0=loop, x1=last, layer="below", label=label, fillcolor="#f2f4f7", line={"width": 0})
    return drawn


def _algorithms(cells: Sequence[CellResult]) -> Iterator[tuple[str, TrialCurve]]:
    """The curves of the classical algorithms on the task that the cells share."""
    for baseline in cells[0].baselines if cells else ():
        if baseline.curve:
            yield safe(baseline.algorithm), baseline.curve


def _on_shared_axis(places: Sequence[NDArray[np.int64]], values: Sequence[Array]) -> tuple[Array, Array]:
    """All places of the runs, and their values [places, runs], NaN where a run has no value."""
    x = np.unique(np.concatenate(places))
    table = np.full((len(x), len(values)), np.nan)
    for run, (of_run, errors) in enumerate(zip(places, values, strict=True)):
        table[np.searchsorted(x, of_run), run] = errors
    return x.astype(np.float64), table


def _ring(figure: go.Figure, label: str, index: int, loop: int, error: float) -> None:
    ring = {"size": 14, "symbol": "circle-open", "color": colour_of(index), "line": {"width": 2.5}}
    scatter(
        figure,
        x=[loop],
        y=[error],
        mode="markers",
        marker=ring,
        showlegend=False,
        legendgroup=label,
        hovertemplate=f"trained for T = {loop}<extra>{label}</extra>",
    )


def _medians(figure: go.Figure, label: str, cell: CellResult, loop: int) -> bool:
    """Draw the median over prompts beyond `loop`. Returns False without medians or without further loops."""
    if any(not np.isfinite(curve.median).any() for curve in cell.curves):
        return False
    x, medians = _on_shared_axis(
        [curve.loops[curve.loops >= loop] for curve in cell.curves],
        [curve.by_loop("median")[curve.loops >= loop] for curve in cell.curves],
    )
    if len(x) < 2:
        return False
    scatter(
        figure,
        x=x,
        y=rounded(mean(row) for row in medians),
        mode="lines",
        line=MEDIANS | {"color": colour_of(cell.index)},
        opacity=0.6,
        name=f"{label}, median over prompts",
        legendgroup=label,
        showlegend=False,
        hovertemplate=f"median over prompts %{{y:.3g}}<extra>{label}</extra>",
    )
    return True


def _xs(figure: go.Figure) -> list[float]:
    return [float(x) for trace in figure.data for x in trace.x if x is not None]  # pyright: ignore[reportAttributeAccessIssue]: every trace here is a scatter


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
        label = safe(cell.name)
        steps, ratio, low, high = rows[["step", "ratio", "low", "high"]].to_numpy(np.float64).T
        band(figure, label, colour_of(cell.index), steps, low, high)
        series(figure, cell.index, steps, ratio, label, "lines+markers", size=7, width=2.4, legendgroup=label)
    if len(ratios):
        ends = [float(ratios["step"].min()), float(ratios["step"].max())]
        style = {"color": "#444444", "width": 1.5, "dash": "dash"}
        scatter(
            figure, x=ends, y=[1, 1], mode="lines", line=style, name=f"as good as {name}", hoverinfo="skip"
        )
    return with_decimal_ticks(figure)


LEGEND = (
    " A ring marks T, the number of trained loops. Dashed and muted: classical algorithms. Black: exact lower bound of"
    " the mean error."
)
MEDIANS_TEXT = (
    " Thin and dotted, from T on: the median over prompts, which a few very large errors do not change. The lower bound"
    " does not apply to the median."
)
TaskPart = tuple[str, list[CellResult]]


class RegretAgainstLoops(TaskFigure, kind="regret"):
    """Regret stands first, because only regret says how far a better net could still go."""

    place = 10

    @override
    def draw(self, study: Reported, part: TaskPart) -> Drawing | None:
        task, cells = part
        if not has_regret(cells):
            return None
        text = (
            "Regret after every loop or layer: the error that a better predictor could still lose. A ring marks T."
            " Values below zero, which are noise, are left out."
        )
        return Drawing(f"Regret against loops{task}", text, against_loops(study.results, cells, "regret"))


class RegretAgainstPoints(TaskFigure, kind="points_regret"):
    """Regret against the pairs seen."""

    place = 20

    @override
    def draw(self, study: Reported, part: TaskPart) -> Drawing | None:
        task, cells = part
        if not has_regret(cells) or not has_points(cells):
            return None
        text = "Regret at T against the pairs seen before the query. Values below zero (noise) are left out."
        return Drawing(f"Regret against points{task}", text, against_points(study.results, cells, "regret"))


class ErrorAgainstLoops(TaskFigure, kind="loops"):
    """Error against loops or layers."""

    place = 30

    @override
    def draw(self, study: Reported, part: TaskPart) -> Drawing:
        task, cells = part
        text = "Error after every loop or layer, averaged over all queries, with 95 % bands over replicates."
        figure = against_loops(study.results, cells)
        legend = LEGEND + (MEDIANS_TEXT if any(figure.select_traces({"name": MEDIANS_ENTRY})) else "")
        return Drawing(f"Error against loops{task}", text + legend, figure)


class ErrorAgainstPoints(TaskFigure, kind="points"):
    """Error against the pairs seen."""

    place = 40

    @override
    def draw(self, study: Reported, part: TaskPart) -> Drawing | None:
        task, cells = part
        if not has_points(cells):
            return None
        text = "Error at T against the pairs seen before the query, with 95 % bands over replicates."
        return Drawing(f"Error against points{task}", text, against_points(study.results, cells))


class RegretAgainstRounds(TaskFigure, kind="rounds"):
    """Regret of play against rounds."""

    place = 50

    @override
    def draw(self, study: Reported, part: TaskPart) -> Drawing | None:
        task, cells = part
        if not any(curve.played for cell in cells for curve in cell.curves):
            return None
        text = (
            "Cumulative pseudo-regret of sampled play at T: the lost reward in expectation, summed over the rounds."
            " All nets, policies and constructions play the same games with the same luck."
        )
        return Drawing(f"Regret of play against rounds{task}", text, against_rounds(study.results, cells))
