import numpy as np
import pytest

from loopscale.analysis.figures.base import Reported, report_figures
from loopscale.analysis.figures.cells import heat_map, replicates
from loopscale.analysis.figures.curves import (
    MEDIANS,
    against_loops,
    against_points,
    against_references,
    against_rounds,
    has_regret,
)
from loopscale.analysis.figures.laws import law_figure
from loopscale.analysis.figures.settings import against_axis
from loopscale.analysis.figures.style import blank, legend_entry, with_decimal_ticks
from loopscale.analysis.figures.tuning import error_against_cost, learning_curves
from loopscale.analysis.laws.law import study_laws
from loopscale.analysis.recorded.axes import independent_axes
from loopscale.analysis.recorded.references import references
from loopscale.contracts.planted_study import Planted, comparison
from loopscale.theory.bounds.base import Bound


def crossed() -> Planted:
    """Heads and layers are crossed, with the error 1 / (heads · layers)."""
    planted = Planted(noise=0.01)
    for heads in (1, 2, 4):
        for layers in (1, 2):
            cell = planted.cell(f"{heads} {layers}", **{"model.heads": heads, "model.layers": layers})
            planted.replicated(cell, 1 / (heads * layers))
    return planted


def test_rows_are_named_by_what_tells_the_shown_cells_apart():
    planted = Planted(noise=0.01)
    for depth in (1, 2):
        planted.replicated(planted.cell(f"pca, looped, loops={depth}", **{"training.loops": depth}), 0.1)
    cells = planted.results.cells
    assert list(replicates(planted.results, cells).layout.yaxis.categoryarray) == ["loops=1", "loops=2"]
    [alone] = replicates(planted.results, cells[:1]).layout.yaxis.categoryarray
    assert alone == "PCA<br>looped<br>loops=1"


def test_a_heat_map_shows_every_cells_error_and_on_hover_its_interval():
    planted = crossed()
    (squares,) = heat_map(planted.results, "model.heads", "model.layers").data
    places = {place: number for number, place in enumerate(zip(squares.x, squares.y, strict=True))}
    assert len(places) == 6
    for (heads, layers), number in places.items():
        expected = -np.log10(float(heads) * float(layers))
        assert squares.marker.color[number] == pytest.approx(expected, abs=0.02)
        assert "95 % interval" in squares.hovertext[number]
    assert squares.text[places["4", "2"]] == "0.12"


def test_a_heat_map_of_an_unknown_axis_is_an_error_that_names_the_axes():
    planted = crossed()
    with pytest.raises(
        ValueError, match=r"does not vary model.depth; its axes are model.heads, model.layers"
    ):
        heat_map(planted.results, "model.heads", "model.depth")


def test_settings_in_step_are_one_axis_of_a_figure():
    planted = Planted(noise=0.01)
    for loops, window in ((2, 1), (4, 3), (8, 6)):
        values = {"training.loops": loops, "training.window": window}
        planted.replicated(planted.cell(f"{loops}", **values), 1 / loops)
    assert independent_axes(planted.results) == ["training.loops"]
    figure = against_axis(planted.results, "training.loops")
    assert figure.layout.xaxis.title.text == "training.loops with window"
    (line,) = figure.data
    assert list(line.x) == [2, 4, 8]


def test_classical_algorithms_are_drawn_beside_the_nets_after_as_many_steps():
    planted = Planted(noise=0.01, points=6)
    for layers in (1, 2, 4):
        planted.replicated(planted.cell(f"layers={layers}", **{"model.layers": layers}), 1 / layers)
    descent = planted.trial("", "baseline", 0, 0.4, label="gradient descent")
    planted.curves_of(descent, 0.4, rate=0.5)
    trials, curves, _ = planted.tables
    drawn = {trace.name: trace for trace in against_axis(planted.changed(trials=trials), "model.layers").data}
    by_loop = curves[curves["trial"] == descent].groupby("loop")["error"].mean()
    assert list(drawn["gradient descent"].y) == pytest.approx([by_loop[loop] for loop in (1, 2, 4)], rel=1e-3)
    assert set(drawn) == {"error", "gradient descent"}


def test_a_measure_with_negative_values_has_a_linear_axis():
    planted = Planted(noise=0.01)
    for snr in (1, 2, 4):
        planted.replicated(planted.cell(f"snr={snr}", **{"task.snr": snr}), 1 / snr)
    trials = planted.tables[0]
    agreement = trials["cell"].map({"cell0": -0.03, "cell1": 0.4, "cell2": 0.9})
    trials["ari"] = (agreement + 0.01 * trials["seed"]).astype(float)
    figure = against_axis(planted.changed(trials=trials), "task.snr", of="ari")
    assert figure.layout.yaxis.type == "linear"
    assert list(figure.data[0].y) == pytest.approx([-0.01, 0.42, 0.92])
    assert np.isfinite(np.array(figure.data[0].error_y.array, dtype=float)).all()
    with pytest.raises(ValueError, match=r"no trial has the measure nmi; there are .*ari"):
        against_axis(planted.changed(trials=trials), "task.snr", of="nmi")


