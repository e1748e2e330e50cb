import json

import numpy as np
import pytest

from loopscale.analysis.answers.best_cells import best, best_columns, front
from loopscale.analysis.answers.standings import standings
from loopscale.contracts.planted_study import Planted, comparison


def test_best_lists_cells_in_the_studys_order_with_the_mean_of_replicates_and_its_interval():
    planted = comparison()
    trials, _, _ = planted.tables
    answers = best(planted.changed(trials=trials.sample(frac=1, random_state=0)))
    assert [answer.label for answer in answers] == [cell["label"] for cell in planted.study["cells"]]
    for answer in answers:
        runs = trials[(trials["cell"] == answer.cell) & (trials["role"] == "replicate")]["error"]
        assert answer.error == pytest.approx(runs.mean())
        assert answer.error_low < answer.error < answer.error_high
        assert (answer.replicates, answer.state) == (3, "3 of 3 replicated")


def test_best_shows_the_steps_that_a_study_has_derived_from_a_budget():
    planted = comparison()
    trials = planted.tables[0].assign(**{"training.steps": 320})
    for columns, shown in (({}, False), ({"training.flops": 1e9}, True)):
        results = planted.changed(trials=trials.assign(**columns))
        steps = [column for column in best_columns(results) if column.names == ("training.steps",)]
        assert len(steps) == shown
    assert [steps[0].value(answer) for answer in best(results)] == [320] * 3


def test_a_cell_without_replicates_shows_its_best_tuning_trial_without_an_interval():
    planted = Planted()
    cell = planted.cell("a")
    for number, error in enumerate((0.3, 0.2, np.nan)):
        outcome = "finished" if np.isfinite(error) else "diverged"
        planted.trial(cell, "tuning", number, error, outcome=outcome, **{"training.lr": 1e-3 * (number + 1)})
    planted.trial(cell, "tuning", 3, 0.01, outcome="pruned", **{"training.lr": 4e-3})
    (answer,) = best(planted.results)
    assert (answer.error, answer.error_low, answer.trial) == (0.2, None, f"tuning-{cell}-1")
    assert (answer.state, answer.replicates) == ("4 of 4 tuned", 0)


def test_a_cell_without_a_finished_trial_has_a_state_and_no_error():
    planted = Planted()
    planted.cell("a")
    (answer,) = best(planted.results)
    assert (answer.error, answer.trial, answer.state) == (None, None, "0 of 4 tuned")


def test_a_single_finished_replicate_has_no_interval_and_a_diverged_replicate_is_counted():
    planted = Planted()
    cell = planted.cell("a")
    planted.trial(cell, "replicate", 0, 0.1)
    planted.trial(cell, "replicate", 1, np.nan, outcome="diverged")
    (answer,) = best(planted.results)
    assert (answer.error, answer.error_low, answer.replicates) == (0.1, None, 1)
    assert answer.state == "1 of 3 replicated, 1 without an answer"


def test_replicates_of_a_former_and_of_the_new_best_point_are_not_mixed():
    planted = Planted()
    cell = planted.cell("a")
    for number, (error, lr) in enumerate([(0.5, 1e-4), (0.1, 1e-3), (0.12, 1e-3)]):
        planted.trial(cell, "replicate", number, error, **{"training.lr": lr})
    (answer,) = best(planted.results)
    assert answer.error == pytest.approx(0.11)
    assert answer.settings["training.lr"] == 1e-3


def test_best_omits_cells_that_left_the_study():
    planted = comparison()
    planted.study["cells"] = planted.study["cells"][1:]
    assert len(best(planted.results)) == 2


def test_an_answer_is_unchanged_after_a_round_trip_through_json():
    planted = comparison()
    for answer in best(planted.results):
        assert json.loads(json.dumps(answer.to_dict())) == answer.to_dict()


def test_the_front_holds_the_points_that_no_other_point_beats_in_error_and_cost():
    planted = Planted()
    planted.study["search"] = {"kind": "nsga2", "trials": 4, "objectives": ["error", "flops"]}
    cell = planted.cell("a")
    for number, (error, flops) in enumerate([(0.5, 1.0), (0.3, 2.0), (0.4, 3.0), (0.1, 4.0)]):
        planted.trial(cell, "tuning", number, error, flops=flops, **{"training.lr": 1e-3 * (number + 1)})
    assert [point.error for point in front(planted.results)] == [0.5, 0.3, 0.1]
    (answer,) = best(planted.results)
    assert (answer.error, answer.front) == (0.1, True)


def test_a_baseline_is_compared_after_as_many_steps_as_the_model_has_loops():
    planted = comparison()
    trials, curves, _ = planted.tables
    descent = next(
        standing for standing in standings(planted.results) if standing.baseline == "gradient descent"
    )
    baseline_error = curves[(curves["trial"] == "baseline--1") & (curves["loop"] == 6)]["error"].mean()
    assert (descent.loop, descent.baseline_error) == (6, pytest.approx(baseline_error))
    errors = trials[(trials["cell"] == descent.cell) & (trials["role"] == "replicate")]["error"]
    assert descent.ratio == pytest.approx(float(np.exp(np.log(errors).mean())) / baseline_error)
    assert descent.comparison.seeds == 3
    assert descent.comparison.low < descent.ratio < descent.comparison.high


def test_a_baseline_on_another_task_is_not_compared():
    planted = comparison()
    trials = planted.tables[0]
    trials.loc[trials["label"] == "least_squares", "task.dim"] = 5
    assert {standing.baseline for standing in standings(planted.changed(trials=trials))} == {
        "gradient descent"
    }
