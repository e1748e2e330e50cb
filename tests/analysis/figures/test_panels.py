"""Panels, looks of curves, error bars side by side, and figures of regret."""

import itertools
import math
from collections import defaultdict
from typing import Any, Literal

import numpy as np
import plotly.graph_objects as go
import pytest

from loopscale.analysis.figures.base import Reported, report_figures
from loopscale.analysis.figures.curves import against_loops, against_points
from loopscale.analysis.figures.emergence import on_plateau
from loopscale.analysis.figures.panels import Panel, finished, shows_values, split
from loopscale.analysis.figures.settings import against_axis
from loopscale.analysis.figures.style import blank, dashed_line, exact_line
from loopscale.analysis.figures.tuning import learning_curves
from loopscale.contracts.planted_study import Planted, comparison


def crossed(loops: int = 4) -> Planted:
    """Two settings are crossed: four conditions, and up to four numbers of loops."""
    planted = Planted(noise=0.05)
    for condition, count in itertools.product((1, 4, 16, 64), (2, 4, 6, 10)[:loops]):
        values = {"task.condition": condition, "training.loops": count}
        cell = planted.cell(f"condition={condition}, loops={count}", **values)
        planted.replicated(cell, 0.01 * condition**0.5 + 1 / count)
    return planted


def look(trace: Any) -> tuple[str | None, str | None, str | None]:
    """Colour, dash and marker of a curve."""
    is_marked, is_line = "markers" in (trace.mode or ""), "lines" in (trace.mode or "")
    colour = trace.line.color if is_line else trace.marker.color
    return colour, trace.line.dash if is_line else "none", trace.marker.symbol if is_marked else None


def shared_looks(figure: go.Figure) -> list[set[str]]:
    """The names of different curves of one panel that look the same."""
    names: dict[Any, set[str]] = defaultdict(set)
    for trace in figure.data:
        if trace.name and trace.fill is None:
            names[trace.xaxis, look(trace)].add(trace.legendgroup or trace.name)
    return [same for same in names.values() if len(same) > 1]


def test_more_than_six_curves_become_panels_by_a_setting_with_the_same_axes():
    figure = learning_curves(crossed().results)
    drawn = finished(figure)
    panels = defaultdict(set)
    for trace in drawn.data:
        panels[trace.xaxis].add(trace.legendgroup)
    assert [len(groups) for groups in panels.values()] == [4, 4, 4, 4]
    titles = [note.text for note in drawn.layout.annotations]
    assert titles == [f"<b>condition={condition}</b>" for condition in (1, 4, 16, 64)]
    assert (drawn.layout.xaxis2.matches, drawn.layout.yaxis4.matches) == ("x", "y")
    assert drawn.layout.yaxis4.ticktext == drawn.layout.yaxis.ticktext
    assert {trace.legendgroup for trace in drawn.data} == {trace.legendgroup for trace in figure.data}
    assert len(finished(drawn).data) == len(drawn.data), "a finished figure stays as it is"


def test_six_curves_stay_in_one_picture():
    drawn = finished(learning_curves(comparison().results))
    assert {trace.xaxis for trace in drawn.data} == {None}
    assert drawn.layout.meta["panels"] == 1


def test_series_without_a_common_setting_are_divided_in_their_order():
    names = {str(number): f"model {number}" for number in range(15)}
    panels = split(names)
    assert [len(panel.groups) for panel in panels] == [5, 5, 5]
    assert [group for panel in panels for group in panel.groups] == list(names)
    by_kind = {f"{kind}{size}": f"kind={kind}, size={size}" for size in (1, 2) for kind in "abcdefg"}
    assert split(by_kind)[0] == Panel("kind=a", ("a1", "a2"))


def test_every_panel_repeats_the_algorithms_and_the_legend_names_them_once():
    figure = learning_curves(crossed().results)
    dashed_line(figure, "newton", 0, [100, 300], np.array([0.5, 0.4]))
    copies = [trace for trace in finished(figure).data if trace.name == "newton"]
    assert [trace.xaxis for trace in copies] == ["x", "x2", "x3", "x4"]
    assert [trace.showlegend for trace in copies] == [None, False, False, False]


