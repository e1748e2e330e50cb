"""A driver keeps little of its ended trials, because it may have 100,000 of them."""

import gc
from collections import Counter
from types import FunctionType, ModuleType

import pytest
from optuna.trial import FrozenTrial
from typing_extensions import override

from loopscale.records.model import Note
from loopscale.runner.decide.cell_run import TunedPoint
from loopscale.runner.decide.conductor import MOST_WAITING_NOTES, Conductor
from loopscale.runner.decide.job import Idle, Job, Report
from tests.runner.simulated_study import CURVE, TREE, Workers, study

KEPT = {Job, TunedPoint, FrozenTrial}
"""Classes of the objects that a driver keeps for an ended trial, besides values of Python."""


class DistantStore:
    """Takes all notes at once, and keeps none."""

    backlog, away_since = 0, None

    def write(self, note: Note) -> None:
        pass

    def flush(self, timeout: float) -> bool:
        return True


class ForgetfulWorkers(Workers):
    @override
    def _evaluate(self, job: Job) -> Report:
        return Report(outcome="finished", metrics={"evaluate/error": 1.0}, curve=CURVE)


def reachable(root: object) -> Counter[type]:
    """Number of objects of each class that are reachable from `root`, without classes and the globals of functions."""
    found, waiting = dict[int, object](), [root]
    while waiting:
        each = waiting.pop()
        if id(each) not in found and not isinstance(each, type | FunctionType | ModuleType):
            found[id(each)] = each
            waiting += gc.get_referents(each)
    return Counter(map(type, found.values()))


class SlowStore(DistantStore):
    """Takes notes so slowly that the most notes wait."""

    backlog = MOST_WAITING_NOTES


@pytest.mark.parametrize(("store", "running"), [(DistantStore(), 4), (SlowStore(), 1)], ids=["fast", "slow"])
def test_trials_start_one_at_a_time_while_too_many_notes_wait(store: DistantStore, running: int):
    conductor = Conductor(study(search={"kind": "random", "trials": 30}), [], store)
    started = [conductor.start_next() for _ in range(4)]
    assert conductor.running_count == running == sum(isinstance(each, Job) for each in started)
    assert started[running:] == [Idle.WAIT] * (4 - running)


def test_an_ended_trial_leaves_a_job_a_point_and_a_trial_of_optuna():
    short = TREE["fixed"] | {"training": TREE["fixed"]["training"] | {"steps": 10}}
    changes = {"scientific": {}, "where": "", "scheduler": {"kind": "none"}, "baselines": []}
    conductor = Conductor(
        study(fixed=short, search={"kind": "random", "trials": 30}, **changes), [], DistantStore()
    )
    workers, kept = ForgetfulWorkers(1, fate=lambda _: ""), list[Counter[type]]()
    for trials in (10, 20):
        while conductor.counts()["finished"] < trials:
            job = conductor.start_next()
            assert not isinstance(job, Idle)
            while conductor.report(job.key, workers.work(job) or Report()):
                pass
        kept.append(reachable(conductor))
    grown = {kind: number for kind, number in (kept[1] - kept[0]).items() if number >= 10}
    ours = {kind: number for kind, number in grown.items() if kind.__module__ not in ("builtins", "datetime")}
    assert ours == dict.fromkeys(KEPT, 10)
    assert grown[dict] <= 10 * 11
