import numpy as np
import pytest

from loopscale.analysis.axes import independent_axes
from loopscale.analysis.figures.cells import heat_map
from loopscale.analysis.figures.curves import against_loops, against_points, against_references
from loopscale.analysis.figures.laws import law_figure
from loopscale.analysis.figures.settings import against_axis
from loopscale.analysis.figures.style import blank, legend_entry, with_decimal_ticks
from loopscale.analysis.figures.training import error_against_cost, learning_curves
from loopscale.analysis.laws.study_laws import study_laws
from loopscale.analysis.report.figures import study_figures
from loopscale.theory.bounds.base import Bound
from tests.analysis.planted import Planted, comparison


def crossed() -> Planted:
    """Heads by layers, the error 1 / (heads · layers)."""
    planted = Planted(noise=0.01)
    for heads in (1, 2, 4):
        for layers in (1, 2):
            cell = planted.cell(f"{heads} {layers}", **{"model.heads": heads, "model.layers": layers})
            planted.replicated(cell, 1 / (heads * layers))
    return planted


def test_a_heat_map_has_every_cells_error_in_its_square_with_the_interval_in_hover():
    planted = crossed()
    (squares,) = heat_map(planted.results, "model.heads", "model.layers").data
    at = {place: number for number, place in enumerate(zip(squares.x, squares.y, strict=True))}
    assert len(at) == 6
    for (heads, layers), number in at.items():
        expected = -np.log10(float(heads) * float(layers))
        assert squares.marker.color[number] == pytest.approx(expected, abs=0.02)
        assert "95 % interval" in squares.hovertext[number]
    assert squares.text[at["4", "2"]] == "0.12"


def test_a_heat_map_of_an_axis_that_is_not_there_says_which_are():
    planted = crossed()
    with pytest.raises(
        ValueError, match=r"does not vary model.depth; its axes are model.heads, model.layers"
    ):
        heat_map(planted.results, "model.heads", "model.depth")


def test_the_axes_of_a_figure_are_those_that_vary_alone():
    planted = Planted(noise=0.01)
    for loops, window in ((2, 1), (4, 3), (8, 6)):
        values = {"training.loops": loops, "training.window": window}
        planted.replicated(planted.cell(f"{loops}", **values), 1 / loops)
    assert independent_axes(planted.results) == ["training.loops"]
    figure = against_axis(planted.results, "training.loops")
    assert figure.layout.xaxis.title.text == "training.loops with window"
    (line,) = figure.data
    assert list(line.x) == [2, 4, 8]


def test_classical_algorithms_stand_beside_the_nets_on_an_axis():
    planted = Planted(noise=0.01, points=6)
    for layers in (1, 2, 4):
        planted.replicated(planted.cell(f"layers={layers}", **{"model.layers": layers}), 1 / layers)
    descent = planted.trial("", "baseline", 0, 0.4, label="gradient descent")
    planted.curves_of(descent, 0.4, rate=0.5)
    trials, curves, _ = planted.tables
    drawn = {each.name: each for each in against_axis(planted.changed(trials=trials), "model.layers").data}
    after = curves[curves["trial"] == descent].groupby("loop")["error"].mean()
    assert list(drawn["gradient descent"].y) == pytest.approx([after[each] for each in (1, 2, 4)], rel=1e-3)
    assert set(drawn) == {"error", "gradient descent"}


def test_a_measure_that_may_be_negative_is_drawn_as_it_stands():
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


def test_references_stand_at_their_own_height():
    planted = Planted(noise=0.01, points=6, longest=40)
    cell = planted.cell("looped")
    planted.replicated(cell, 0.1)
    figure = against_references(planted.results, planted.results.cells)
    drawn = {trace.name: trace for trace in figure.data if trace.name}
    bayes = Bound.model_validate({"kind": "bayes_ridge", "dim": 2, "points": 6})
    mean = np.mean([bayes.at(point=point).value() for point in range(6)]) / 2
    assert drawn["bayes ridge, exact"].y[0] == pytest.approx(mean, rel=1e-3)
    first = drawn["first order best, for large d and N"].y
    assert (np.diff(first) <= 0).all(), "more gradients are never worse"
    newton = [drawn[f"newton (start {start})"].y for start in ("spectral", "frobenius")]
    # The standard error of 512 prompts is 8 % here: with as many pairs as unknowns, errors have heavy tails.
    assert newton[0][-1] == pytest.approx(mean, rel=4 * 0.08), "Newton ends at least squares"
    assert newton[0][1] < newton[1][1], "the spectral start is nearer"


