"""The rules of `on_error`, and hosts on which trials fail again and again."""

from typing import Any

import pytest

from loopscale.notation.mistakes import Mistakes
from loopscale.runner.decide.conductor import MAX_RETRIES, Conductor, NoWorkers
from loopscale.runner.decide.error_rules import MOST_HOST_FAILURES
from loopscale.runner.decide.job import Job, Report
from loopscale.runner.simulation.simulate import MemoryRecords
from tests.runner.simulated_study import CURVE, study

FAILED = Report(outcome="failed", detail="Traceback\nOSError: Connection reset by peer", host="a")


def conductor(**changes: Any) -> tuple[Conductor, MemoryRecords]:
    records = MemoryRecords()
    plain = {"scheduler": {"kind": "none"}, "search": {"kind": "random", "trials": 12}, "baselines": []}
    made = Conductor(study(**plain | changes), [], records)
    made.services.live_hosts = lambda: {"a", "b"}
    return made, records


def start(made: Conductor) -> Job:
    job = made.start_next()
    assert isinstance(job, Job)
    return job


def test_an_error_of_the_code_fails_without_a_rule():
    made, _ = conductor()
    job = start(made)
    assert not made.report(job.key, FAILED)
    assert (job.outcome, job.retries) == ("failed", 0)


def test_retry_lets_another_worker_go_on_up_to_a_limit():
    made, _ = conductor(on_error={"Connection reset": "retry"})
    job = start(made)
    for number in range(1, MAX_RETRIES + 1):
        assert not made.report(job.key, FAILED)
        assert (job.state, job.outcome, job.retries) == ("waiting", "", number)
        assert start(made) is job
    made.report(job.key, FAILED)
    assert (job.state, job.outcome) == ("over", "failed")


def test_a_retried_trial_can_finish():
    made, _ = conductor(on_error={"reset|refused": "retry"})
    job = start(made)
    made.report(job.key, FAILED)
    assert start(made) is job
    made.report(job.key, Report(outcome="finished", curve=CURVE, metrics={"evaluate/error": 0.5}, host="a"))
    assert (job.outcome, job.retries) == ("finished", 1)


def test_fail_ends_a_trial_whose_worker_has_died():
    made, _ = conductor(on_error={"illegal instruction": "fail"})
    job = start(made)
    made.report_lost(job.key, "the worker died: illegal instruction", "worker", "a")
    assert (job.state, job.outcome) == ("over", "failed")


def test_the_first_rule_that_fits_counts():
    made, _ = conductor(on_error={"peer": "fail", "Connection": "retry"})
    job = start(made)
    made.report(job.key, FAILED)
    assert job.outcome == "failed"


def test_exclude_host_blames_the_host_and_not_the_trial():
    made, _ = conductor(on_error={"Connection reset": "exclude_host"})
    job = start(made)
    made.report(job.key, FAILED)
    assert made.excluded_hosts == {"a": "OSError: Connection reset by peer"}
    assert (job.state, job.retries, job.lost_hosts) == ("waiting", 0, 1)
    assert made.ended_early() == [
        "the host a got no more trials in this run: OSError: Connection reset by peer"
    ]


def test_the_last_host_is_never_excluded():
    made, _ = conductor(on_error={"Connection reset": "exclude_host"})
    made.services.live_hosts = lambda: {"a"}
    job = start(made)
    made.report(job.key, FAILED)
    assert (made.excluded_hosts, job.state, job.retries) == ({}, "waiting", 1)


@pytest.mark.parametrize("other_is_good", [True, False])
def test_a_host_with_many_failures_in_a_row_is_excluded_if_another_host_is_good(other_is_good: bool):
    made, _ = conductor()
    if other_is_good:
        report = Report(outcome="finished", curve=CURVE, metrics={"evaluate/error": 0.5}, host="b")
        made.report(start(made).key, report)
    for number in range(MOST_HOST_FAILURES):
        assert not made.excluded_hosts, number
        made.report(start(made).key, FAILED)
    assert set(made.excluded_hosts) == ({"a"} if other_is_good else set())


@pytest.mark.parametrize(
    ("rules", "mistake"),
    [
        ({"(": "retry"}, "is no regular expression (missing ): (); escape its special characters"),
        ({"(?=x)y": "retry"}, "write a pattern of RE2, without look-around"),
        ({r"(a)\1": "retry"}, "write a pattern of RE2, without look-around"),
        ({"((a{100}){100}){100}": "retry"}, "write a pattern of RE2"),
        ({"": "retry"}, "an empty pattern fits every error"),
        ({"x": "ignore"}, "use one of retry, fail, exclude_host"),
        (["x"], "on_error"),
    ],
)
def test_a_wrong_rule_is_a_mistake_in_one_line(rules: object, mistake: str):
    with pytest.raises(Mistakes) as found:
        study(on_error=rules)
    assert mistake in str(found.value)
    assert str(found.value).count("\n") == 0


def test_a_pattern_with_nested_repeats_does_not_hold_the_driver_up():
    """Python's `re` needs 2 to the power of 3999 steps for this text."""
    made, _ = conductor(on_error={"(a+)+$": "retry"})
    job = start(made)
    made.report(job.key, Report(outcome="failed", detail="a" * 3999 + "!", host="a"))
    assert (job.state, job.outcome) == ("over", "failed")


def test_records_do_not_keep_the_rules():
    assert "on_error" not in study(on_error={"x": "retry"}).document()


UNFIT = Report(
    outcome="failed", detail="a trial on a got a GPU, and torch sees none", host="a", host_unfit=True
)


def test_a_host_without_its_gpu_gets_no_more_trials_and_the_trial_goes_on_elsewhere():
    made, records = conductor()
    job = start(made)
    assert not made.report(job.key, UNFIT)
    assert made.excluded_hosts == {"a": UNFIT.detail}
    assert (job.state, job.outcome, job.retries, job.lost_hosts) == ("waiting", "", 0, 1)
    assert start(made) is job
    (record,) = [record for record in records.records() if record.key == job.key]
    assert (record.outcome, record.tags["lost_reason"]) == ("running", UNFIT.detail)


def test_a_study_whose_only_host_has_no_gpu_stops_with_the_reason():
    made, _ = conductor()
    made.services.live_hosts = lambda: {"a"}
    job = start(made)
    made.report(job.key, UNFIT)
    assert (job.state, job.outcome) == ("waiting", "")
    with pytest.raises(NoWorkers, match="torch sees none"):
        made.start_next()


def test_a_finished_trial_whose_evaluation_meets_a_host_without_gpu_is_evaluated_elsewhere():
    made, _ = conductor()
    job = start(made)
    made.report(job.key, Report(outcome="finished", curve=CURVE, metrics={"evaluate/error": 0.5}, host="b"))
    made.evaluate_again(job.key)
    while start(made) is not job:
        pass
    made.report(job.key, UNFIT)
    assert (job.state, job.outcome) == ("over", "finished")
    assert start(made) is job
    assert job.order_kind == "evaluate"
