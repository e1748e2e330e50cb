import math
from pathlib import Path

import numpy as np
import pytest

from loopscale import regret
from loopscale.analysis.recorded.equal_cost import common_budget, error_at_cost, history_by_cost
from loopscale.analysis.recorded.load import find_results
from loopscale.analysis.recorded.prices import as_trial, price_of, study_prices
from loopscale.contracts.planted_study import Planted
from loopscale.training.cost import training_flops

DATA = Path(__file__).parents[3] / "notebooks" / "data"


@pytest.fixture(scope="module")
def figure2b():
    return find_results("algoformer/reduced/figure2b", beside=DATA)


@pytest.fixture(scope="module")
def figure5():
    return find_results("algoformer/reduced/figure5", beside=DATA)


def test_the_error_at_a_cost_is_the_last_report_within_the_budget(figure2b):
    trial = figure2b.cells[0].runs[0]
    whole = training_flops(as_trial(trial))
    steps, errors = trial.history()
    assert len(steps) >= 10
    for place, step in enumerate(steps):
        exactly = whole * step / steps[-1]
        assert error_at_cost(trial, flops=exactly) == errors[place]
        assert error_at_cost(trial, flops=1.01 * exactly) == errors[place]
    assert error_at_cost(trial, flops=10 * whole) == errors[-1]
    assert math.isnan(error_at_cost(trial, flops=0.99 * whole * steps[0] / steps[-1]))


def test_error_at_cost_needs_exactly_one_budget(figure2b):
    trial = figure2b.cells[0].runs[0]
    for budgets in ({}, {"flops": 1e12, "seconds": 10.0}):
        with pytest.raises(ValueError, match="one budget; give flops or seconds"):
            error_at_cost(trial, **budgets)


def test_flops_are_counted_today_because_older_counts_differ_by_cell(figure2b):
    runs = [cell.runs[0] for cell in figure2b.cells]
    priced = study_prices(figure2b)
    todays = [priced[run.trial].after(run.step, "flops") for run in runs]
    assert todays == [training_flops(as_trial(run)) for run in runs]
    recorded = np.array([run["flops"] for run in runs])
    assert np.ptp(recorded / todays) > 0.02  # else one factor would do, and the test would show nothing


def test_regret_at_a_cost_is_the_error_above_the_floor_of_the_validation_prompts(figure2b):
    trial, budget = figure2b.cells[1].runs[0], 3e12
    floor = trial.validation_floor.error
    # The prompts are float32, and the processor that recorded the floor rounded them in its own way.
    np.testing.assert_allclose(floor, regret.floor(as_trial(trial).task, "validate").error, rtol=0, atol=1e-6)
    for of, least in (("regret", floor.mean()), ("regret_last", floor[-1])):
        error = error_at_cost(trial, flops=budget, of=of.replace("regret", "error"))
        # The prompts are float32, and the processor that recorded the floor rounded them in its own way.
        assert error_at_cost(trial, flops=budget, of=of) == pytest.approx(error - least, abs=1e-6)
        assert error_at_cost(trial, flops=budget, of=of) > 0


def test_seconds_are_at_the_median_pace_of_the_cell_and_not_the_clock_of_one_trial(figure2b):
    priced = study_prices(figure2b)
    for cell in figure2b.cells:
        clocks = [trial["seconds"] for trial in cell.runs]
        planned = {float(priced[trial.trial].after(trial.step, "seconds")) for trial in cell.runs}
        assert len(planned) == 1 < len(set(clocks))
        assert min(clocks) / 2 < planned.pop() < 2 * max(clocks)


@pytest.mark.slow
def test_early_steps_of_a_curriculum_cost_less(figure5):
    trial = figure5.cells[0].runs[0]
    price = price_of(trial)
    steps, _ = trial.history()
    by_step = np.diff(price.after(steps, "flops"), prepend=0)
    assert trial.settings["training.curriculum.every"] == 250 == steps[0]
    assert (np.diff(by_step)[:3] > 0).all()
    np.testing.assert_allclose(by_step[3:], by_step[-1])


def test_cells_are_compared_in_one_count_if_one_cell_cannot_be_counted_today():
    planted = Planted()
    for kind in ("looped", "of_the_future"):
        cell = planted.cell(kind, **{"model.kind": kind})
        planted.trial(cell, "replicate", 0, 0.5, step=100, flops=7e9, seconds=70.0)
    rows = planted.results.trials.assign(**{"training.steps": 100, "training.window": 6})
    known, unknown = planted.changed(trials=rows).trained
    assert price_of(known).counted == "today"
    priced = study_prices(planted.changed(trials=rows))
    assert {price.counted for price in priced.values()} == {"record"}
    for trial in (known, unknown):
        assert priced[trial.trial].after(50, "flops") == pytest.approx(3.5e9)
        assert priced[trial.trial].after(50, "seconds") == pytest.approx(35)


def test_the_common_budget_is_the_cost_that_every_trial_has_reached(figure2b):
    runs = [run for cell in figure2b.cells for run in cell.runs]
    priced = study_prices(figure2b)
    budget = common_budget(runs, priced, "flops")
    reached = [history_by_cost(run, priced[run.trial], "flops")[0][-1] for run in runs]
    assert budget == min(reached) < max(reached) / 2.4
    cheapest = runs[int(np.argmin(reached))]
    assert error_at_cost(cheapest, flops=budget) == cheapest.history()[1][-1]
