"""How studies share a cluster: the arithmetic, and conductors that keep to it."""

import random
from collections.abc import Mapping
from types import SimpleNamespace

import pytest

from loopscale.runner.decide.conductor import Conductor
from loopscale.runner.decide.job import Idle, Job
from loopscale.runner.decide.shares import ALL, Claim, Room, rooms
from loopscale.runner.messages import Report
from loopscale.runner.on_ray.tune import TuneScheduler, TuneSearcher
from tests.runner.simulation import Store, Workers, complete, end, study

GPUS = {"CPU": 1.0, "GPU": 1.0}


def shared(capacity: Mapping[str, float], *claims: Claim) -> list[int]:
    found = rooms({str(n): claim for n, claim in enumerate(claims)}, capacity)
    return [found[str(n)].trials for n in range(len(claims))]


@pytest.mark.parametrize(
    ("cpus", "weights", "demands", "expected"),
    [
        (4, (1, 3), (9, 9), [1, 3]),
        (400, (1, 3), (999, 999), [100, 300]),
        (5, (1, 3), (9, 9), [1, 4]),
        (4, (1, 3), (9, 1), [3, 1]),
        (4, (1, 3), (0, 9), [1, 3]),
        (8, (1, 1, 2), (9, 9, 9), [2, 2, 4]),
        (8, (1, 1, 2), (9, 1, 9), [2, 1, 5]),
        (2, (1, 1, 1), (9, 9, 9), [1, 1, 1]),
        (1, (1, 100), (9, 9), [1, 1]),
    ],
)
def test_a_cluster_is_divided_by_weight_and_what_one_cannot_use_others_get(cpus, weights, demands, expected):
    claims = (Claim(weight, demand, 0) for weight, demand in zip(weights, demands, strict=True))
    assert shared({"CPU": cpus}, *claims) == expected


def test_trials_of_different_sizes_are_weighed_by_what_they_take_most_of():
    large = Claim(1, 99, 0, {"CPU": 4.0})
    assert shared({"CPU": 16.0}, large, Claim(1, 99, 0)) == [2, 8]
    assert shared({"CPU": 64.0, "GPU": 8.0}, Claim(1, 99, 0, GPUS), Claim(1, 99, 0)) == [7, 57]
    assert shared({"CPU": 64.0, "GPU": 8.0}, Claim(1, 99, 0, GPUS), Claim(3, 99, 0, GPUS)) == [2, 6]
    half = {"CPU": 1.0, "GPU": 0.5}
    assert shared({"CPU": 64.0, "GPU": 3.0}, Claim(1, 99, 0, half), Claim(2, 99, 0, half)) == [2, 4]


def test_a_study_alone_has_no_limit_so_that_an_autoscaler_sees_what_waits():
    assert rooms({"one": Claim(1, 50, 50)}, {"CPU": 4}) == {"one": Room(ALL, False)}


@pytest.mark.parametrize("seed", range(200))
def test_nothing_that_somebody_could_use_is_left_and_no_more_than_there_is_given(seed: int):
    dice = random.Random(seed)
    capacity = {"CPU": dice.randint(20, 60), "GPU": dice.randint(5, 20)}
    sizes = ({"CPU": 1.0}, {"CPU": 3.0}, GPUS, {"CPU": 0.5, "GPU": 0.25})
    claims = [
        Claim(dice.choice((0.5, 1, 2, 7)), dice.randint(0, 40), 0, dice.choice(sizes))
        for _ in range(dice.randint(2, 5))
    ]
    given = shared(capacity, *claims)
    left = {
        name: amount - sum(c.trial.get(name, 0) * n for c, n in zip(claims, given, strict=True))
        for name, amount in capacity.items()
    }
    assert min(left.values()) > -1e-6
    for claim, trials in zip(claims, given, strict=True):
        assert 1 <= trials <= max(1, claim.demand)
        fits = all(left[name] >= amount for name, amount in claim.trial.items())
        assert trials >= claim.demand or not fits


def test_what_is_held_beyond_a_share_is_wanted_back_only_while_somebody_waits():
    def wanted(first: int, second: int) -> list[bool]:
        claims = {"a": Claim(1, 9, first), "b": Claim(3, 9, second)}
        return [room.wanted for room in rooms(claims, {"CPU": 4}).values()]

    assert wanted(4, 0) == [False, False]
    assert wanted(4, 1) == [True, False]
    assert wanted(1, 3) == [False, False]
    assert wanted(2, 3) == [True, False]
    assert wanted(1, 4) == [False, True]


