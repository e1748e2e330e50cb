"""Slices, parallel coordinates and importance, on tuning trials with planted best settings."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from loopscale.analysis.answers.importance import LEAST_TRIALS, RELIABLE, importance
from loopscale.analysis.figures.tuning import importances, parallel_coordinates, tuning_slice, varied_settings
from loopscale.analysis.recorded.results import Results
from loopscale.contracts.planted_study import Planted

NUISANCE = {
    "training.lr": {"real": [1e-4, 1e-2], "scale": "log"},
    "model.width": {"integer": [8, 64], "scale": "linear"},
    "model.norm": {"choice": ["pre", "none"]},
}


def searched(count: int, seed: int = 0) -> Results:
    """A cell whose error depends only on the learning rate."""
    planted, rng = Planted(), np.random.default_rng(seed)
    planted.study["nuisance"] = NUISANCE
    cell = planted.cell("a")
    settings = []
    for number in range(count):
        rate, width = float(10 ** rng.uniform(-4, -2)), int(rng.integers(8, 65))
        planted.trial(cell, "tuning", number, 0.1 * float(np.exp((np.log10(rate) + 3) ** 2)))
        settings.append(
            {"training.lr": rate, "model.width": width, "model.norm": str(rng.choice(["pre", "none"]))}
        )
    return planted.changed(trials=planted.tables[0].assign(**pd.DataFrame(settings).to_dict("list")))


def with_nuisance(results: Results, nuisance: dict) -> Results:
    return replace(results, study=dict(results.study) | {"nuisance": nuisance})


def test_the_setting_that_matters_has_the_largest_share():
    cells = [importance(searched(40, seed))[0] for seed in range(5)]
    for cell in cells:
        assert cell.reliable
        assert not cell.note
        assert sum(cell.shares.values()) == pytest.approx(1)
        assert set(cell.shares) == set(NUISANCE)
    assert np.mean([cell.shares["training.lr"] for cell in cells]) > 0.6


def test_importance_from_few_trials_is_marked_unreliable_and_from_fewer_trials_left_out():
    (few,) = importance(searched(RELIABLE - 1))
    assert few.shares
    assert "unreliable" in few.note
    (none,) = importance(searched(LEAST_TRIALS - 1))
    assert none.shares == {}
    assert none.note == "3 finished trials, but at least 4 are needed"


def test_importance_of_a_single_setting_or_of_equal_errors_is_left_out_with_a_reason():
    results = searched(12)
    (cell,) = importance(with_nuisance(results, {"training.lr": NUISANCE["training.lr"]}))
    assert (cell.shares, cell.note) == ({}, "only one setting is tuned")
    (same,) = importance(replace(results, trials=results.trials.assign(error=0.2)))
    assert (same.shares, same.note) == ({}, "all errors are the same")


def test_trials_outside_the_present_ranges_give_a_reason_and_no_failure():
    results = searched(12)
    moved = {"training.lr": {"real": [0.1, 1.0], "scale": "log"}}
    (cell,) = importance(with_nuisance(results, NUISANCE | moved))
    assert cell.shares == {}
    assert "outside the study's present ranges" in cell.note


def test_a_slice_has_a_marker_for_each_finished_trial_and_a_cross_for_each_diverged_trial():
    results = searched(10)
    trials = results.trials
    trials.loc[3, ["outcome", "error"]] = ["diverged", np.nan]
    assert varied_settings(results) == list(NUISANCE)
    finished, diverged = tuning_slice(results, "training.lr").data
    kept = trials.drop(index=3)
    assert list(finished.x) == pytest.approx(kept["training.lr"].tolist())
    assert list(finished.y) == pytest.approx(kept["error"].tolist(), rel=1e-3)
    assert list(diverged.x) == [trials.loc[3, "training.lr"]]
    assert diverged.y[0] > max(finished.y)
    assert tuning_slice(results, "training.lr").layout.xaxis.type == "log"
    assert tuning_slice(results, "model.norm").layout.xaxis.type == "category"


def test_parallel_coordinates_have_one_line_for_each_trial_scaled_from_lowest_to_highest_value():
    results = searched(10)
    figure = parallel_coordinates(results, results.cells[0], varied_settings(results))
    heights = np.array([y for trace in figure.data for y in trace.y if y is not None]).reshape(-1, 4)
    assert len(heights) == 10
    assert heights.min() == 0
    assert heights.max() == 1
    best = next(trace for trace in figure.data if trace.name == "best fifth")
    trials = results.trials
    lowest = trials.sort_values("error").head(2)
    texts = [text for text in best.text if text is not None]
    assert {f"{error:.3g}" for error in lowest["error"]} == {texts[3], texts[7]}
    place = (np.log(lowest["training.lr"]) - np.log(trials["training.lr"].min())) / np.ptp(
        np.log(trials["training.lr"])
    )
    assert sorted([best.y[0], best.y[5]]) == pytest.approx(sorted(place), abs=1e-3)


def test_the_figure_of_importance_has_a_marker_for_every_share():
    (cell,) = importance(searched(12))
    (trace,) = importances([cell]).data
    assert dict(zip(trace.y, trace.x, strict=True)) == pytest.approx(dict(cell.shares), rel=1e-3)
