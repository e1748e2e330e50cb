"""Rules that end parts of a study early, and trials that a user stops."""

import random
from dataclasses import dataclass
from typing import Any

import pytest

from loopscale.notation.mistakes import Mistakes
from loopscale.records.model import STOP, STUDY, Note
from loopscale.records.study_records import stopped_trials
from loopscale.runner.decide.conductor import Conductor, TooManyFailures
from loopscale.runner.decide.job import Job, Report
from loopscale.studies.spec import Study
from tests.runner.simulated_study import Store, Workers, complete, ends, resumed, study


def plain(**changes: Any) -> Study:
    basis = {"scientific": {"training.loops": [2, 4]}, "scheduler": {"kind": "none"}, "baselines": []}
    return study(**basis | changes)


@dataclass
class TimedWorkers(Workers):
    """Every step of the training takes a minute; with a low learning rate, ten minutes."""

    def work(self, job: Job) -> Report | None:
        report = super().work(job)
        if not report or not report.progress:
            return report
        minutes = 10 if job.point["training.lr"] < 1e-3 else 1
        history = self.histories[job.key]
        history[-1] = (step := history[-1][0], history[-1][1] | {"seconds": 60.0 * minutes * step})
        return Report((history[-1],))


def test_a_search_ends_at_its_first_point_below_the_error():
    whole = complete(plain(), Workers(1), Store())
    store = Store()
    early = plain(stop={"error_below": 0.3})
    records = complete(early, Workers(1), store)
    for cell in early.cells():
        tuned = [r for r in records if r.cell == cell.key and r.role == "tuning"]
        good = [r.error < 0.3 and r.outcome == "finished" for r in tuned]
        assert good == [False] * (len(tuned) - 1) + [True]
        assert len([r for r in records if r.cell == cell.key and r.role == "replicate"]) == 2
    assert len(records) < len(whole)
    conductor = resumed(early, store)
    (line,) = conductor.ended_early()
    assert "stop.error_below 0.3 ended 2 searches (loops=2, loops=4) after" in line
    assert "of 24 points" in line
    assert sum(run.planned for run in conductor.cell_runs.values()) == len(records)


def test_a_lower_error_continues_the_search():
    store = Store()
    complete(plain(stop={"error_below": 0.3}), Workers(1), store)
    complete(plain(stop={"error_below": 1e-9}), Workers(1), store)
    tuned = [r for r in store.records() if r.role == "tuning"]
    assert len(tuned) == 2 * 12


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("stop", [{"error_below": 0.3}, {"trial_hours": 2}])
def test_a_killed_study_is_ended_early_as_the_uninterrupted_one(stop: dict[str, float], seed: int):
    early = plain(stop=stop)
    killed = complete(early, TimedWorkers(1), Store(), random.Random(seed))
    assert ends(killed) == ends(complete(early, TimedWorkers(1), Store()))


def test_a_trial_ends_after_its_hours_and_goes_on_with_more():
    store, workers = Store(), TimedWorkers(1)
    limited = plain(stop={"trial_hours": 2})
    stopped = [r for r in complete(limited, workers, store) if r.outcome == "stopped"]
    assert stopped
    assert {(r.step, r.status) for r in stopped} == {(20, "KILLED")}  # 20 steps of 10 minutes
    assert all(r.point["training.lr"] < 1e-3 for r in stopped)
    assert stopped[0].tags["detail"] == "stop.trial_hours 2: 3.33 hours of training at step 20"
    (line,) = resumed(limited, store).ended_early()
    assert line.startswith(f"stop.trial_hours 2 ended {len(stopped)} trial")
    trained = list(workers.trained)
    complete(limited, workers, store)
    assert workers.trained == trained, "a stopped trial was trained again"
    more = complete(plain(stop={"trial_hours": 20}), workers, store)
    assert {r.outcome for r in more if r.key in {s.key for s in stopped}} == {"finished"}
    assert len(set(workers.trained)) == len(workers.trained), "a step was trained twice"


