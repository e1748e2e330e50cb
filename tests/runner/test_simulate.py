"""A simulated study is the study: what it decides, how long it takes, and that a death changes nothing."""

import pytest

from loopscale.runner.simulation.forecast import forecast
from loopscale.runner.simulation.recorded_curves import Recorded
from loopscale.runner.simulation.replay import Curves
from loopscale.runner.simulation.simulate import Setting, Simulation
from tests.runner.simulation import study

PLAIN = {"search": {"kind": "random", "trials": 6}, "scheduler": {"kind": "none"}}


def test_one_slot_takes_the_sum_of_all_trials_and_is_always_busy():
    one = study(**PLAIN)
    made = forecast(one, Curves(one, [], 1e6), Setting(slots=1, start_up=7))
    assert made.utilisation == pytest.approx(1)
    assert made.hours == pytest.approx(made.trial_hours) == pytest.approx(made.trial_hours_unpruned)
    assert made.saved == pytest.approx(0, abs=1e-9)
    assert made.regret == 0
    assert made.trials == one.planned
    assert made.curves == {"surrogate": one.planned}


def test_pruning_saves_and_more_slots_are_faster():
    whole = study()
    few, many = (forecast(whole, Curves(whole, [], 1e6), Setting(slots=n)) for n in (2, 20))
    assert few.outcomes["pruned"] > 10
    assert 0.1 < few.saved < 0.9
    assert many.hours < few.hours
    assert len(few.timeline) == 60
    assert max(few.timeline) <= 1


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("slots", [1, 5])
def test_a_driver_that_is_killed_decides_the_same_where_that_is_promised(slots: int, seed: int):
    for changes in ({}, PLAIN):
        one = study(**changes)
        resumed = forecast(one, Curves(one, [], 1e6), Setting(slots, kills=4, seed=seed)).resumed
        assert resumed
        assert resumed.deaths == 4
        assert resumed.promised is (slots == 1 or changes is PLAIN)
        assert resumed.same == resumed.trials or not resumed.promised


def test_workers_that_die_cost_time_and_no_trial():
    one = study(**PLAIN)
    calm, stormy = (forecast(one, Curves(one, [], 1e6), Setting(4, faults=rate)) for rate in (0, 20))
    assert stormy.workers_lost > 0
    assert stormy.trial_hours > calm.trial_hours
    assert sum(stormy.outcomes.values()) == sum(calm.outcomes.values())


def test_a_recorded_trial_has_its_own_curve_and_another_that_of_the_nearest():
    one = study(**PLAIN)
    first = Simulation(one, Curves(one, [], 1e6), Setting(1))
    jobs = [job for job in first.run().jobs() if job.role == "tuning"]
    cell = [job for job in jobs if job.cell == jobs[0].cell]
    low, high = (pick(cell, key=lambda job: job.point["training.lr"]) for pick in (min, max))
    settings = [{"training.lr": job.point["training.lr"], "training.steps": 90} for job in (low, high)]
    recorded = [
        Recorded(job.key, job.cell, "finished", each, [(0.5, error), (1.0, error / 2)], 3.0, job.flops / 90)
        for job, each, error in zip((low, high), settings, (0.8, 0.4), strict=True)
    ]
    curves = Curves(one, recorded)
    assert curves.course(low).error(0.5) == 0.8
    assert curves.course(high).error(1.0) == 0.2
    assert curves.course(low).seconds == 3.0
    second = sorted(cell, key=lambda job: job.point["training.lr"])[1]
    assert curves.course(second).error(1.0) in (0.4, 0.2)
    assert curves.found[low.key] == "exact"
    assert curves.found[second.key] == "nearest"
