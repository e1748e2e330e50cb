import numpy as np
import pandas as pd
import pytest

from loopscale.analysis.notebook import StudyResults, count_verdicts, laws_of_studies
from loopscale.contracts.planted_study import Planted
from loopscale.papers.compute_optimal import (
    BEST_PAIRS,
    allocation,
    best_pairs,
    compute_optimal,
    study_surface,
)

X, Z = "training.loops", "model.width"


def trained(seed: int = 0, replicates: int = 2) -> StudyResults:
    """T, with ΔT in step, and width; error = 0.05 + 0.6 T^-0.8 + 2 width^-0.6, FLOPs = 1e4 T width²."""
    planted, rng = Planted(), np.random.default_rng(seed)
    for loops in (1, 2, 4, 8):
        for width in (8, 16, 24, 40):
            values = {X: loops, "training.window": loops, Z: width}
            cell = planted.cell(f"{loops} {width}", **values)
            for number in range(replicates):
                error = (0.05 + 0.6 * loops**-0.8 + 2 * width**-0.6) * np.exp(0.01 * rng.standard_normal())
                planted.trial(cell, "replicate", number, error, flops=1e4 * loops * width**2)
    return results(planted)


def results(planted: Planted, missing: str = "") -> StudyResults:
    trials = pd.DataFrame(planted.rows, columns=None if planted.rows else planted.tables[0].columns)
    return StudyResults(planted.study, trials, *planted.tables[1:], missing=missing)


def test_the_fitted_surface_equals_the_planted_surface():
    over = study_surface(trained(), X, Z)
    for interval, truth in zip(over.intervals, (0.8, 0.6), strict=True):
        assert interval[0] <= truth <= interval[1]
    assert over.cost == pytest.approx((np.log(1e4), 1, 2))


def test_the_allocation_has_sentences_and_a_table():
    sentences = allocation(trained(), X, Z)
    assert "(training.loops)^-0." in sentences[0]
    assert "exponent 0." in sentences[0]
    assert sentences[1] == "FLOPs grow as training.loops^1.00 model.width^2.00, to within 0 %."
    assert "95 % interval" in sentences[2]
    assert "The least error then falls to" in sentences[3]
    table = best_pairs(trained(), X, Z)
    assert len(table) == BEST_PAIRS
    assert (np.diff(table["error"]) < 0).all(), "more FLOPs reach a smaller error"
    np.testing.assert_allclose(1e4 * table[X] * table[Z] ** 2, table["FLOPs"], rtol=1e-6)


def test_the_figure_has_the_cells_the_surface_and_its_envelope():
    names = [trace.name for trace in compute_optimal(trained(), X, Z).data if trace.name]
    assert names[:-1] == [f"model.width = {width}" for width in (8, 16, 24, 40)]
    assert names[-1].startswith("least error:")


def test_one_run_in_each_cell_has_no_interval_and_says_so():
    sentences = allocation(trained(replicates=1), X, Z)
    assert "no interval: one run in each cell" in sentences[0]


def test_an_error_that_does_not_fall_along_an_axis_has_no_exponent():
    study = trained()
    flat = study.trials.assign(error=0.1 + 0.4 / study.trials[X] + 0.01 * study.trials[Z] / 40)
    sentences = allocation(StudyResults(study.study, flat, study.curves, study.history), X, Z)
    assert "does not fall along model.width" in sentences[0]
    assert "No pair is known to be best" in sentences[-1]


def test_an_exponent_without_an_upper_bound_is_no_estimate_and_draws_no_line():
    """Only the first step of the width lowers the error, so every large exponent fits equally well."""
    study, rng = trained(), np.random.default_rng(1)
    wide = np.where(study.trials[Z] == 8, 0.3, 0.0)
    error = (0.1 + 0.6 * study.trials[X] ** -0.8 + wide) * np.exp(0.01 * rng.standard_normal(len(wide)))
    steep = StudyResults(study.study, study.trials.assign(error=error), study.curves, study.history)
    over = study_surface(steep, X, Z)
    assert over.unknown[0] == ""
    assert over.unknown[1]
    sentences = allocation(steep, X, Z)
    assert f"a term of model.width, whose exponent {over.unknown[1]} (95 % interval" in sentences[0]
    assert "(model.width)^-" not in sentences[0]
    assert sentences[-1].startswith("No pair is known to be best: an exponent is")
    assert not any("grows as FLOPs^" in sentence for sentence in sentences)
    assert best_pairs(steep, X, Z).empty
    figure = compute_optimal(steep, X, Z)
    assert not any("least error" in (trace.name or "") for trace in figure.data)
    assert "no line of least error: an exponent is" in figure.layout.annotations[0].text


def test_verdicts_of_several_studies_have_one_table_and_one_count():
    planted = Planted(noise=0.004)
    for loops in (2, 4, 8, 16):
        planted.replicated(planted.cell(str(loops), **{X: loops}), 0.5 * 0.81**loops)
    theory = {"kind": "gd_contraction", "kappa": 19.0}
    planted.study["laws"] = [{"of": "error", "along": X, "form": ["exponential"], "theory": theory}]
    unrun = results(Planted(), missing="Nothing has run: run it.")
    study = results(planted)
    assert len(laws_of_studies(study, unrun, study)) == 2
    assert count_verdicts(study, unrun) == (
        "1 laws are fitted; theory predicts the rate of 1: 1 agrees.",
        "Nothing has run: run it.",
    )
    assert laws_of_studies(unrun).empty


def test_without_records_sentences_and_figures_name_the_missing_trials():
    study = results(Planted(), missing="No trial has finished yet: `loopscale run planted` trains them.")
    assert allocation(study, X, Z) == (study.missing,)
    assert best_pairs(study, X, Z).empty
    for figure in (
        compute_optimal(study, X, Z),
        study.heat_map(X, Z),
        study.against_references(),
    ):
        assert "No trial has finished yet" in figure.layout.annotations[0].text


def test_a_study_without_a_surface_says_why():
    planted = Planted()
    for dim in (2, 3):
        planted.replicated(planted.cell(str(dim), **{"task.dim": dim, X: 2, Z: dim * 8}), 0.1)
    sentences = allocation(results(planted), X, Z)
    assert "too few for a surface" in sentences[0] or "no single surface" in sentences[0]
