"""What a study has used, and that it stops before it has used more than it may: on a clock of our own, and for real."""

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from loopscale.records.model.note import Note
from loopscale.runner.decide.budget import INTERVAL, LINGER, MARGIN, STARTUP, Meter, Spent
from loopscale.runner.decide.conductor import Conductor
from loopscale.runner.decide.job import Idle, Job
from loopscale.studies.parts import Budget, Resources
from loopscale.studies.spec import Study
from tests.runner import simulation

SMALL: dict[str, Any] = {
    "scientific": {"training.loops": [1, 2]},
    "search": {"kind": "random", "trials": 4},
    "resources": {"cpu": 2, "gpu": 0.5},
    "scheduler": {"kind": "none"},
    "baselines": [],
}


def small(**changes: Any) -> Study:
    return simulation.study(**SMALL | changes)


@dataclass
class Site:
    """Machines on a clock: what is held here is what a bill would say, whatever the meter believes."""

    study: Study
    chance: random.Random
    workers: simulation.Workers
    pens: simulation.Store = field(default_factory=simulation.Store)
    ledger: list[Note] = field(default_factory=list)
    now: float = 0.0
    bill: dict[str, float] = field(
        default_factory=lambda: {"core_hours": 0.0, "gpu_hours": 0.0, "hours": 0.0}
    )

    @property
    def recorded(self) -> dict[str, float]:
        return json.loads(self.ledger[-1].tags["spent"])["used"] if self.ledger else {}

    def meter(self) -> Meter:
        return Meter(
            self.study.budget, self.study.resources, self.ledger.append, self.recorded, lambda: self.now
        )

    def passes(self, seconds: float, held: int, driver: bool = True) -> None:
        self.now += seconds
        resources = self.study.resources
        self.bill["core_hours"] += seconds * held * resources.cpu / 3600
        self.bill["gpu_hours"] += seconds * held * resources.gpu / 3600
        self.bill["hours"] += seconds * driver / 3600

    def drive(self, life: float = float("inf")) -> bool:
        """One driver, dead after `life` seconds; whether the study is over. Raises Spent."""
        meter = self.meter()
        conductor = Conductor(self.study, self.pens.records(), self.pens, meter=meter)
        dies, active = self.now + life, dict[str, tuple[Job, float, float]]()
        while True:
            held = sum(ready <= self.now for _, ready, _ in active.values())
            try:
                meter.turn(held, len(active))
                if meter.over:
                    raise Spent
                while len(active) < self.workers.count and isinstance(job := conductor.next(), Job):
                    ready = self.now + self.chance.choice(
                        (0, 1, 40)
                    )  # a place at once, or a machine to be bought
                    active[job.key] = job, ready, ready + self.chance.uniform(3, 12)
                if not active and conductor.next() is Idle.DONE:
                    meter.close()
                    return True
            except Spent:
                self.passes(self.chance.uniform(1, MARGIN - 0.2), held)
                conductor.interrupt()
                meter.close()
                raise
            self.passes(0.25, sum(ready <= self.now for _, ready, _ in active.values()))
            for key, (job, ready, due) in list(active.items()):
                if self.now >= due and self._ends(conductor, job):
                    del active[key]
                elif self.now >= due:
                    active[key] = job, ready, self.now + self.chance.uniform(1, 6)
            if self.now >= dies:
                self.passes(self.chance.uniform(0, LINGER), held, driver=False)
                return False

    def _ends(self, conductor: Conductor, job: Job) -> bool:
        said = None if self.chance.random() < 0.05 else self.workers._step(job)
        if said is None:
            conductor.lost(job.key, "its host caught fire")
        return said is None or not conductor.report(job.key, said)

    def whole(self, deaths: bool = True) -> bool:
        """Drivers, one after another, until the study is over or its budget spent; whether it is over."""
        try:
            while not self.drive(self.chance.uniform(5, 120) if deaths else float("inf")):
                self.now += self.chance.uniform(0, 1000)
            return True
        except Spent:
            return False


def site(study: Study, seed: int, count: int = 4) -> Site:
    return Site(study, random.Random(seed), simulation.Workers(count))


@pytest.mark.parametrize("limit", [{"core_hours": 0.15}, {"gpu_hours": 0.04}, {"hours": 0.025}])
@pytest.mark.parametrize("seed", range(20))
def test_a_study_never_uses_more_than_its_budget_whatever_dies(seed: int, limit: dict[str, float]):
    one = site(small(budget=limit), seed)
    over = one.whole()
    (name, most), *_ = limit.items()
    assert one.bill[name] <= most
    assert one.recorded[name] >= one.bill[name], "a driver that is killed charges too much, not too little"
    assert not over, "a budget that is enough tests nothing"


