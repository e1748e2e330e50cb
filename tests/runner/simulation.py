"""A study conducted without Ray, MLflow or training: a store whose tail may be lost, workers with checkpoints."""

import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from loopscale.evaluate import Curve
from loopscale.records.model.note import Record
from loopscale.runner.decide.conductor import Conductor
from loopscale.runner.decide.job import Idle, Job
from loopscale.runner.messages import Report
from loopscale.runner.simulation.ledger import Ledger
from loopscale.studies.spec import Study
from loopscale.training.trial import Trial

TREE: dict[str, Any] = {
    "question": "Does a conductor keep its promises?",
    "fixed": {
        "task": {"kind": "linear_regression", "dim": 2, "points": 3},
        "model": {"kind": "looped", "width": 4, "heads": 1},
        "training": {"steps": 90, "eval_every": 10, "loops": 4, "window": 1},
    },
    "scientific": {"training.loops": [1, 2, 4], "training.window": [1, 2]},
    "where": "training.window <= training.loops",
    "nuisance": {"training.lr": {"real": [1e-5, 1.0], "scale": "log"}},
    "search": {"kind": "tpe", "trials": 12},
    "scheduler": {"kind": "asha", "first_rung": 10, "reduction": 3},
    "replicates": 2,
    "baselines": ["least_squares", "gradient_descent"],
}


def study(**changes: Any) -> Study:
    return Study.parse(TREE | changes)


class Store(Ledger):
    """MLflow as far as a conductor can tell. Its tail may be lost, as a queue's is when its driver dies."""

    def forget(self, keys: list[str]) -> None:
        """Whatever was said of these trials."""
        self.notes = [note for note in self.notes if note.key not in keys]

    def points(self) -> list[tuple[str, int]]:
        return [(note.key, note.step) for note in self.notes if "error" in note.metrics]


def error(job: Job, step: int) -> float:
    """Best at a learning rate of 0.01, better with steps, noisy in a way that depends on the trial alone."""
    assert isinstance(job.work, Trial)
    away = math.log10(job.work.training.lr) + 2
    return 0.1 + away**2 + job.work.training.loops / step + random.Random(f"{job.key}{step}").gauss(0, 0.01)


def diverges(job: Job) -> str:
    assert isinstance(job.work, Trial)
    return "diverged" if job.work.training.lr > 0.3 else ""


@dataclass
class Workers:
    """Actors with checkpoints: what a trial has said, it says again to the next driver."""

    count: int
    fate: Callable[[Job], str] = diverges
    histories: dict[str, list] = field(default_factory=dict)
    trained: list[tuple[str, int]] = field(default_factory=list)
    evaluated: list[str] = field(default_factory=list)

    def drive(self, conductor: Conductor, dies_after: int | None = None) -> bool:
        """Conduct to the end, or until the driver dies; whether it got to the end."""
        active: list[Job] = []
        reports = 0
        while True:
            while len(active) < self.count and isinstance(job := conductor.next(), Job):
                active.append(job)
                history = self.histories.get(job.key) if job.order == "train" else None
                if history and not conductor.report(job.key, Report(tuple(history))):
                    active.remove(job)
            if not active:
                return conductor.next() is Idle.DONE
            job = active.pop(0)
            reports += 1
            if reports == dies_after:
                return False
            said = self._step(job)
            if said is None:
                conductor.lost(job.key, "its host caught fire")
            elif conductor.report(job.key, said):
                active.append(job)

    def _step(self, job: Job) -> Report | None:
        if job.order != "train":
            return self._finished(job)
        history = self.histories.setdefault(job.key, [])
        step = history[-1][0] + 10 if history else 10
        if step > job.steps:
            return self._finished(job)
        if outcome := self.fate(job):
            return None if outcome == "dies" else Report(outcome=outcome, detail="so it was to be")
        self.trained.append((job.key, step))
        history.append((step, {"error": error(job, step), "error_last": 0.0}))
        return Report((history[-1],))

    def _finished(self, job: Job) -> Report:
        self.evaluated.append(job.key)
        ones = np.ones((2, 2))
        return Report(outcome="finished", metrics={"evaluate/error": 1.0}, curve=Curve(ones, ones, ones))


def end(records: list[Record]) -> set[tuple]:
    """All that two studies must have in common to be called equal."""
    return {
        (r.key, r.cell, r.role, r.number, r.outcome, r.status, r.step, tuple(r.rungs.items()))
        for r in records
    }


def complete(
    study: Study, workers: Workers, store: Store, deaths: random.Random | None = None, unheard: int = 0
) -> list[Record]:
    """The records of the study once it has ended, its driver having died now and then.

    Of the trials begun last up to `unheard` are not known to the store at all, others after them are.
    """
    while not workers.drive(Conductor(study, store.records(), store), deaths and deaths.randint(1, 60)):
        if not deaths:
            continue
        for _ in range(deaths.randint(0, 5)):
            if store.notes:
                store.notes.pop()
        latest = list(dict.fromkeys(note.key for note in store.notes))[-2 * unheard :]
        store.forget(deaths.sample(latest, min(deaths.randint(0, unheard), len(latest))))
    return store.records()
