"""The memory of a driver grows little with its trials, because a driver may have 100,000 of them."""

import gc
import sys
from pathlib import Path

import pytest
from typing_extensions import override

from loopscale.records.stores.opening import open_store
from loopscale.records.writing.mlflow_writer import MlflowWriter
from loopscale.runner.decide.conductor import Conductor
from loopscale.runner.decide.job import Idle, Job, Report
from tests.runner.simulated_study import CURVE, TREE, Workers, study

MOST_BLOCKS = 75
"""Python objects that a driver may keep for an ended trial: its point, its measures, and its place in the search."""


class ForgetfulWorkers(Workers):
    """Workers that keep nothing of the trials, unlike real checkpoints on a disk."""

    @override
    def _evaluate(self, job: Job) -> Report:
        self.histories.pop(job.key)
        self.trained.clear()
        names = ("error", "error_last", "raw_error", "regret", "regret_last", "excess")
        return Report(outcome="finished", metrics={f"evaluate/{name}": 1.0 for name in names}, curve=CURVE)


@pytest.mark.slow
def test_an_ended_trial_leaves_few_objects_in_the_driver(tmp_path: Path):
    one_cell = study(
        fixed=TREE["fixed"] | {"training": TREE["fixed"]["training"] | {"steps": 10}},
        scientific={},
        where="",
        nuisance={"training.lr": {"real": [1e-3, 1e-2], "scale": "log"}},
        search={"kind": "random", "trials": 200},
        scheduler={"kind": "none"},
        baselines=[],
    )
    workers = ForgetfulWorkers(2)
    with MlflowWriter(open_store(tmp_path / "store", create=True), "study", {}) as writer:
        conductor, kept = Conductor(one_cell, [], writer), dict[int, int]()
        for trials in (100, 200):
            while conductor.counts()["finished"] < trials:
                job = conductor.start_next()
                assert not isinstance(job, Idle)
                while conductor.report(job.key, workers.work(job) or Report()):
                    pass
            assert writer.flush(120)
            gc.collect()
            kept[trials] = sys.getallocatedblocks()
    assert kept[200] - kept[100] <= MOST_BLOCKS * 100, kept