def test_medians_stand_beside_means_beyond_the_trained_loops_alone():
    planted = comparison()
    curves, results = planted.tables[1], planted.results
    before = len(against_loops(results, results.cells).data)
    curves = curves.assign(median=np.where(curves["loop"] > 6, curves["error"] / 2, curves["error"]))
    results = planted.changed(curves=curves)
    figure = against_loops(results, results.cells)
    (named,) = [trace for trace in figure.data if (trace.name or "").startswith("dotted: median")]
    assert (named.line.dash, named.showlegend) == ("dot", None)
    dotted = [trace for trace in figure.data if (trace.name or "").endswith("median over prompts")]
    assert (len(dotted), len(figure.data)) == (3, before + 4)
    assert all(trace.line.width < 2.4 / 2 and trace.opacity < 1 for trace in dotted), "less than the means"
    mine = curves[curves["trial"].str.startswith("replicate-cell0")]
    for trace in dotted:
        assert list(trace.x) == [6, 7, 8, 9, 10, 11, 12]
    expected = mine[mine["loop"] == 12].groupby("trial")["error"].mean().mean() / 2
    assert dotted[0].y[-1] == pytest.approx(expected, rel=1e-3)
    (shade,) = figure.layout.shapes
    assert (shade.x0, shade.x1) == (6, 12)
    captions = {
        bool(medians): next(study_figures(planted.changed(curves=each), [], [])).text
        for medians, each in ((True, curves), (False, curves.drop(columns="median")))
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


def test_a_cell_with_two_bounds_is_drawn_once_with_both():
    planted = Planted(noise=0.02)
    for loops in (2, 4, 8, 16):
        planted.replicated(planted.cell(str(loops), **{"training.loops": loops}), 0.5 * 0.9**loops)
    planted.study["laws"] = [
        {"of": "error", "along": "training.loops", "form": ["exponential"],
         "theory": {"kind": "gd_contraction", "kappa": kappa}}
        for kappa in (19.0, 39.0)
    ]  # fmt: skip
    found, _ = study_laws(planted.results)
    assert len(found) == 2
    drawn = law_figure(found).data
    assert sum(trace.mode == "markers" for trace in drawn) == 1
    assert len({trace.line.color for trace in drawn if trace.mode == "lines"}) == 1
    assert [trace.line.dash for trace in drawn if trace.mode == "lines"] == [None, "dot", "dash"]


def test_a_bound_that_hides_its_constant_is_drawn_with_one_that_is_fitted_and_named():
    planted = Planted(noise=0.02)
    for loops in (2, 4, 8, 16):
        planted.replicated(planted.cell(str(loops), **{"training.loops": loops}), 0.5 * 0.81**loops)
    theory = {"kind": "gd_contraction", "kappa": 19.0}
    planted.study["laws"] = [
        {"of": "error", "along": "training.loops", "form": ["exponential"], "theory": theory}
    ]
    found, _ = study_laws(planted.results)
    drawn = {trace.name: trace for trace in law_figure(found).data if trace.name}
    (name,) = [name for name in drawn if name.startswith("gd_contraction")]
    assert name == "gd_contraction: its shape, constant fitted (× 0.5)"
    assert list(drawn[name].y) == pytest.approx(0.5 * 0.81 ** np.array([2, 4, 8, 16]), rel=0.05)
    bars = drawn["all"].error_y
    assert all(0 < bar < 0.2 * y for bar, y in zip(bars.array, drawn["all"].y, strict=True)), (
        "intervals of the means"
    )


def test_a_bound_of_many_cells_is_in_the_legend_once():
    planted = Planted(noise=0.02)
    for label, middle in (("narrow", 0.5), ("wide", 0.25)):
        for loops in (2, 4, 8, 16):
            values = {"training.loops": loops, "model.kind": label}
            planted.replicated(planted.cell(f"{label} {loops}", **values), middle * 0.81**loops)
    theory = {"kind": "gd_contraction", "kappa": 19.0}
    planted.study["laws"] = [
        {"of": "error", "along": "training.loops", "form": ["exponential"], "theory": theory}
    ]
    found, _ = study_laws(planted.results)
    drawn = [trace for trace in law_figure(found).data if "gd_contraction" in (trace.name or "")]
    (named,) = [trace for trace in drawn if trace.showlegend is not False]
    assert named.name == "gd_contraction: its shape, constants fitted (× 0.25 to 0.5)"
    assert {trace.line.dash for trace in drawn} == {"dot"}, "as it is drawn"
    assert len(drawn) == 1 + 2


def test_more_cells_than_colours_are_told_apart_by_their_marks():
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
        named = [
            trace for trace in figure.data if "model" in (trace.name or "") and trace.showlegend is not False
        ]
        marked = {(trace.line.color or trace.marker.color, trace.marker.symbol) for trace in named}
        assert len(named) == len(marked) == 17
        assert all("markers" in trace.mode for trace in named)


def test_a_figure_of_nothing_that_has_finished_has_nothing_in_it():
    planted = Planted()
    planted.cell("a", **{"model.heads": 1, "model.layers": 1})
    results = planted.results
    assert not heat_map(results, "model.heads", "model.layers").data
    assert not against_references(results, results.cells).data