def test_references_in_figures_have_no_fitted_constant():
    planted = Planted(noise=0.01, points=6, longest=40)
    cell = planted.cell("looped")
    planted.replicated(cell, 0.1)
    figure = against_references(planted.results, planted.results.cells)
    drawn = {trace.name: trace for trace in figure.data if trace.name}
    bayes = Bound.model_validate({"kind": "bayes_ridge", "dim": 2, "points": 6})
    mean = np.mean([bayes.at(point=point).value() for point in range(6)]) / 2
    run = planted.results.cells[0].runs[0]
    assert dict(references(run, [1, 2]))["bayes ridge, exact"] == pytest.approx([mean, mean])
    assert run.floor
    assert drawn["least error on these prompts (ridge)"].y[0] == pytest.approx(
        run.floor.error.mean(), rel=1e-3
    )
    assert "bayes ridge, exact" not in drawn, "a net may be below the expected error of all prompts"
    first_order = drawn["first order best, for large d and N"].y
    assert (np.diff(first_order) <= 0).all(), "more gradients are never worse"
    newton = [drawn[f"newton (start {start})"].y for start in ("spectral", "frobenius")]
    # With as many pairs as unknowns, errors have heavy tails: the standard error of 512 prompts is 8 %.
    assert newton[0][-1] == pytest.approx(mean, rel=4 * 0.08), "Newton ends at least squares"
    assert newton[0][1] < newton[1][1], "the spectral start is nearer"


def test_a_figure_of_regret_shows_values_above_zero_and_neither_floor_nor_medians():
    planted = comparison()
    curves = planted.tables[1]
    results = planted.changed(curves=curves.assign(regret=curves["error"] - 0.05, median=curves["error"]))
    assert has_regret(results.cells)
    errors, regrets = (against_loops(results, results.cells, of) for of in ("error", "regret"))
    label = results.cells[0].name
    of_error, of_regret = (
        next(trace for trace in figure.data if trace.name == label) for figure in (errors, regrets)
    )
    assert of_regret.y[0] < of_error.y[0]
    drawn = [y for trace in regrets.data for y in trace.y if y is not None and np.isfinite(y)]
    assert min(drawn) > 0
    assert not any("median" in (trace.name or "") or "exact" in (trace.name or "") for trace in regrets.data)
    unknown = planted.changed(curves=curves.assign(regret=np.nan))
    assert not has_regret(unknown.cells)


def test_regret_of_play_is_drawn_against_rounds_at_the_trained_loop():
    planted = Planted(loops=2, longest=3, points=4)
    cell = planted.cell("looped", **{"model.kind": "looped"})
    for number in range(2):
        planted.curves_of(planted.trial(cell, "replicate", number, 0.3), 1.0, 0.5)
        planted.curve[-1]["play_regret"] = np.where(planted.curve[-1]["loop"] == 2, 1.0 + number, np.nan)
    key = planted.trial("", "baseline", 0, 0.2, label="thompson", **{"solver.kind": "thompson"})
    planted.curves_of(key, 1.0, 1.0)
    planted.curve[-1]["play_regret"] = np.where(
        planted.curve[-1]["loop"] == 3, planted.curve[-1]["point"] + 0.5, np.nan
    )
    results = planted.results
    net, policy = (trace for trace in against_rounds(results, results.cells).data if trace.name)
    assert (list(net.x), list(net.y)) == ([1, 2, 3, 4], [1.5] * 4)
    assert (list(policy.x), list(policy.y)) == ([1, 2, 3, 4], [0.5, 1.5, 2.5, 3.5])
    older = crossed().results
    assert not against_rounds(older, older.cells).data


def test_medians_are_drawn_only_beyond_the_trained_loops():
    planted = comparison()
    curves, results = planted.tables[1], planted.results
    before = len(against_loops(results, results.cells).data)
    curves = curves.assign(median=np.where(curves["loop"] > 6, curves["error"] / 2, curves["error"]))
    results = planted.changed(curves=curves)
    figure = against_loops(results, results.cells)
    (entry,) = [trace for trace in figure.data if (trace.name or "").startswith("dotted: median")]
    assert (entry.line.dash, entry.showlegend) == (MEDIANS["dash"], None)
    dotted = [trace for trace in figure.data if (trace.name or "").endswith("median over prompts")]
    assert (len(dotted), len(figure.data)) == (3, before + 4)
    assert all(trace.line.width < 2.4 / 2 and trace.opacity < 1 for trace in dotted), (
        "medians are fainter than means"
    )
    of_cell = curves[curves["trial"].str.startswith("replicate-cell0")]
    for trace in dotted:
        assert list(trace.x) == [6, 7, 8, 9, 10, 11, 12]
    expected = of_cell[of_cell["loop"] == 12].groupby("trial")["error"].mean().mean() / 2
    assert dotted[0].y[-1] == pytest.approx(expected, rel=1e-3)
    (shade,) = figure.layout.shapes
    assert (shade.x0, shade.x1) == (6, 12)
    captions = {
        with_medians: next(report_figures(Reported(planted.changed(curves=table)))).text
        for with_medians, table in ((True, curves), (False, curves.drop(columns="median")))
    }
    assert "dotted, from T on: the median over prompts" in captions[True]
    assert "median" not in captions[False]


