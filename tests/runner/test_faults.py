"""Whose fault a lost worker is: a host's death is counted, and costs the trial none of its retries."""

import numpy as np
import pytest

from loopscale.evaluate import Curve
from loopscale.runner.decide.conductor import LOST_HOSTS, RETRIES, Conductor
from loopscale.runner.decide.job import Idle, Job
from loopscale.runner.messages import Report
from loopscale.runner.on_ray.faults import Fault, fault
from tests.runner.simulation import Store, study

ONE = {
    "scientific": {},
    "where": "",
    "nuisance": {},
    "replicates": 1,
    "baselines": [],
    "scheduler": {"kind": "none"},
}


def lose(conductor: Conductor, times: int, whose: Fault) -> None:
    for _ in range(times):
        job = conductor.next()
        assert isinstance(job, Job)
        conductor.report(job.key, Report())  # it has said something, so that workers can start here
        conductor.lost(job.key, "gone", whose)


def test_a_trial_whose_hosts_die_again_and_again_is_still_finished():
    store = Store()
    conductor = Conductor(study(**ONE), [], store)
    lose(conductor, 10, "host")
    lose(conductor, RETRIES, "worker")
    job = conductor.next()
    assert isinstance(job, Job)
    conductor.report(job.key, Report(outcome="finished"))
    (record,) = store.records()
    assert (record.outcome, record.tags["lost_hosts"], record.tags["retries"]) == ("finished", "10", "3")


@pytest.mark.parametrize(("whose", "limit"), [("worker", RETRIES), ("host", LOST_HOSTS)])
def test_no_trial_is_tried_for_ever(whose: Fault, limit: int):
    store = Store()
    lose(Conductor(study(**ONE), [], store), limit + 1, whose)
    (record,) = store.records()
    assert record.outcome == "lost"
    assert f"died {limit + 1} times; gone" in record.tags["detail"]


def test_what_was_lost_under_an_earlier_driver_is_still_counted():
    store = Store()
    lose(Conductor(study(**ONE), [], store), 2, "host")
    lose(Conductor(study(**ONE), store.records(), store), 3, "worker")
    (record,) = store.records()
    assert (record.tags["lost_hosts"], record.tags["retries"]) == ("2", "3")


@pytest.mark.parametrize(
    ("reason", "whose"),
    [
        ("The actor died because its node has died. Node Id: 7aa0. the node was marked dead", "host"),
        ("ray.exceptions.ActorUnavailableError: The actor 02 is unavailable: rpc error 14", "host"),
        ("RayTaskError: StorageUnavailable: cannot write to s3://b (timeout); mend it", "host"),
        ("OSError: [Errno 28] No space left on device", "host"),
        ("The actor is dead because its worker process has died. Worker exit type: SYSTEM_ERROR", "worker"),
        ("ModuleNotFoundError: No module named 'torch'", "worker"),
        ("", "worker"),
    ],
)  # fmt: skip
def test_whose_fault_it_was_is_read_off_the_reason(reason: str, whose: Fault):
    assert fault(reason) == whose


def test_a_checkpoint_that_a_lost_host_put_back_is_trained_to_the_end_again():
    store = Store()
    conductor = Conductor(study(**ONE), [], store)
    steps = {"at": 30}
    conductor.reached = lambda key: steps["at"]
    lose(conductor, 1, "host")
    job = conductor.next()
    assert isinstance(job, Job)
    ones = np.ones((2, 2))
    curve = Curve(ones, ones, ones)
    conductor.report(job.key, Report(((90, {"error": 0.5, "error_last": 0.5}),)))
    conductor.report(job.key, Report(outcome="finished", curve=curve))
    again = conductor.next()
    assert again is job
    assert job.order == "train"
    steps["at"] = 90
    conductor.report(job.key, Report(tuple((step, {"error": 9.0}) for step in (40, 90))))
    conductor.report(job.key, Report(outcome="finished", curve=curve))
    assert conductor.next() is Idle.DONE
    (record,) = store.records()
    assert (record.outcome, record.status, record.error) == ("finished", "FINISHED", 0.5)
    assert store.points() == [(job.key, 90)], "what is recorded is not recorded again"


def test_why_a_worker_was_lost_is_no_reason_once_its_trial_has_finished():
    store = Store()
    conductor = Conductor(study(**ONE), [], store)
    lose(conductor, 1, "host")
    job = conductor.next()
    assert isinstance(job, Job)
    assert conductor.reasons == {job.key: "gone"}
    ones = np.ones((2, 2))
    conductor.report(job.key, Report(outcome="finished", curve=Curve(ones, ones, ones)))
    assert conductor.reasons == {}
    assert store.records()[0].tags["lost_reason"] == "gone"
