import numpy as np
import pandas as pd
import pytest

from loopscale.analysis.papers import scaling
from loopscale.analysis.results import Reading
from tests.analysis.planted import Planted

X, Z = "training.loops", "model.width"


def trained(seed: int = 0, replicates: int = 2) -> Reading:
    """T, with ΔT in step, and width; error = 0.05 + 0.6 T^-0.8 + 2 width^-0.6, FLOPs = 1e4 T width²."""
    planted, rng = Planted(), np.random.default_rng(seed)
    for loops in (1, 2, 4, 8):
        for width in (8, 16, 24, 40):
            values = {X: loops, "training.window": loops, Z: width}
            cell = planted.cell(f"{loops} {width}", **values)
            for number in range(replicates):
                error = (0.05 + 0.6 * loops**-0.8 + 2 * width**-0.6) * np.exp(0.01 * rng.standard_normal())
                planted.trial(cell, "replicate", number, error, flops=1e4 * loops * width**2)
    return reading(planted)


def reading(planted: Planted, missing: str = "") -> Reading:
    trials = pd.DataFrame(planted.rows, columns=None if planted.rows else planted.tables[0].columns)
    return Reading(planted.study, trials, *planted.tables[1:], missing=missing)


def test_the_surface_of_a_study_is_the_one_that_was_planted():
    over = scaling.surface(trained(), X, Z)
    for interval, truth in zip(over.intervals, (0.8, 0.6), strict=True):
        assert interval[0] <= truth <= interval[1]
    assert over.cost == pytest.approx((np.log(1e4), 1, 2))


def test_the_allocation_is_told_in_words_and_as_a_table():
    said = scaling.allocation(trained(), X, Z)
    assert "(training.loops)^-0." in said[0]
    assert "exponent 0." in said[0]
    assert said[1] == "FLOPs grow as training.loops^1.00 model.width^2.00, to within 0 %."
    assert "95 % interval" in said[2]
    assert "The least error then falls to" in said[3]
    table = scaling.best_pairs(trained(), X, Z)
    assert len(table) == scaling.BUDGETS
    assert (np.diff(table["error"]) < 0).all(), "more FLOPs reach less"
    np.testing.assert_allclose(1e4 * table[X] * table[Z] ** 2, table["FLOPs"], rtol=1e-6)


def test_the_figure_has_the_cells_the_surface_and_its_envelope():
    names = [trace.name for trace in scaling.compute_optimal(trained(), X, Z).data if trace.name]
    assert names[:-1] == [f"model.width = {width}" for width in (8, 16, 24, 40)]
    assert names[-1].startswith("least error:")


def test_one_run_in_each_cell_has_no_interval_and_says_so():
    said = scaling.allocation(trained(replicates=1), X, Z)
    assert "no interval: one run in each cell" in said[0]


def test_an_error_that_does_not_fall_along_an_axis_has_no_exponent_there():
    found = trained()
    flat = found.trials.assign(error=0.1 + 0.4 / found.trials[X] + 0.01 * found.trials[Z] / 40)
    said = scaling.allocation(Reading(found.study, flat, found.curves, found.history), X, Z)
    assert "does not fall along model.width" in said[0]
    assert "No pair is known to be best" in said[-1]


def test_an_exponent_that_nothing_bounds_is_no_estimate_and_draws_no_line():
    """All that width gives is had at the second of four: any exponent that is large enough fits as well."""
    found, rng = trained(), np.random.default_rng(1)
    wide = np.where(found.trials[Z] == 8, 0.3, 0.0)
    error = (0.1 + 0.6 * found.trials[X] ** -0.8 + wide) * np.exp(0.01 * rng.standard_normal(len(wide)))
    steep = Reading(found.study, found.trials.assign(error=error), found.curves, found.history)
    over = scaling.surface(steep, X, Z)
    assert over.unknown[0] == ""
    assert over.unknown[1]
    said = scaling.allocation(steep, X, Z)
    assert f"a term of model.width, whose exponent {over.unknown[1]} (95 % interval" in said[0]
    assert "(model.width)^-" not in said[0]
    assert said[-1].startswith("No pair is known to be best: an exponent is")
    assert not any("grows as FLOPs^" in sentence for sentence in said)
    assert scaling.best_pairs(steep, X, Z).empty
    figure = scaling.compute_optimal(steep, X, Z)
    assert not any("least error" in (trace.name or "") for trace in figure.data)
    assert "no line of least error: an exponent is" in figure.layout.annotations[0].text


def test_verdicts_of_several_studies_are_one_table_and_are_counted():
    planted = Planted(noise=0.004)
    for loops in (2, 4, 8, 16):
        planted.replicated(planted.cell(str(loops), **{X: loops}), 0.5 * 0.81**loops)
    theory = {"kind": "gd_contraction", "kappa": 19.0}
    planted.study["laws"] = [{"of": "error", "along": X, "form": ["exponential"], "theory": theory}]
    unrun = reading(Planted(), missing="Nothing has run: run it.")
    found = reading(planted)
    assert len(scaling.verdicts(found, unrun, found)) == 2
    assert scaling.counted(found, unrun) == (
        "1 laws are fitted; theory predicts the rate of 1: 1 agrees.", "Nothing has run: run it."
    )  # fmt: skip
    assert scaling.verdicts(unrun).empty


def test_without_records_everything_says_what_is_missing():
    found = reading(Planted(), missing="No trial has finished yet: `loopscale run planted` trains them.")
    assert scaling.allocation(found, X, Z) == (found.missing,)
    assert scaling.best_pairs(found, X, Z).empty
    for figure in (
        scaling.compute_optimal(found, X, Z),
        scaling.heat_map(found, X, Z),
        scaling.against_references(found),
    ):
        assert "No trial has finished yet" in figure.layout.annotations[0].text


def test_too_few_cells_and_too_many_axes_are_told_apart():
    planted = Planted()
    for dim in (2, 3):
        planted.replicated(planted.cell(str(dim), **{"task.dim": dim, X: 2, Z: dim * 8}), 0.1)
    said = scaling.allocation(reading(planted), X, Z)
    assert "too few for a surface" in said[0] or "no single surface" in said[0]