def test_a_legend_of_many_long_names_makes_the_figure_taller():
    figure = blank("x", "y")
    figure.add_scatter(x=[1, 2], y=[1, 2], name="model")
    low = with_decimal_ticks(figure).layout.height
    for number in range(8):
        legend_entry(
            figure, f"dotted: median over prompts (bounds are of the mean) {number}", {"dash": "dot"}
        )
    assert with_decimal_ticks(figure).layout.height >= low + 24 * 5


def test_a_cell_with_two_bounds_is_drawn_once_with_both_bounds():
    planted = Planted(noise=0.02)
    for loops in (2, 4, 8, 16):
        planted.replicated(planted.cell(str(loops), **{"training.loops": loops}), 0.5 * 0.9**loops)
    law = {"of": "error", "along": "training.loops", "form": ["exponential"]}
    planted.study["laws"] = [
        law | {"theory": {"kind": "gd_contraction", "kappa": kappa}} for kappa in (19.0, 39.0)
    ]
    laws, _ = study_laws(planted.results)
    assert len(laws) == 2
    drawn = law_figure(laws).data
    assert sum(trace.mode == "markers" for trace in drawn) == 1
    assert len({trace.line.color for trace in drawn if trace.mode == "lines"}) == 1
    assert [trace.line.dash for trace in drawn if trace.mode == "lines"] == [None, "dot", "dash"]


def test_a_bound_with_unknown_constant_is_drawn_with_a_fitted_constant_in_the_legend():
    planted = Planted(noise=0.02)
    for loops in (2, 4, 8, 16):
        planted.replicated(planted.cell(str(loops), **{"training.loops": loops}), 0.5 * 0.81**loops)
    theory = {"kind": "gd_contraction", "kappa": 19.0}
    planted.study["laws"] = [
        {"of": "error", "along": "training.loops", "form": ["exponential"], "theory": theory}
    ]
    laws, _ = study_laws(planted.results)
    drawn = {trace.name: trace for trace in law_figure(laws).data if trace.name}
    (name,) = [name for name in drawn if name.startswith("contraction of gradient descent")]
    assert name == "contraction of gradient descent: its shape, constant fitted (× 0.5)"
    assert list(drawn[name].y) == pytest.approx(0.5 * 0.81 ** np.array([2, 4, 8, 16]), rel=0.05)
    bars = drawn["all"].error_y
    assert all(0 < bar < 0.2 * y for bar, y in zip(bars.array, drawn["all"].y, strict=True)), (
        "bars are the intervals of the means"
    )


def test_a_bound_of_several_cells_has_one_entry_in_the_legend():
    planted = Planted(noise=0.02)
    for label, middle in (("narrow", 0.5), ("wide", 0.25)):
        for loops in (2, 4, 8, 16):
            values = {"training.loops": loops, "model.kind": label}
            planted.replicated(planted.cell(f"{label} {loops}", **values), middle * 0.81**loops)
    theory = {"kind": "gd_contraction", "kappa": 19.0}
    planted.study["laws"] = [
        {"of": "error", "along": "training.loops", "form": ["exponential"], "theory": theory}
    ]
    laws, _ = study_laws(planted.results)
    drawn = [trace for trace in law_figure(laws).data if "contraction of" in (trace.name or "")]
    (in_legend,) = [trace for trace in drawn if trace.showlegend is not False]
    assert in_legend.name == "contraction of gradient descent: its shape, constants fitted (× 0.25 to 0.5)"
    assert {trace.line.dash for trace in drawn} == {"dot"}, "the legend shows the dashes that are drawn"
    assert len(drawn) == 1 + 2


def test_more_cells_than_colours_have_distinct_markers():
    planted = Planted(noise=0.02)
    for number in range(17):
        planted.replicated(
            planted.cell(f"model {number}", **{"model.kind": str(number)}), 0.1 + 0.01 * number
        )
    planted.study["laws"] = [{"of": "error", "along": "loop", "form": ["exponential"]}]
    results = planted.results
    for figure in (
        against_loops(results, results.cells),
        against_points(results, results.cells),
        learning_curves(results),
        error_against_cost(results),
        law_figure(study_laws(results)[0]),
    ):
        series = [
            trace for trace in figure.data if "model" in (trace.name or "") and trace.showlegend is not False
        ]
        marks = {(trace.line.color or trace.marker.color, trace.marker.symbol) for trace in series}
        assert len(series) == len(marks) == 17
        assert all("markers" in trace.mode for trace in series)


def test_a_figure_without_finished_trials_is_empty():
    planted = Planted()
    planted.cell("a", **{"model.heads": 1, "model.layers": 1})
    results = planted.results
    assert not heat_map(results, "model.heads", "model.layers").data
    assert not against_references(results, results.cells).data
