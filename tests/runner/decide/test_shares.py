"""Shares of a cluster: their computation, and conductors that respect them."""

import random
from collections.abc import Mapping

import pytest

from loopscale.runner.decide.conductor import Conductor
from loopscale.runner.decide.job import Idle, Job, Report
from loopscale.runner.decide.shares import UNLIMITED, Share, StudyDemand, fair_shares
from tests.runner.simulated_study import Store, Workers, complete, ends, progress_at, start_jobs, study

GPUS = {"CPU": 1.0, "GPU": 1.0}


def share_trials(capacity: Mapping[str, float], *demands: StudyDemand) -> list[int]:
    """The number of trials of each study."""
    shares = fair_shares({str(n): demand for n, demand in enumerate(demands)}, capacity)
    return [shares[str(n)].trials for n in range(len(demands))]


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
def test_a_cluster_is_divided_by_weight_and_unused_slots_go_to_other_studies(
    cpus, weights, demands, expected
):
    studies = (StudyDemand(weight, demand, 0) for weight, demand in zip(weights, demands, strict=True))
    assert share_trials({"CPU": cpus}, *studies) == expected


def test_trials_of_different_sizes_are_compared_by_their_dominant_resource():
    large = StudyDemand(1, 99, 0, {"CPU": 4.0})
    assert share_trials({"CPU": 16.0}, large, StudyDemand(1, 99, 0)) == [2, 8]
    assert share_trials({"CPU": 64.0, "GPU": 8.0}, StudyDemand(1, 99, 0, GPUS), StudyDemand(1, 99, 0)) == [
        7,
        57,
    ]
    assert share_trials(
        {"CPU": 64.0, "GPU": 8.0}, StudyDemand(1, 99, 0, GPUS), StudyDemand(3, 99, 0, GPUS)
    ) == [2, 6]
    half = {"CPU": 1.0, "GPU": 0.5}
    assert share_trials(
        {"CPU": 64.0, "GPU": 3.0}, StudyDemand(1, 99, 0, half), StudyDemand(2, 99, 0, half)
    ) == [2, 4]


def test_a_study_alone_has_no_limit_so_that_an_autoscaler_sees_waiting_trials():
    assert fair_shares({"one": StudyDemand(1, 50, 50)}, {"CPU": 4}) == {"one": Share(UNLIMITED, False)}


@pytest.mark.parametrize("seed", range(200))
def test_no_usable_slot_is_left_and_no_more_slots_are_given_than_exist(seed: int):
    chance = random.Random(seed)
    capacity = {"CPU": chance.randint(20, 60), "GPU": chance.randint(5, 20)}
    sizes = ({"CPU": 1.0}, {"CPU": 3.0}, GPUS, {"CPU": 0.5, "GPU": 0.25})
    demands = [
        StudyDemand(chance.choice((0.5, 1, 2, 7)), chance.randint(0, 40), 0, chance.choice(sizes))
        for _ in range(chance.randint(2, 5))
    ]
    trials = share_trials(capacity, *demands)
    left = {
        name: amount - sum(c.trial.get(name, 0) * n for c, n in zip(demands, trials, strict=True))
        for name, amount in capacity.items()
    }
    assert min(left.values()) > -1e-6
    for study_demand, count in zip(demands, trials, strict=True):
        assert 1 <= count <= max(1, study_demand.demand)
        fits = all(left[name] >= amount for name, amount in study_demand.trial.items())
        assert count >= study_demand.demand or not fits


def test_slots_beyond_a_share_are_contested_only_while_another_study_waits():
    def contested(first: int, second: int) -> list[bool]:
        demands = {"a": StudyDemand(1, 9, first), "b": StudyDemand(3, 9, second)}
        return [share.contested for share in fair_shares(demands, {"CPU": 4}).values()]

    assert contested(4, 0) == [False, False]
    assert contested(4, 1) == [True, False]
    assert contested(1, 3) == [False, False]
    assert contested(2, 3) == [True, False]
    assert contested(1, 4) == [False, True]


def test_a_conductor_at_its_share_waits_until_the_share_grows():
    conductor = Conductor(study(), [], Store())
    conductor.services.share = Share(2)
    jobs = [conductor.start_next() for _ in range(3)]
    assert [isinstance(job, Job) for job in jobs] == [True, True, False]
    assert jobs[2] is Idle.WAIT
    assert conductor.running_count == 2
    conductor.services.share = Share(3)
    assert isinstance(conductor.start_next(), Job)
    conductor.services.share = Share(
        0
    )  # at least one job starts, because Tune may only wait while a job runs
    for job in list(conductor.jobs()):
        if job.state == "running":
            conductor.report_lost(job.key)
    assert conductor.running_count == 0
    assert isinstance(conductor.start_next(), Job)
    assert conductor.start_next() is Idle.WAIT


def test_the_least_advanced_trial_yields_its_slot_after_a_save_and_waits_without_being_lost():
    conductor, (old, young, silent) = start_jobs(3)
    assert conductor.report(old.key, progress_at(50))
    assert conductor.report(young.key, progress_at(10))
    conductor.services.share = Share(2, contested=True)
    assert conductor.report(old.key, progress_at(60)), "the other trial is less advanced"
    assert conductor.report(young.key, progress_at(20, saved=False)), "10 steps would be repeated"
    assert not conductor.report(young.key, progress_at(30))
    assert (young.state, young.worker_deaths, young.outcome, young.step) == ("waiting", 0, "", 30)
    assert (silent.state, conductor.running_count) == ("running", 2)
    assert conductor.report(old.key, progress_at(70)), "one slot was enough"
    assert conductor.start_next() is Idle.WAIT
    conductor.services.share = Share(3)
    assert conductor.start_next() is young
    assert conductor.report(young.key, progress_at(40))


def test_no_trial_yields_an_uncontested_slot_or_yields_at_its_last_step():
    conductor, (first, second) = start_jobs(2)
    conductor.services.share = Share(1, contested=False)
    assert conductor.report(first.key, progress_at(10))
    conductor.services.share = Share(1, contested=True)
    assert conductor.report(first.key, progress_at(90)), "only the evaluation is left"
    assert conductor.report(second.key, progress_at(90))


class ContestedConductor(Conductor):
    """A conductor on a cluster where other studies come and go at random."""

    chance = random.Random(0)
    yielded = 0

    def report(self, key: str, report: Report) -> bool:
        self.services.share = Share(self.chance.randint(1, 4), contested=self.chance.random() < 0.5)
        before = self._jobs_by_key[key].state
        saved = Report(
            report.progress, report.outcome, report.detail, report.metrics, report.curve, saved=True
        )
        goes_on = super().report(key, saved)
        self.yielded += before == "running" and self._jobs_by_key[key].state == "waiting"
        return goes_on


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("seed", range(10))
def test_a_study_that_yields_slots_repeatedly_equals_the_undisturbed_study(seed: int):
    plain = study(search={"kind": "random", "trials": 6}, scheduler={"kind": "none"})
    store, workers = Store(), Workers(4)
    conductor = ContestedConductor(plain, [], store)
    conductor.chance = random.Random(seed)
    assert workers.drive(conductor)
    assert conductor.yielded > 10
    assert ends(store.records()) == ends(complete(plain, Workers(4), Store()))
    assert len(set(workers.trained)) == len(workers.trained), "a step was trained twice"
    assert len(set(store.points())) == len(store.points())
    assert all(job.worker_deaths == 0 for job in conductor.jobs())
