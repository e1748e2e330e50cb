"""The adapters to Ray Tune, and the classification of Ray's reasons for the end of a worker."""

from dataclasses import dataclass
from types import SimpleNamespace

import pytest
from ray.tune.progress_reporter import TrialProgressCallback
from ray.tune.utils.callback import _create_default_callbacks

from loopscale.runner.decide.conductor import MAX_RETRIES, Conductor
from loopscale.runner.decide.job import CauseOfDeath, Idle, Job, Report
from loopscale.runner.decide.shares import Share
from loopscale.runner.on_ray.tune import (
    OUT_OF_MEMORY,
    NoTrialProgress,
    TuneScheduler,
    TuneSearcher,
    classify_fault,
    first_report,
    forget_ended,
)
from tests.runner.simulated_study import Store, progress_at, start_jobs, study

KILLED_BY_MONITOR = (
    "ActorDiedError: The actor died unexpectedly before finishing this task. Task was killed due to the node running "
    "low on memory. Memory on the node was 22.1GB / 23.0GB"
)
DIED = (
    "ActorDiedError: The actor is dead because its worker process has died. Worker exit type: SYSTEM_ERROR Worker "
    "exit detail: Worker unexpectedly exits with a connection error code 2. End of file. There are some potential "
    "root causes. (1) The process is killed by SIGKILL by OOM killer due to high memory usage. (2) ray stop --force "
    "is called."
)


@dataclass(frozen=True)
class SimpleTrial:
    trial_id: str


@pytest.mark.parametrize(
    ("reason", "fault"),
    [
        ("The actor died because its node has died. Node Id: 7aa0. the node was marked dead", "host"),
        ("ray.exceptions.ActorUnavailableError: The actor 02 is unavailable: rpc error 14", "host"),
        ("RayTaskError: StorageUnavailable: cannot write to s3://b (timeout); mend it", "host"),
        ("OSError: [Errno 28] No space left on device", "host"),
        ("The actor is dead because its worker process has died. Worker exit type: SYSTEM_ERROR", "worker"),
        ("ModuleNotFoundError: No module named 'torch'", "worker"),
        ("", "worker"),
    ],
)
def test_the_fault_is_classified_by_the_text_of_the_reason(reason: str, fault: CauseOfDeath):
    assert classify_fault(reason) == fault


def test_a_death_by_lack_of_memory_is_distinguished_from_other_deaths():
    assert classify_fault(KILLED_BY_MONITOR) == "memory"
    assert classify_fault("ray.exceptions.OutOfMemoryError: Task was killed") == "memory"
    assert classify_fault(DIED) == "worker", "Ray mentions the kernel for every death"
    assert classify_fault(f"{DIED}; {OUT_OF_MEMORY}") == "memory"


def test_a_trial_whose_workers_always_run_out_of_memory_ends_as_out_of_memory_and_is_not_repeated():
    store = Store()
    conductor = Conductor(study(baselines=[]), [], store)
    first = conductor.start_next()
    assert isinstance(first, Job)
    second = conductor.start_next()
    assert isinstance(second, Job)
    conductor.report(second.key, Report(outcome="diverged"))  # so that the study sees that workers can start
    for _ in range(MAX_RETRIES):
        conductor.report_lost(first.key, KILLED_BY_MONITOR, classify_fault(KILLED_BY_MONITOR))
        assert conductor.start_next() is first
    conductor.report_lost(first.key, KILLED_BY_MONITOR, classify_fault(KILLED_BY_MONITOR))
    (record,) = [record for record in store.records() if record.key == first.key]
    assert (record.outcome, record.status) == ("out_of_memory", "FAILED")
    resumed, started = Conductor(study(baselines=[]), store.records(), store), set[str]()
    for _ in range(100):
        job = resumed.start_next()
        if isinstance(job, Idle):
            break
        started.add(job.key)
        resumed.report(job.key, Report(outcome="diverged"))
    assert started
    assert first.key not in started


def test_a_trial_that_yielded_its_slot_and_runs_again_is_not_lost_when_tune_ends_its_first_run():
    conductor, (job, other) = start_jobs(2)
    searcher = TuneSearcher(conductor, job, lambda job: None, {"t1": job.key, "t2": other.key})  # pyright: ignore[reportArgumentType]
    scheduler = TuneScheduler(conductor, searcher)
    tune_trial = SimpleNamespace(trial_id="t1", config={"key": job.key})
    conductor.report(other.key, progress_at(50))
    conductor.services.share = Share(1, contested=True)
    assert scheduler.on_trial_result(None, tune_trial, {"report": progress_at(10)}) == scheduler.STOP
    conductor.services.share = Share(2)
    assert conductor.start_next() is job
    searcher.on_trial_complete("t1")
    assert (job.state, job.worker_deaths) == ("running", 0)
    searcher.on_trial_complete("t2")
    assert (other.state, other.worker_deaths) == ("waiting", 1)


def test_the_run_names_the_first_report_that_it_waits_for():
    _, (job, other) = start_jobs(2)
    baseline = next(iter(Conductor(study(), [], Store()).baselines.values()))
    every = job.work.training.eval_every
    assert first_report([]) == "the first worker"
    assert first_report([baseline]) == "the first evaluation of an algorithm"
    assert first_report([job, baseline]) == f"the first validation, at step {every} of {job.steps}"
    job.step, other.step = 2 * every, 3 * every
    assert first_report([job, other]) == f"the first validation, at step {3 * every} of {job.steps}"


def test_no_callback_of_tune_keeps_ended_trials():
    progress, trial = NoTrialProgress(), SimpleNamespace(last_result={})
    kept = [each for each in _create_default_callbacks([progress]) if isinstance(each, TrialProgressCallback)]
    assert kept == [progress]
    before = repr(vars(progress))
    progress.on_trial_result(1, [trial], trial, {"done": True})
    progress.on_trial_complete(1, [trial], trial)
    progress.on_trial_error(1, [trial], trial)
    assert repr(vars(progress)) == before


def test_tune_keeps_only_trials_that_are_not_over_and_the_last_one():
    names = ("over", "failed", "live", "stopping", "last")
    over, failed, live, stopping, last = trials = [SimpleTrial(name) for name in names]
    controller = SimpleNamespace(
        get_trials=lambda: trials,
        _stopped_trials={over, stopping, last},
        _failed_trials={failed},
        _live_trials={live},
        _trial_to_actor={live: "its worker", stopping: "a worker that stops"},
        _trials_to_cache={over, live},
        _trial_metadata=dict.fromkeys(names, "{}"),
    )
    for _ in range(2):
        forget_ended(controller)
        assert trials == [live, stopping, last]
        assert controller._stopped_trials == {stopping, last}
        assert not controller._failed_trials
        assert controller._trials_to_cache == {live}
        assert set(controller._trial_metadata) == {"live", "stopping", "last"}