@pytest.mark.parametrize("limit", [{"core_hours": 0.15}, {"gpu_hours": 0.04}, {"hours": 0.025}])
def test_without_deaths_the_bill_is_known_and_little_is_left(limit: dict[str, float]):
    one = site(small(budget=limit), 1)
    assert not one.whole(deaths=False)
    (name, most), *_ = limit.items()
    at_once = {"core_hours": 2 * 4, "gpu_hours": 0.5 * 4, "hours": 1}[name]
    assert one.recorded[name] == pytest.approx(one.bill[name], rel=0.02)
    assert most - one.bill[name] <= (MARGIN + STARTUP) * at_once / 3600


def test_a_raised_budget_goes_on_where_it_stopped_and_changes_no_decision():
    free, one = site(small(), 3), site(small(budget={"core_hours": 0.14}), 3)
    assert free.whole(deaths=False)
    times = 0
    while not one.whole(deaths=False):
        times += 1
        assert [record.status for record in one.pens.records() if record.outcome == "running"] == []
        one.study = small(budget={"core_hours": 0.14 * (times + 1)})
    assert times > 1
    assert one.bill["core_hours"] <= 0.14 * (times + 1)
    assert simulation.end(one.pens.records()) == simulation.end(free.pens.records())
    assert len(one.workers.trained) == len(set(one.workers.trained)), "nothing was trained twice"


def test_a_study_whose_budget_is_spent_says_so_before_anything_starts():
    one = site(small(budget={"core_hours": 0.14}), 5)
    assert not one.whole(deaths=False)
    with pytest.raises(Spent):
        Conductor(one.study, one.pens.records(), one.pens, meter=one.meter()).next()


def test_a_finished_study_is_done_though_its_budget_is_spent():
    one = site(small(), 4)
    assert one.whole(deaths=False)
    one.study = small(budget={"core_hours": 0.001})
    assert Conductor(one.study, one.pens.records(), one.pens, meter=one.meter()).next() is Idle.DONE


def test_no_trial_is_started_for_a_sliver():
    study = small(budget={"core_hours": 2 * (MARGIN + STARTUP) / 3600})
    one = site(study, 0)
    with pytest.raises(Spent):
        Conductor(study, [], one.pens, meter=one.meter()).next()
    assert one.pens.notes == []


def test_the_last_that_can_be_paid_for_run_on_while_no_more_are_started():
    study = small(budget={"core_hours": 2.5 * 2 * (MARGIN + STARTUP) / 3600})
    one = site(study, 0)
    conductor = Conductor(study, [], one.pens, meter=one.meter())
    assert isinstance(conductor.next(), Job)
    assert isinstance(conductor.next(), Job)
    assert conductor.next() is Idle.WAIT


# A meter by itself.


def meters(**limits: float) -> Iterator[Any]:
    now, notes = [0.0], []
    yield now
    yield notes
    yield Meter(Budget(**limits), Resources(cpu=2, gpu=0.5), notes.append, {"gpu_hours": 1.0}, lambda: now[0])


def test_what_waits_for_a_machine_is_provided_for_and_not_charged():
    now, _, meter = meters(core_hours=1)
    meter.turn(0, 100)
    assert not meter.over
    now[0] = 3600.0
    assert meter.used == {"core_hours": 0.0, "gpu_hours": 1.0, "hours": 1.0}
    meter.turn(0, 130)
    assert meter.over, "130 of them could not be stopped in time"


def test_idle_and_dying_workers_are_charged_and_what_came_in_between_at_its_dearest():
    now, _, meter = meters()
    meter.turn(3)
    now[0] = 1800.0
    meter.turn(1)
    now[0] = 3600.0
    assert meter.used == {"core_hours": 4.0, "gpu_hours": 2.0, "hours": 1.0}


def test_a_note_holds_what_will_have_been_used_by_the_next():
    now, notes, meter = meters(core_hours=5)
    for tenth in range(600):
        now[0] = tenth / 10
        meter.turn(4)
        said = json.loads(notes[-1].tags["spent"])
        assert said["used"]["core_hours"] >= meter.used["core_hours"] + 4 * 2 * LINGER / 3600 - 1e-9
    assert len(notes) <= 60 / INTERVAL + 1
    assert said["budget"] == {"core_hours": 5.0}
    meter.turn(4, 40)
    said = json.loads(notes[-1].tags["spent"])
    assert said["used"]["core_hours"] >= meter.used["core_hours"] + 40 * 2 * LINGER / 3600
    meter.close()
    assert json.loads(notes[-1].tags["spent"])["used"] == pytest.approx(meter.used)


def test_without_a_budget_nothing_stops_and_all_is_counted():
    now, _, meter = meters()
    meter.turn(10)
    now[0] = 1e9
    assert meter.room(1000)
    assert not meter.over
    assert meter.used["core_hours"] == pytest.approx(1e9 * 20 / 3600)
    assert meter.spending.left == {}


def test_it_says_what_was_used_and_what_is_left():
    now, _, meter = meters(gpu_hours=4)
    meter.turn(2)
    now[0] = 3600.0
    assert str(meter.spending) == "2 of 4 GPU-hours (2 left), 4 core-hours, 1 h of wall clock"
