"""A study without Ray, MLflow or training: records whose last notes may be lost, and workers with checkpoints."""

import math
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from loopscale.evaluate import Curve
from loopscale.records.model import Record
from loopscale.runner.decide.conductor import Conductor
from loopscale.runner.decide.job import Idle, Job, Report
from loopscale.runner.simulation.simulate import MemoryRecords
from loopscale.studies.spec import Study
from loopscale.training.trial import Trial
from tests.tuned_settings import without_tuned

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
CURVE = Curve(*[np.ones((2, 2))] * 3)


def study(**changes: Any) -> Study:
    return Study.parse(without_tuned(TREE | changes))


class Store(MemoryRecords):
    """MLflow as a conductor sees it."""

    def forget(self, keys: list[str]) -> None:
        """Forget all notes of these trials."""
        self.notes = [note for note in self.notes if note.key not in keys]
        self.delivered = min(self.delivered, len(self.notes))

    def points(self) -> list[tuple[str, int]]:
        """(trial, step) of all recorded errors."""
        return [(note.key, note.step) for note in self.notes if "error" in note.metrics]


def error(job: Job, step: int) -> float:
    """Lowest at a learning rate of 0.01, falling with the steps, with noise that depends on the trial only."""
    assert isinstance(job.work, Trial)
    distance = math.log10(job.work.training.lr) + 2
    noise = random.Random(f"{job.key}{step}").gauss(0, 0.01)
    return 0.1 + distance**2 + job.work.training.loops / step + noise


def diverges(job: Job) -> str:
    assert isinstance(job.work, Trial)
    return "diverged" if job.work.training.lr > 0.3 else ""


@dataclass
class Workers:
    """Workers with checkpoints. They repeat a trial's reports to the next driver."""

    count: int
    fate: Callable[[Job], str] = diverges
    """Outcome of a trial, or "dies" for the death of its worker. Empty for a trial that goes on."""
    histories: dict[str, list] = field(default_factory=dict)
    trained: list[tuple[str, int]] = field(default_factory=list)
    evaluated: list[str] = field(default_factory=list)

    def drive(self, conductor: Conductor, dies_after: int | None = None) -> bool:
        """Run the study until its end, or until the driver dies after so many reports. Returns whether it ended."""
        active: list[Job] = []
        reports = 0
        while True:
            while len(active) < self.count and isinstance(job := conductor.start_next(), Job):
                active.append(job)
                history = self.histories.get(job.key) if job.order_kind == "train" else None
                if history and not conductor.report(job.key, Report(tuple(history))):
                    active.remove(job)
            if not active:
                return conductor.start_next() is Idle.DONE
            job = active.pop(0)
            reports += 1
            if reports == dies_after:
                return False
            report = self.work(job)
            if report is None:
                conductor.report_lost(job.key, "its host caught fire")
            elif conductor.report(job.key, report):
                active.append(job)

    def work(self, job: Job) -> Report | None:
        """The worker's next report on the job. None if the worker dies."""
        if job.order_kind != "train":
            return self._evaluate(job)
        history = self.histories.setdefault(job.key, [])
        step = history[-1][0] + 10 if history else 10
        if step > job.steps:
            return self._evaluate(job)
        if outcome := self.fate(job):
            return None if outcome == "dies" else Report(outcome=outcome, detail="as planned by the test")
        self.trained.append((job.key, step))
        history.append((step, {"error": self.error_at(job, step), "error_last": 0.0}))
        return Report((history[-1],))

    def error_at(self, job: Job, step: int) -> float:
        """The validation error at a step."""
        return error(job, step)

    def _evaluate(self, job: Job) -> Report:
        self.evaluated.append(job.key)
        return Report(outcome="finished", metrics={"evaluate/error": 1.0}, curve=CURVE)


def ends(records: list[Record]) -> set[tuple]:
    """Identity and end of each trial: the parts that two equal studies share."""
    return {
        (r.key, r.cell, r.role, r.number, r.outcome, r.status, r.step, tuple(r.rungs.items()))
        for r in records
    }


def resumed(study: Study, store: Store) -> Conductor:
    """A driver that knows the records only."""
    return store.resumed(study)


def complete(
    study: Study, workers: Workers, store: Store, deaths: random.Random | None = None, forgotten: int = 0
) -> list[Record]:
    """Run the study to its end. Returns its records.

    Parameters
    ----------
    deaths
        Random moments at which the driver dies. None for a driver that lives.
    forgotten
        Largest number of recent trials that the store forgets with each death, while it keeps later trials.
    """
    while not workers.drive(resumed(study, store), deaths and deaths.randint(1, 60)):
        if not deaths:
            continue
        store.lose_last(deaths.randint(0, 5))
        recent = list(dict.fromkeys(note.key for note in store.notes))[-2 * forgotten :]
        store.forget(deaths.sample(recent, min(deaths.randint(0, forgotten), len(recent))))
    return store.records()


def start_jobs(count: int) -> tuple[Conductor, list[Job]]:
    """A conductor of a study without pruning and baselines, and its first jobs."""
    conductor = Conductor(study(scheduler={"kind": "none"}, baselines=[]), [], Store())
    return conductor, [job for _ in range(count) if isinstance(job := conductor.start_next(), Job)]


def progress_at(step: int, saved: bool = True) -> Report:
    """A report of progress to this step, with or without a checkpoint."""
    return Report(((step, {"error": 1.0, "error_last": 0.0}),), saved=saved)
