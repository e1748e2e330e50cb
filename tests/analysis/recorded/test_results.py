"""Regret and learning in the results of recorded studies."""

from collections import Counter
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from loopscale.analysis.recorded.load import load_results
from loopscale.analysis.recorded.results import Results
from loopscale.records.stores.opening import open_store

RECORDS = Path(__file__).parents[3] / "notebooks" / "data"


def recorded(name: str) -> Results:
    store = open_store(RECORDS / name)
    return load_results(store, next(iter(store.studies())))


def older(name: str) -> Results:
    """The records of an export without the regrets and the states of learning, which newer versions record."""
    results = recorded(name)
    newer = ["regret", "regret_sem", "regret_last", "regret_last_sem", "floor", "emerged_at", "still_falling"]
    newer += ["still_falling_low", "still_falling_high", "validate_floor", "validate_ignorance"]
    trials = results.trials.assign(**dict.fromkeys(newer, np.nan))
    curves = results.curves.assign(regret=np.nan, regret_sem=np.nan)
    return Results(results.study, trials, curves, results.history)


def test_the_regret_of_an_older_record_is_the_error_less_the_floor():
    results = older("second_order_conditioned")
    for cell in results.cells:
        floor = results.floor(cell)
        assert floor
        assert floor.measure == "regret"
        for run in (*cell.runs, *cell.baselines):
            assert run["regret"] == pytest.approx(run["error"] - floor.error.mean())
            assert run["regret_last"] == pytest.approx(run["error_last"] - floor.error[-1])
            assert run.curve.regret == pytest.approx(run.curve.error - floor.error)
    [regrets] = np.exp(results.logs("regret")[:1])
    assert regrets[~np.isnan(regrets)] == pytest.approx(results.cells[0].values_of("regret"))
    ridge = min(results.cells[0].baselines, key=lambda baseline: baseline["regret"])
    assert ridge.curve.regret.shape == ridge.curve.error.shape


def test_a_trial_without_an_evaluation_has_no_regret():
    results = recorded("quickstart")
    pruned = [trial for trial in results.trained if trial.outcome == "pruned"]
    assert pruned
    assert np.isnan([trial["regret"] for trial in pruned]).all()


@pytest.mark.parametrize(
    ("study", "words", "emerged"),
    [
        ("scaling_dimension", "4 of 84 runs stand on the plateau", 80),
        ("figure2a", "0 of 9 runs stand on the plateau", 9),
        ("pca_loops", "6 of 42 runs stand on the plateau", 36),
    ],
)
def test_an_independent_program_counts_the_same_learnt_runs(study: str, words: str, emerged: int):
    results = recorded(study)
    assert (results.learnt.words, results.learnt.emerged) == (words, emerged)
    assert results.learnt.of == sum(len(cell.runs) for cell in results.cells)
    steps = [run["emerged_at"] for cell in results.cells for run in cell.runs]
    assert np.isfinite(steps).sum() == emerged


def test_states_use_the_scatter_of_all_replicates():
    results = recorded("scaling_dimension")
    replicates = [trial.learning for trial in results.trained if trial.role == "replicate"]
    assert Counter(state.stage for state in replicates if state) == {"not learnt": 4, "falling": 80}


def test_without_a_floor_the_regret_is_missing_and_no_run_has_a_state():
    results = older("second_order_conditioned")
    unknown = results.trials.assign(**{"task.kind": "no_such_task"})
    other = Results(results.study, unknown, results.curves, results.history)
    assert all(other.floor(cell) is None for cell in other.cells)
    assert (other.learnt.of, other.learnt.words) == (0, "")
    run = other.cells[0].runs[0]
    assert run.learning is None
    assert np.isnan(run["regret"])
    assert np.isnan(run.curve.regret).all()


def test_recorded_regrets_are_used_as_they_are():
    results = recorded("quickstart")
    trials = results.trials.assign(regret=0.25, regret_last=0.125)
    curves = results.curves.assign(regret=0.5, regret_sem=0.0625)
    run = Results(results.study, trials, curves, results.history).cells[0].runs[0]
    assert (run["regret"], run["regret_last"]) == (0.25, 0.125)
    assert (run.curve.regret == 0.5).all()
    assert (run.curve.regret_sem == 0.0625).all()


def test_results_without_reports_have_no_state():
    results = recorded("quickstart")
    empty = pd.DataFrame(columns=results.history.columns)
    assert Results(results.study, results.trials, results.curves, empty).learnt.of == 0
