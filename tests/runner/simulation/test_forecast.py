"""Simulated studies: their decisions, their durations, and deaths that change no decision."""

import pytest

from loopscale.records.model import PREDICTION
from loopscale.runner.simulation.curves import LearningCurves, RecordedTrial
from loopscale.runner.simulation.forecast import forecast
from loopscale.runner.simulation.simulate import SimulatedCluster, Simulation
from tests.runner.simulated_study import study

PLAIN = {"search": {"kind": "random", "trials": 6}, "scheduler": {"kind": "none"}}


def test_one_slot_is_always_busy_and_takes_the_sum_of_all_trials():
    plain = study(**PLAIN)
    result = forecast(plain, LearningCurves(plain, [], 1e6), SimulatedCluster(slots=1, start_up=7))
    assert result.utilisation == pytest.approx(1)
    assert result.hours == pytest.approx(result.trial_hours) == pytest.approx(result.trial_hours_unpruned)
    assert result.saved == pytest.approx(0, abs=1e-9)
    assert result.regret == 0
    assert result.trials == plain.planned
    assert result.curves == {"surrogate": plain.planned}


def test_every_seed_of_a_point_is_simulated_and_a_kill_changes_nothing():
    several = study(**PLAIN | {"search": {"kind": "tpe", "trials": 4, "seeds": 3}})
    result = forecast(several, LearningCurves(several, [], 1e6), SimulatedCluster(1, kills=3, seed=1))
    assert result.trials == several.planned == len(several.cells()) * (4 * 3 + 2)
    assert result.resumed
    assert result.resumed.same == result.resumed.trials


def test_pruning_saves_work_and_more_slots_are_faster():
    pruned = study()
    few, many = (
        forecast(pruned, LearningCurves(pruned, [], 1e6), SimulatedCluster(slots=n)) for n in (2, 20)
    )
    assert few.outcomes["pruned"] > 10
    assert 0.1 < few.saved < 0.9
    assert many.hours < few.hours
    assert len(few.timeline) == 60
    assert max(few.timeline) <= 1


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("slots", [1, 5])
def test_a_killed_driver_makes_the_same_decisions_where_this_is_promised(slots: int, seed: int):
    for changes in ({}, PLAIN):
        changed = study(**changes)
        resumed = forecast(
            changed, LearningCurves(changed, [], 1e6), SimulatedCluster(slots, kills=4, seed=seed)
        ).resumed
        assert resumed
        assert resumed.deaths == 4
        assert resumed.promised is (slots == 1 or changes is PLAIN)
        assert resumed.same == resumed.trials or not resumed.promised


@pytest.mark.parametrize("kills", [0, 6])
def test_held_out_trials_start_last_and_are_predicted_once(kills: int):
    axes = {"training.loops": [1, 2, 4, 8, 16], "training.window": [1]}
    laws = [{"along": "training.loops", "hold_out": 1}]
    held = study(**PLAIN, scientific=axes, laws=laws)
    simulation = Simulation(held, LearningCurves(held, [], 1e6), SimulatedCluster(4, kills=kills, seed=1))
    simulation.run(expected_events=60)
    assert simulation.drivers_killed == kills
    assert len(simulation.records.records()) == held.planned + 2
    notes = simulation.records.notes
    [predicted] = [n for n, note in enumerate(notes) if any(PREDICTION in tag for tag in note.tags)]
    [last] = [cell.key for cell in held.cells() if cell.values["training.loops"] == 16]
    cells = {note.key: note.tags["cell"] for note in notes if note.tags.get("cell")}
    before, after = (
        {cells.get(note.key) for note in part} for part in (notes[:predicted], notes[predicted + 1 :])
    )
    assert last not in before
    assert after == {last}


def test_deaths_of_workers_cost_time_and_no_trial():
    plain = study(**PLAIN)
    reliable, faulty = (
        forecast(plain, LearningCurves(plain, [], 1e6), SimulatedCluster(4, faults=rate)) for rate in (0, 20)
    )
    assert faulty.workers_lost > 0
    assert faulty.trial_hours > reliable.trial_hours
    assert sum(faulty.outcomes.values()) == sum(reliable.outcomes.values())


def test_a_recorded_trial_has_its_own_curve_and_another_trial_the_nearest_curve():
    plain = study(**PLAIN)
    simulation = Simulation(plain, LearningCurves(plain, [], 1e6), SimulatedCluster(1))
    jobs = [job for job in simulation.run().jobs() if job.role == "tuning"]
    cell = [job for job in jobs if job.cell == jobs[0].cell]
    low, high = (pick(cell, key=lambda job: job.point["training.lr"]) for pick in (min, max))
    settings = [{"training.lr": job.point["training.lr"], "training.steps": 90} for job in (low, high)]
    recorded = [
        RecordedTrial(
            job.key, job.cell, "finished", values, [(0.5, error), (1.0, error / 2)], 3.0, job.flops / 90
        )
        for job, values, error in zip((low, high), settings, (0.8, 0.4), strict=True)
    ]
    curves = LearningCurves(plain, recorded)
    assert curves.curve(low).error(0.5) == 0.8
    assert curves.curve(high).error(1.0) == 0.2
    assert curves.curve(low).seconds == 3.0
    second = sorted(cell, key=lambda job: job.point["training.lr"])[1]
    assert curves.curve(second).error(1.0) in (0.4, 0.2)
    assert curves.origins[low.key] == "exact"
    assert curves.origins[second.key] == "nearest"
