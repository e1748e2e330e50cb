"""The use of a study, and its stop before the budget is exceeded, on a simulated clock."""

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from loopscale.records.model import Note
from loopscale.runner.decide.budget import (
    LINGER_SECONDS,
    MIN_WORK_SECONDS,
    NOTE_SECONDS,
    STOP_SECONDS,
    BudgetSpent,
    Meter,
)
from loopscale.runner.decide.conductor import Conductor
from loopscale.runner.decide.job import Idle, Job
from loopscale.studies.schema import Budget, Resources
from loopscale.studies.spec import Study
from tests.runner import simulated_study

SMALL: dict[str, Any] = {
    "scientific": {"training.loops": [1, 2]},
    "search": {"kind": "random", "trials": 4},
    "resources": {"cpu": 2, "gpu": 0.5},
    "scheduler": {"kind": "none"},
    "baselines": [],
}


def small(**changes: Any) -> Study:
    return simulated_study.study(**SMALL | changes)


@dataclass
class Machines:
    """Machines on a simulated clock. Their bill is computed from the held workers, without the meter."""

    study: Study
    chance: random.Random
    workers: simulated_study.Workers
    store: simulated_study.Store = field(default_factory=simulated_study.Store)
    notes: list[Note] = field(default_factory=list)
    now: float = 0.0
    bill: dict[str, float] = field(
        default_factory=lambda: {"core_hours": 0.0, "gpu_hours": 0.0, "hours": 0.0}
    )

    @property
    def recorded(self) -> dict[str, float]:
        return json.loads(self.notes[-1].tags["spent"])["used"] if self.notes else {}

    def meter(self) -> Meter:
        return Meter(
            self.study.budget, self.study.resources, self.notes.append, lambda: self.now, self.recorded
        )

    def pass_time(self, seconds: float, held: int, driver: bool = True) -> None:
        self.now += seconds
        resources = self.study.resources
        self.bill["core_hours"] += seconds * held * resources.cpu / 3600
        self.bill["gpu_hours"] += seconds * held * resources.gpu / 3600
        self.bill["hours"] += seconds * driver / 3600

    def drive(self, life: float = float("inf")) -> bool:
        """Run a driver that dies after `life` seconds. Returns whether the study is over. Raises BudgetSpent."""
        meter = self.meter()
        conductor = self.store.resumed(self.study)
        conductor.meter = meter
        dies, active = self.now + life, dict[str, tuple[Job, float, float]]()
        while True:
            held = sum(ready <= self.now for _, ready, _ in active.values())
            try:
                meter.update(held, len(active))
                if meter.must_stop:
                    raise BudgetSpent
                while len(active) < self.workers.count and isinstance(job := conductor.start_next(), Job):
                    ready = self.now + self.chance.choice((0, 1, 40))  # a free slot, or a new machine
                    active[job.key] = job, ready, ready + self.chance.uniform(3, 12)
                if not active and conductor.start_next() is Idle.DONE:
                    meter.close()
                    return True
            except BudgetSpent:
                self.pass_time(self.chance.uniform(1, STOP_SECONDS - 0.2), held)
                conductor.interrupt()
                meter.close()
                raise
            self.pass_time(0.25, sum(ready <= self.now for _, ready, _ in active.values()))
            for key, (job, ready, due) in list(active.items()):
                if self.now >= due and self._report(conductor, job):
                    del active[key]
                elif self.now >= due:
                    active[key] = job, ready, self.now + self.chance.uniform(1, 6)
            if self.now >= dies:
                self.pass_time(self.chance.uniform(0, LINGER_SECONDS), held, driver=False)
                return False

    def _report(self, conductor: Conductor, job: Job) -> bool:
        report = None if self.chance.random() < 0.05 else self.workers.work(job)
        if report is None:
            conductor.report_lost(job.key, "its host caught fire")
        return report is None or not conductor.report(job.key, report)

    def run_drivers(self, deaths: bool = True) -> bool:
        """Run drivers until the study is over or its budget is spent. Returns whether the study is over."""
        try:
            while not self.drive(self.chance.uniform(5, 120) if deaths else float("inf")):
                self.now += self.chance.uniform(0, 1000)
            return True
        except BudgetSpent:
            return False


def machines(study: Study, seed: int, count: int = 4) -> Machines:
    return Machines(study, random.Random(seed), simulated_study.Workers(count))


@pytest.mark.quick_cases(12)
@pytest.mark.parametrize("limit", [{"core_hours": 0.15}, {"gpu_hours": 0.04}, {"hours": 0.025}])
@pytest.mark.parametrize("seed", range(20))
def test_a_study_never_uses_more_than_its_budget_although_drivers_and_workers_die(
    seed: int, limit: dict[str, float]
):
    site = machines(small(budget=limit), seed)
    over = site.run_drivers()
    (name, most), *_ = limit.items()
    assert site.bill[name] <= most
    assert site.recorded[name] >= site.bill[name], (
        "a killed driver must charge too much rather than too little"
    )
    assert not over, "the budget is too large for this test"


@pytest.mark.parametrize("limit", [{"core_hours": 0.15}, {"gpu_hours": 0.04}, {"hours": 0.025}])
def test_without_deaths_the_bill_is_exact_and_little_budget_is_left(limit: dict[str, float]):
    site = machines(small(budget=limit), 1)
    assert not site.run_drivers(deaths=False)
    (name, most), *_ = limit.items()
    at_once = {"core_hours": 2 * 4, "gpu_hours": 0.5 * 4, "hours": 1}[name]
    assert site.recorded[name] == pytest.approx(site.bill[name], rel=0.02)
    assert most - site.bill[name] <= (STOP_SECONDS + MIN_WORK_SECONDS) * at_once / 3600


