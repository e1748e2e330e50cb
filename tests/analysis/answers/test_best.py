import json

import numpy as np
import pytest

from loopscale.analysis.answers.best import best, front
from loopscale.analysis.answers.standings import standings
from tests.analysis.planted import Planted, comparison


def test_cells_come_in_the_studys_order_with_the_mean_over_replicates_and_an_interval():
    planted = comparison()
    trials, _, _ = planted.tables
    found = best(planted.changed(trials=trials.sample(frac=1, random_state=0)))
    assert [one.label for one in found] == [cell["label"] for cell in planted.study["cells"]]
    for one in found:
        runs = trials[(trials["cell"] == one.cell) & (trials["role"] == "replicate")]["error"]
        assert one.error == pytest.approx(runs.mean())
        assert one.error_low < one.error < one.error_high
        assert (one.replicates, one.state) == (3, "3 of 3 replicated")


def test_a_cell_without_replicates_shows_its_best_tuning_trial_without_an_interval():
    planted = Planted()
    cell = planted.cell("a")
    for number, error in enumerate((0.3, 0.2, np.nan)):
        outcome = "finished" if np.isfinite(error) else "diverged"
        planted.trial(cell, "tuning", number, error, outcome=outcome)
    planted.trial(cell, "tuning", 3, 0.01, outcome="pruned")
    (one,) = best(planted.results)
    assert (one.error, one.error_low, one.trial) == (0.2, None, f"tuning-{cell}-1")
    assert (one.state, one.replicates) == ("4 of 4 tuned", 0)


def test_a_cell_with_nothing_finished_is_there_and_says_how_far_it_is():
    planted = Planted()
    planted.cell("a")
    (one,) = best(planted.results)
    assert (one.error, one.trial, one.state) == (None, None, "0 of 4 tuned")


def test_a_single_replicate_has_no_interval_and_a_diverged_one_is_counted():
    planted = Planted()
    cell = planted.cell("a")
    planted.trial(cell, "replicate", 0, 0.1)
    planted.trial(cell, "replicate", 1, np.nan, outcome="diverged")
    (one,) = best(planted.results)
    assert (one.error, one.error_low, one.replicates) == (0.1, None, 1)
    assert one.state == "1 of 3 replicated, 1 without an answer"


def test_replicates_of_a_point_that_is_best_no_longer_are_not_mixed_with_the_new_ones():
    planted = Planted()
    cell = planted.cell("a")
    for number, (error, lr) in enumerate([(0.5, 1e-4), (0.1, 1e-3), (0.12, 1e-3)]):
        planted.trial(cell, "replicate", number, error, **{"training.lr": lr})
    (one,) = best(planted.results)
    assert one.error == pytest.approx(0.11)
    assert one.settings["training.lr"] == 1e-3


def test_cells_that_left_the_study_leave_best():
    planted = comparison()
    planted.study["cells"] = planted.study["cells"][1:]
    assert len(best(planted.results)) == 2


def test_what_best_says_is_json():
    planted = comparison()
    for one in best(planted.results):
        assert json.loads(json.dumps(one.to_dict())) == one.to_dict()


def test_the_front_holds_the_points_that_no_other_beats_in_error_and_cost():
    planted = Planted()
    planted.study["search"] = {"kind": "nsga2", "trials": 4, "objectives": ["error", "flops"]}
    cell = planted.cell("a")
    for number, (error, flops) in enumerate([(0.5, 1.0), (0.3, 2.0), (0.4, 3.0), (0.1, 4.0)]):
        planted.trial(cell, "tuning", number, error, flops=flops)
    assert [point.error for point in front(planted.results)] == [0.5, 0.3, 0.1]
    (one,) = best(planted.results)
    assert (one.error, one.front) == (0.1, True)


def test_a_baseline_is_compared_after_as_many_steps_as_the_model_loops():
    planted = comparison()
    trials, curves, _ = planted.tables
    found = standings(planted.results)
    descent = next(one for one in found if one.baseline == "gradient descent")
    theirs = curves[(curves["trial"] == "baseline--1") & (curves["loop"] == 6)]["error"].mean()
    assert (descent.loop, descent.baseline_error) == (6, pytest.approx(theirs))
    mine = trials[(trials["cell"] == descent.cell) & (trials["role"] == "replicate")]["error"]
    assert descent.ratio == pytest.approx(float(np.exp(np.log(mine).mean())) / theirs)
    assert descent.comparison.seeds == 3
    assert descent.low < descent.ratio < descent.high


def test_a_baseline_on_another_task_is_not_compared():
    planted = comparison()
    trials = planted.tables[0]
    trials.loc[trials["label"] == "least_squares", "task.dim"] = 5
    assert {one.baseline for one in standings(planted.changed(trials=trials))} == {"gradient descent"}