def test_at_its_limit_a_conductor_waits_and_goes_on_when_it_rises():
    conductor = Conductor(study(), [], Store())
    conductor.room = Room(2)
    jobs = [conductor.next() for _ in range(3)]
    assert [isinstance(job, Job) for job in jobs] == [True, True, False]
    assert jobs[2] is Idle.WAIT
    assert conductor.busy == 2
    conductor.room = Room(3)
    assert isinstance(conductor.next(), Job)
    conductor.room = Room(0)  # never less than one: None is safe to say only while something runs
    for job in list(conductor.jobs()):
        if job.state == "running":
            conductor.lost(job.key)
    assert conductor.busy == 0
    assert isinstance(conductor.next(), Job)
    assert conductor.next() is Idle.WAIT


def started(count: int) -> tuple[Conductor, list[Job]]:
    conductor = Conductor(study(scheduler={"kind": "none"}, baselines=[]), [], Store())
    return conductor, [job for _ in range(count) if isinstance(job := conductor.next(), Job)]


def at(step: int, saved: bool = True) -> Report:
    return Report(((step, {"error": 1.0, "error_last": 0.0}),), saved=saved)


def test_the_least_advanced_trial_gives_back_its_place_when_all_is_saved_and_waits_without_being_lost():
    conductor, (old, young, silent) = started(3)
    assert conductor.report(old.key, at(50))
    assert conductor.report(young.key, at(10))
    conductor.room = Room(2, wanted=True)
    assert conductor.report(old.key, at(60)), "another has done less"
    assert conductor.report(young.key, at(20, saved=False)), "stopping here would train 10 steps again"
    assert not conductor.report(young.key, at(30))
    assert (young.state, young.lost, young.outcome, young.step) == ("waiting", 0, "", 30)
    assert (silent.state, conductor.busy) == ("running", 2)
    assert conductor.report(old.key, at(70)), "one was enough"
    assert conductor.next() is Idle.WAIT
    conductor.room = Room(3)
    assert conductor.next() is young
    assert conductor.report(young.key, at(40))


def test_no_trial_stops_for_a_share_that_nobody_waits_for_nor_at_its_last_step():
    conductor, (one, other) = started(2)
    conductor.room = Room(1, wanted=False)
    assert conductor.report(one.key, at(10))
    conductor.room = Room(1, wanted=True)
    assert conductor.report(one.key, at(90)), "it has only to be evaluated"
    assert conductor.report(other.key, at(90))


def test_a_trial_that_gave_way_and_is_under_way_again_is_not_lost_when_tune_ends_its_first_run():
    conductor, (job, other) = started(2)
    suggest = TuneSearcher(conductor, job, lambda job: None, {"t1": job.key, "t2": other.key})  # pyright: ignore[reportArgumentType]
    judge = TuneScheduler(conductor, suggest)
    first = SimpleNamespace(trial_id="t1", config={"key": job.key})
    conductor.report(other.key, at(50))
    conductor.room = Room(1, wanted=True)
    assert judge.on_trial_result(None, first, {"report": at(10)}) == judge.STOP
    conductor.room = Room(2)
    assert conductor.next() is job
    suggest.on_trial_complete("t1")
    assert (job.state, job.lost) == ("running", 0)
    suggest.on_trial_complete("t2")
    assert (other.state, other.lost) == ("waiting", 1)


class Pressed(Conductor):
    """A conductor on a cluster where others come and go at random."""

    dice = random.Random(0)
    yielded = 0

    def report(self, key: str, report: Report) -> bool:
        self.room = Room(self.dice.randint(1, 4), wanted=self.dice.random() < 0.5)
        before = self._index[key].state
        saved = Report(
            report.progress, report.outcome, report.detail, report.metrics, report.curve, saved=True
        )
        goes_on = super().report(key, saved)
        self.yielded += before == "running" and self._index[key].state == "waiting"
        return goes_on


@pytest.mark.parametrize("seed", range(10))
def test_a_study_that_gives_way_again_and_again_ends_as_one_that_did_not(seed: int):
    plain = study(search={"kind": "random", "trials": 6}, scheduler={"kind": "none"})
    store, workers = Store(), Workers(4)
    conductor = Pressed(plain, [], store)
    conductor.dice = random.Random(seed)
    assert workers.drive(conductor)
    assert conductor.yielded > 10
    assert end(store.records()) == end(complete(plain, Workers(4), Store()))
    assert len(set(workers.trained)) == len(workers.trained), "a step was trained twice"
    assert len(set(store.points())) == len(store.points())
    assert all(job.lost == 0 for job in conductor.jobs())
