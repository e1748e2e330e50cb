"""Callbacks of a run, without Ray: what they see, and what an exception in a callback does."""

from collections import Counter

import pytest

from loopscale.errors import CallbackError
from loopscale.runner.callbacks import Callback, Callbacks
from loopscale.runner.decide.conductor import Conductor
from tests.runner.simulated_study import Store, Workers, study


class Seen(Callback):
    def __init__(self) -> None:
        self.steps, self.ends = Counter[tuple[str, int]](), Counter[str]()
        self.reports, self.closed = 0, 0

    def on_report(self, job, report) -> None:
        self.reports += 1
        self.steps.update((job.key, step) for step, _ in report.progress)

    def on_trial_end(self, job, report) -> None:
        assert job.state == "over"
        assert job.outcome == report.outcome
        self.ends[job.key] += 1

    def on_end(self) -> None:
        self.closed += 1


class Failing(Seen):
    def on_report(self, job, report) -> None:
        super().on_report(job, report)
        raise ZeroDivisionError("one\nfault")


def test_callbacks_see_every_validation_and_one_end_of_every_trial_and_baseline():
    seen, store = Seen(), Store()
    conductor = Conductor(study(), [], store)
    conductor.services.observer = callbacks = Callbacks([seen])
    callbacks.start(conductor)
    assert Workers(2).drive(conductor)
    callbacks.end()
    callbacks.raise_failure()
    jobs = {job.key: job for job in conductor.jobs()}
    assert seen.ends == Counter(jobs.keys())
    assert {key for key, _ in seen.steps} == {key for key, job in jobs.items() if job.step}
    last = {key: max(step for other, step in seen.steps if other == key) for key, _ in seen.steps}
    assert all(last[key] == jobs[key].step for key in last)
    assert seen.closed == 1


def test_an_exception_in_a_callback_stops_the_study_and_names_the_callback():
    before, failing, after = Seen(), Failing(), Seen()
    conductor = Conductor(study(), [], Store())
    conductor.services.observer = callbacks = Callbacks([before, failing, after])
    callbacks.start(conductor)
    Workers(2).drive(conductor)
    callbacks.end()
    assert conductor.stopping
    assert [each.reports for each in (before, failing, after)] == [1, 1, 0]
    assert [each.closed for each in (before, failing, after)] == [1, 1, 1]
    with pytest.raises(CallbackError) as caught:
        callbacks.raise_failure()
    assert str(caught.value) == "the callback Failing.on_report raised ZeroDivisionError: one fault"
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
