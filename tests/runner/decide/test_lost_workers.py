"""Lost workers: retries of their trials, and the separate count of dead hosts, which are not the trial's fault."""

import pytest

from loopscale.runner.decide.conductor import MAX_LOST_HOSTS, MAX_RETRIES, Conductor
from loopscale.runner.decide.job import CauseOfDeath, Idle, Job, Report
from tests.runner.simulated_study import CURVE, Store, study

ONE_TRIAL = {
    "scientific": {},
    "where": "",
    "nuisance": {},
    "replicates": 1,
    "baselines": [],
    "scheduler": {"kind": "none"},
}


def lose(conductor: Conductor, times: int, fault: CauseOfDeath) -> None:
    for _ in range(times):
        job = conductor.start_next()
        assert isinstance(job, Job)
        conductor.report(job.key, Report())  # so that the study sees that workers can start
        conductor.report_lost(job.key, "gone", fault)


def test_a_trial_whose_hosts_die_repeatedly_still_finishes():
    store = Store()
    conductor = Conductor(study(**ONE_TRIAL), [], store)
    lose(conductor, 10, "host")
    lose(conductor, MAX_RETRIES, "worker")
    job = conductor.start_next()
    assert isinstance(job, Job)
    conductor.report(job.key, Report(outcome="finished"))
    (record,) = store.records()
    assert (record.outcome, record.tags["lost_hosts"], record.tags["retries"]) == ("finished", "10", "3")


@pytest.mark.parametrize(("fault", "limit"), [("worker", MAX_RETRIES), ("host", MAX_LOST_HOSTS)])
def test_the_number_of_attempts_is_limited(fault: CauseOfDeath, limit: int):
    store = Store()
    lose(Conductor(study(**ONE_TRIAL), [], store), limit + 1, fault)
    (record,) = store.records()
    assert record.outcome == "lost"
    assert f"died {limit + 1} times; gone" in record.tags["detail"]


def test_losses_under_an_earlier_driver_still_count():
    store = Store()
    lose(Conductor(study(**ONE_TRIAL), [], store), 2, "host")
    lose(Conductor(study(**ONE_TRIAL), store.records(), store), 3, "worker")
    (record,) = store.records()
    assert (record.tags["lost_hosts"], record.tags["retries"]) == ("2", "3")


def test_a_finished_trial_whose_checkpoint_a_lost_host_overwrote_is_trained_again():
    store = Store()
    conductor = Conductor(study(**ONE_TRIAL), [], store)
    checkpoint = {"step": 30}
    conductor.services.checkpoint_step = lambda key: checkpoint["step"]
    lose(conductor, 1, "host")
    job = conductor.start_next()
    assert isinstance(job, Job)
    conductor.report(job.key, Report(((90, {"error": 0.5, "error_last": 0.5}),)))
    conductor.report(job.key, Report(outcome="finished", curve=CURVE))
    again = conductor.start_next()
    assert again is job
    assert job.order_kind == "train"
    checkpoint["step"] = 90
    conductor.report(job.key, Report(tuple((step, {"error": 9.0}) for step in (40, 90))))
    conductor.report(job.key, Report(outcome="finished", curve=CURVE))
    assert conductor.start_next() is Idle.DONE
    (record,) = store.records()
    assert (record.outcome, record.status, record.error) == ("finished", "FINISHED", 0.5)
    assert store.points() == [(job.key, 90)], "the recorded step was recorded again"


def test_the_reason_of_a_lost_worker_is_dropped_after_its_trial_has_finished():
    store = Store()
    conductor = Conductor(study(**ONE_TRIAL), [], store)
    lose(conductor, 1, "host")
    job = conductor.start_next()
    assert isinstance(job, Job)
    assert conductor.reasons == {job.key: "gone"}
    conductor.report(job.key, Report(outcome="finished", curve=CURVE))
    assert conductor.reasons == {}
    assert store.records()[0].tags["lost_reason"] == "gone"