def test_a_study_with_a_raised_budget_resumes_and_makes_the_same_decisions():
    unlimited, site = machines(small(), 3), machines(small(budget={"core_hours": 0.14}), 3)
    assert unlimited.run_drivers(deaths=False)
    times = 0
    while not site.run_drivers(deaths=False):
        times += 1
        assert [record.status for record in site.store.records() if record.outcome == "running"] == []
        site.study = small(budget={"core_hours": 0.14 * (times + 1)})
    assert times > 1
    assert site.bill["core_hours"] <= 0.14 * (times + 1)
    assert simulated_study.ends(site.store.records()) == simulated_study.ends(unlimited.store.records())
    assert len(site.workers.trained) == len(set(site.workers.trained)), "a step was trained twice"


def test_a_study_whose_budget_is_spent_stops_before_the_first_job():
    site = machines(small(budget={"core_hours": 0.14}), 5)
    assert not site.run_drivers(deaths=False)
    with pytest.raises(BudgetSpent, match="the budget is spent, except for a reserve"):
        Conductor(site.study, site.store.records(), site.store, meter=site.meter()).start_next()


def test_a_finished_study_is_done_although_its_budget_is_spent():
    site = machines(small(), 4)
    assert site.run_drivers(deaths=False)
    site.study = small(budget={"core_hours": 0.001})
    assert (
        Conductor(site.study, site.store.records(), site.store, meter=site.meter()).start_next() is Idle.DONE
    )


def test_no_trial_starts_with_too_little_budget():
    study = small(budget={"core_hours": 2 * (STOP_SECONDS + MIN_WORK_SECONDS) / 3600})
    site = machines(study, 0)
    with pytest.raises(
        BudgetSpent, match="the budget is too small to start a trial and to stop all workers: "
    ):
        Conductor(study, [], site.store, meter=site.meter()).start_next()
    assert site.store.notes == []


def test_trials_that_the_budget_covers_go_on_and_no_other_trials_start():
    study = small(budget={"core_hours": 2.5 * 2 * (STOP_SECONDS + MIN_WORK_SECONDS) / 3600})
    site = machines(study, 0)
    conductor = Conductor(study, [], site.store, meter=site.meter())
    assert isinstance(conductor.start_next(), Job)
    assert isinstance(conductor.start_next(), Job)
    assert conductor.start_next() is Idle.WAIT


# The meter alone.


def clock_notes_and_meter(**limits: float) -> Iterator[Any]:
    now, notes = [0.0], []
    yield now
    yield notes
    yield Meter(Budget(**limits), Resources(cpu=2, gpu=0.5), notes.append, lambda: now[0], {"gpu_hours": 1.0})


def test_waiting_trials_are_reserved_and_not_charged():
    now, _, meter = clock_notes_and_meter(core_hours=1)
    meter.update(0, 100)
    assert not meter.must_stop
    now[0] = 3600.0
    assert meter.used == {"core_hours": 0.0, "gpu_hours": 1.0, "hours": 1.0}
    meter.update(0, 130)
    assert meter.must_stop, "130 workers could not be stopped in time"


def test_idle_workers_are_charged_and_a_change_between_updates_at_the_higher_number():
    now, _, meter = clock_notes_and_meter()
    meter.update(3)
    now[0] = 1800.0
    meter.update(1)
    now[0] = 3600.0
    assert meter.used == {"core_hours": 4.0, "gpu_hours": 2.0, "hours": 1.0}


def test_a_note_contains_the_use_until_the_next_note():
    now, notes, meter = clock_notes_and_meter(core_hours=5)
    for tenth in range(600):
        now[0] = tenth / 10
        meter.update(4)
        note = json.loads(notes[-1].tags["spent"])
        assert note["used"]["core_hours"] >= meter.used["core_hours"] + 4 * 2 * LINGER_SECONDS / 3600 - 1e-9
    assert len(notes) <= 60 / NOTE_SECONDS + 1
    assert note["budget"] == {"core_hours": 5.0}
    meter.update(4, 40)
    note = json.loads(notes[-1].tags["spent"])
    assert note["used"]["core_hours"] >= meter.used["core_hours"] + 40 * 2 * LINGER_SECONDS / 3600
    meter.close()
    assert json.loads(notes[-1].tags["spent"])["used"] == pytest.approx(meter.used)


def test_without_a_budget_the_use_is_counted_and_nothing_stops():
    now, _, meter = clock_notes_and_meter()
    meter.update(10)
    now[0] = 1e9
    assert meter.affords_another(1000)
    assert not meter.must_stop
    assert meter.used["core_hours"] == pytest.approx(1e9 * 20 / 3600)
    assert meter.spending.left == {}


def test_the_text_of_the_spending_has_the_used_and_the_remaining_hours():
    now, _, meter = clock_notes_and_meter(gpu_hours=4)
    meter.update(2)
    now[0] = 3600.0
    assert str(meter.spending) == "2 of 4 GPU-hours (2 left), 4 core-hours, 1 h of wall clock"


def test_without_a_limit_less_than_an_hour_is_in_minutes():
    now, _, meter = clock_notes_and_meter(core_hours=5)
    meter.update(2)
    now[0] = 360.0
    assert str(meter.spending) == "1.1 GPU-hours, 0.4 of 5 core-hours (4.6 left), 6 min of wall clock"
