"""Trials that were out of memory run again when the study has other resources."""

from typing import Any

import pytest

from loopscale.records.model import Record
from loopscale.runner.decide.job import Job
from loopscale.studies.spec import Study
from loopscale.training.trial import Trial
from tests.runner.simulated_study import Store, Workers, complete, study


def limited(**resources: Any) -> Study:
    return study(scheduler={"kind": "none"}, search={"kind": "random", "trials": 3}, resources=resources)


def outcomes(records: list[Record]) -> set[str]:
    return {record.outcome for record in records if record.role != "baseline"}


def too_large(job: Job) -> str:
    return "out_of_memory" if isinstance(job.work, Trial) else ""


@pytest.mark.parametrize(
    ("before", "after", "again"),
    [
        ({"memory": 0.2}, {"memory": 8}, True),
        ({"memory": 0.2}, {}, True),
        ({}, {"gpu": 1}, True),
        ({"gpu": 0.5}, {"gpu": 1}, True),
        ({"memory": 0.2}, {"memory": 0.2, "cpu": 2}, False),
        ({"memory": 0.2}, {"memory": 0.1}, False),
        ({}, {"memory": 8}, False),
    ],
)
def test_trials_out_of_memory_run_again_with_more_of_it(before: Any, after: Any, again: bool):
    store = Store()
    assert outcomes(complete(limited(**before), Workers(1, too_large), store)) == {"out_of_memory"}
    first = {record.key for record in store.records()}
    workers = Workers(1, fate=lambda _: "")
    records = complete(limited(**after), workers, store)
    assert outcomes(records) == ({"finished"} if again else {"out_of_memory"})
    assert first <= {record.key for record in records}
    assert bool(workers.trained) is again


def test_trials_that_are_out_of_memory_again_stay_so_until_the_next_change():
    store = Store()
    complete(limited(memory=0.2), Workers(1, too_large), store)
    complete(limited(memory=8), Workers(1, too_large), store)
    workers = Workers(1, fate=lambda _: "")
    complete(limited(memory=8), workers, store)
    assert not workers.trained
    assert outcomes(complete(limited(memory=9), workers, store)) == {"finished"}