def test_a_run_stops_once_too_many_trials_have_failed():
    fragile, store = plain(stop={"failures": "20%"}), Store()
    planned = fragile.planned
    failing = Workers(1, fate=lambda job: "failed")
    with pytest.raises(
        TooManyFailures, match=f"of {planned} planned trials have failed in this run, more than 0.2"
    ):
        complete(fragile, failing, store)
    failed = [r for r in store.records() if r.outcome == "failed"]
    assert len(failed) == planned // 5 + 1
    records = complete(fragile, Workers(1, fate=lambda job: ""), store)
    assert {r.outcome for r in records} == {"finished"}, "the next run trains failed trials again"
    assert ends(records) == ends(complete(fragile, Workers(1, fate=lambda job: ""), Store()))


def stop_first(conductor: Conductor) -> Job:
    """Start a trial, report once, and stop it."""
    job = conductor.start_next()
    assert isinstance(job, Job)
    assert conductor.report(job.key, Report(((10, {"error": 0.5, "error_last": 0.5}),)))
    conductor.writer.write(Note(STUDY, tags={STOP + job.key: "now"}))
    conductor.stopped = frozenset({job.key})
    return job


def test_a_trial_that_the_user_stops_ends_at_its_next_report_and_is_not_replaced():
    store = Store()
    job = stop_first(conductor := Conductor(plain(), [], store))
    assert not conductor.report(job.key, Report(((20, {"error": 0.4, "error_last": 0.4}),)))
    records = complete(plain(), Workers(1), store)
    (stopped,) = [r for r in records if r.outcome == "stopped"]
    assert (stopped.key, stopped.step, stopped.status) == (job.key, 20, "KILLED")
    assert stopped.tags["detail"] == "stopped by the user"
    assert len([r for r in records if r.role == "tuning"]) == 2 * 12
    (line,) = resumed(plain(), store).ended_early()
    assert line == (
        f"the user has stopped 1 trial ({job.key}); `loopscale run study --again {job.key}` trains one again"
    )


def test_a_stop_that_the_driver_did_not_see_holds_for_the_next_driver():
    store, workers = Store(), Workers(1)
    job = stop_first(Conductor(plain(), [], store))
    records = complete(plain(), workers, store)
    assert [r.key for r in records if r.outcome == "stopped"] == [job.key]
    assert job.key not in {key for key, _ in workers.trained}


def test_a_withdrawn_stop_trains_the_trial_again():
    store, workers = Store(), Workers(1)
    job = stop_first(Conductor(plain(), [], store))
    complete(plain(), workers, store)
    store.write(Note(STUDY, tags={STOP + job.key: ""}))
    assert stopped_trials({STOP + job.key: ""}) == frozenset()
    records = complete(plain(), workers, store)
    assert [r.outcome for r in records if r.key == job.key] in (["finished"], ["diverged"])


def test_a_stopped_replicate_is_not_replaced():
    store = Store()
    records = complete(plain(), Workers(1), store)
    replicate = next(r for r in records if r.role == "replicate")
    fresh = Store()
    fresh.write(Note(STUDY, tags={STOP + replicate.key: "now"}))
    records = complete(plain(), Workers(1), fresh)
    of_cell = [r for r in records if r.role == "replicate" and r.cell == replicate.cell]
    assert sorted((r.seed, r.outcome) for r in of_cell) == [(1, "stopped"), (2, "finished")]


@pytest.mark.parametrize(
    ("stop", "message"),
    [
        ({"failures": "many"}, "failures is 'many'"),
        ({"failures": 20}, "failures is 20"),
        ({"trial_hours": 0}, "stop.trial_hours is 0"),
        ({"error_bellow": 1}, "did you mean error_below"),
    ],
)
def test_a_wrong_rule_is_one_line(stop: dict[str, Any], message: str):
    with pytest.raises(Mistakes, match=message) as caught:
        plain(stop=stop)
    assert len(caught.value.items) == 1