def test_error_bars_at_one_place_stand_side_by_side_and_keep_their_true_place():
    results = crossed().results
    figure = finished(against_axis(results, "task.condition"))
    lines = [trace for trace in figure.data if "markers" in trace.mode]
    assert len(lines) == 4
    at_one = [line.x[list(line.customdata).index(16)] for line in lines]
    assert len(set(at_one)) == 4
    assert at_one == pytest.approx([16] * 4, rel=0.1)
    assert all(list(line.customdata) == [1, 4, 16, 64] for line in lines)
    assert all("customdata" in line.hovertemplate for line in lines)
    (alone,) = finished(against_axis(results, "task.condition", only={"training.loops": 2})).data
    assert list(alone.x) == [1, 4, 16, 64], "a single line stays in place"


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("of", ["error", "regret"])
def test_no_two_curves_of_a_panel_share_a_look(of: Literal["error", "regret"]):
    planted = crossed()
    curves = planted.tables[1]
    medians = np.where(curves["loop"] > 6, curves["error"] / 2, curves["error"])
    results = planted.changed(curves=curves.assign(regret=curves["error"] - 0.01, median=medians))
    figures = [
        against_loops(results, results.cells, of),
        against_points(results, results.cells, of),
        learning_curves(results),
        on_plateau(results),
        *(figure.figure for figure in report_figures(Reported(comparison().results))),
    ]
    for figure in figures:
        assert shared_looks(finished(figure)) == []


def test_algorithms_and_exact_references_never_look_the_same():
    figure = go.Figure()
    for order in range(10):
        dashed_line(figure, f"algorithm {order}", order, [1, 2], np.array([0.5, 0.4]))
    for order in range(5):
        exact_line(figure, f"bound {order}", [1, 2], [0.3, 0.3], order)
    assert len({look(trace) for trace in figure.data}) == 15
    assert len({trace.line.dash for trace in figure.data}) == 10, "no bound has the dash of an algorithm"


def test_a_figure_of_regret_stands_before_that_of_error_and_has_a_logarithmic_axis():
    planted = crossed(loops=3)
    trials, curves, _ = planted.tables
    trials["regret"] = trials["error"] - 0.005
    results = planted.changed(trials=trials, curves=curves.assign(regret=curves["error"] - 0.005))
    figures = list(report_figures(Reported(results)))
    titles = [figure.title for figure in figures]
    of_error = [
        title for title in titles if title.startswith(("Error against loops", "Error against points"))
    ]
    of_error += ["Error against task.condition", "Error against training.loops"]
    for title in of_error:
        assert titles.index(title.replace("Error", "Regret", 1)) < titles.index(title)
    regrets = [figure.figure for figure in figures if figure.title.startswith("Regret")]
    assert len(regrets) >= 4
    assert {drawing.layout.yaxis.type for drawing in regrets} == {"log"}


def test_a_regret_that_is_not_above_zero_is_left_out_of_the_logarithmic_axis():
    planted = crossed(loops=2)
    trials = planted.tables[0]
    trials["regret"] = np.where(trials["label"] == "condition=4, loops=2", -0.001, trials["error"])
    figure = against_axis(planted.changed(trials=trials), "task.condition", "regret")
    assert [list(line.x) for line in figure.data] == [[1, 16, 64], [1, 4, 16, 64]]
    assert figure.layout.yaxis.type == "log"


def series(figure: go.Figure, names: list[str], values: list[float | None]) -> go.Figure:
    for name, value in zip(names, values, strict=True):
        figure.add_scatter(x=[1, 2], y=[value, value], name=name, legendgroup=name)
    return figure


def test_a_figure_whose_series_have_no_values_is_left_out_though_it_has_references():
    figure = series(go.Figure(), ["a", "b"], [None, math.nan])
    figure.add_scatter(x=[1, 2], y=[0.5, 0.5], name="ridge")
    assert not shows_values(figure)
    assert not shows_values(go.Figure())
    assert shows_values(series(figure, ["c"], [0.1]))


def test_no_panel_is_made_of_series_without_values():
    names = [f"heads={heads}, loops={loops}" for heads in (1, 2, 4) for loops in (1, 2, 3)]
    figure = finished(series(blank("", "", log_x=False), names, [None] * 3 + [0.1] * 6))
    assert (figure.layout.meta["panels"], len(figure.data)) == (1, 6)
    figure = finished(series(blank("", "", log_x=False), names, [None] + [0.1] * 8))
    assert figure.layout.meta["panels"] == 3
    assert all(any(value is not None for value in trace.y) for trace in figure.data)
