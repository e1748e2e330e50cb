"""What a conductor decides, and that dying changes none of it."""

import math
import random

import pytest

from loopscale.records.model.note import STATUS
from loopscale.runner.decide.conductor import SILENT, Conductor, NoWorkers
from loopscale.runner.decide.job import Idle, Job
from loopscale.training.trial import Trial
from tests.runner.simulation import Store, Workers, complete, diverges, end, study


def test_every_cell_is_tuned_and_its_best_point_replicated():
    whole = study()
    records = complete(whole, Workers(1), Store())
    for cell in whole.cells():
        tuning = [r for r in records if r.cell == cell.key and r.role == "tuning"]
        replicates = [r for r in records if r.cell == cell.key and r.role == "replicate"]
        best = min((r for r in tuning if r.outcome == "finished"), key=lambda r: r.error)
        assert [r.number for r in tuning] == list(range(12))
        assert {(r.seed, r.outcome, r.step) for r in replicates} == {(1, "finished", 90), (2, "finished", 90)}
        assert all(r.point == best.point for r in replicates)
    assert all(r.status == STATUS.get(r.outcome, "FAILED") for r in records)
    assert {"finished", "pruned", "diverged"} == {r.outcome for r in records}


def test_baselines_are_recorded_once_for_every_task_and_solver():
    records = complete(study(), Workers(1), Store())
    assert [(r.role, r.outcome) for r in records if r.role == "baseline"] == [("baseline", "finished")] * 2


@pytest.mark.parametrize("seed", range(20))
def test_a_study_that_dies_again_and_again_ends_as_one_that_did_not(seed: int):
    workers, store = Workers(1), Store()
    interrupted = complete(study(), workers, store, random.Random(seed))
    assert end(interrupted) == end(complete(study(), Workers(1), Store()))
    assert len(set(store.points())) == len(store.points()), "a point was recorded twice"
    assert len(set(workers.trained)) == len(workers.trained), "a step was trained twice"


@pytest.mark.parametrize("seed", range(10))
def test_a_trial_that_the_store_never_heard_of_is_asked_for_again(seed: int):
    """Runs are created by themselves: one may be there whose predecessor is not, when the driver dies."""
    plain = study(search={"kind": "random", "trials": 6}, scheduler={"kind": "none"})
    workers = Workers(3)
    interrupted = complete(plain, workers, Store(), random.Random(seed), unheard=2)
    assert end(interrupted) == end(complete(plain, Workers(1), Store()))
    assert set(workers.histories) == {r.key for r in interrupted if r.role != "baseline"}, (
        "trained for nothing"
    )
    assert len(set(workers.trained)) == len(workers.trained), "a step was trained twice"


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("kind", ["random", "gp", "nsga2", "grid"])
def test_every_search_asks_the_same_points_after_a_death(kind: str, seed: int):
    changes = {
        "grid": {"search": {"kind": "grid"}, "nuisance": {"training.lr": {"choice": [1e-3, 1e-2, 0.1, 0.9]}}},
        "nsga2": {
            "search": {"kind": "nsga2", "trials": 10, "objectives": ["error", "flops"]},
            "scheduler": {"kind": "none"},
        },
    }.get(kind, {"search": {"kind": kind, "trials": 7}})
    one = study(**{"scientific": {"training.loops": [2, 4]}, **changes})
    died = complete(one, Workers(1), Store(), random.Random(seed))
    assert end(died) == end(complete(one, Workers(1), Store()))


@pytest.mark.parametrize("kind", ["median", "hyperband"])
def test_every_scheduler_decides_the_same_after_a_death(kind: str):
    one = study(scheduler={"kind": kind, "first_rung": 10})
    died = complete(one, Workers(1), Store(), random.Random(1))
    assert end(died) == end(complete(one, Workers(1), Store()))
    assert any(r.outcome == "pruned" for r in died)


@pytest.mark.parametrize("seed", range(5))
def test_with_several_workers_nothing_is_lost_doubled_or_left_running(seed: int):
    workers, store = Workers(4), Store()
    records = complete(study(), workers, store, random.Random(seed))
    assert len(records) == len(study().cells()) * (12 + 2) + 2
    assert not [r for r in records if r.status == "RUNNING"]
    assert len(set(workers.trained)) == len(workers.trained)


def test_with_random_search_and_no_pruning_workers_do_not_change_the_outcome():
    plain = study(search={"kind": "random", "trials": 6}, scheduler={"kind": "none"})
    alone, together = (complete(plain, Workers(n), Store()) for n in (1, 4))
    assert {(r.key, r.outcome) for r in alone} == {(r.key, r.outcome) for r in together}


def test_more_replicates_train_only_what_is_new():
    store = Store()
    before = {r.key for r in complete(study(), Workers(2), store)}
    workers = Workers(2)
    after = {r.key for r in complete(study(replicates=4), workers, store)}
    assert before < after
    assert {key for key, _ in workers.trained} == after - before


def test_a_new_axis_value_trains_only_what_is_new():
    store, workers = Store(), Workers(2)
    before = {r.key for r in complete(study(), Workers(2), store)}
    complete(study(scientific={"training.loops": [1, 2, 4, 8], "training.window": [1, 2]}), workers, store)
    assert not {key for key, _ in workers.trained} & before
    assert len({key for key, _ in workers.trained}) == 2 * (12 + 2) - len(
        {r.key for r in store.records() if r.outcome == "diverged"} - before
    )


def test_values_added_anywhere_in_a_grid_are_what_is_trained():
    def over(*rates: float):
        changes = {"search": {"kind": "grid"}, "nuisance": {"training.lr": {"choice": list(rates)}}}
        return study(scheduler={"kind": "none"}, **changes)

    store = Store()
    complete(over(1e-2, 0.1), Workers(2), store)
    records = complete(over(1e-4, 1e-3, 1e-2, 0.05, 0.1), Workers(2), store)
    for cell in study().cells():
        tried = [r.point["training.lr"] for r in records if r.cell == cell.key and r.role == "tuning"]
        assert sorted(tried) == [1e-4, 1e-3, 1e-2, 0.05, 0.1]


def test_a_grid_made_longer_has_its_old_values_still():
    """The third of five is 0.004999999999999999, where three ended in 0.005."""

    def upto(highest: float, points: int):
        lr = {"real": [5e-4, highest], "scale": "log", "points": points}
        changes = {"search": {"kind": "grid"}, "nuisance": {"training.lr": lr}}
        return study(scheduler={"kind": "none"}, **changes)

    store = Store()
    complete(upto(5e-3, 3), Workers(2), store)
    records = complete(upto(5e-2, 5), Workers(2), store)
    for cell in study().cells():
        tried = sorted(r.point["training.lr"] for r in records if r.cell == cell.key and r.role == "tuning")
        assert tried == pytest.approx([5e-4 * 10 ** (n / 2) for n in range(5)])


def test_another_evaluation_trains_nothing_and_evaluates_what_is_reported():
    store = Store()
    records = complete(study(), Workers(2), store)
    workers = Workers(2)
    complete(study(evaluate={"loops": 9}), workers, store)
    assert not workers.trained
    reported = {r.key for r in records if r.role != "tuning" and r.outcome == "finished"}
    assert reported <= set(workers.evaluated)
    assert len(workers.evaluated) == len(set(workers.evaluated)) == len(reported) + len(study().cells())
    again = Workers(2)
    complete(study(evaluate={"loops": 9}), again, store)
    assert not again.evaluated


def test_rungs_compare_trials_of_one_cell_only():
    """A cell whose every error is far worse than another's still brings a third of its trials to the end."""
    one = study(
        scientific={"training.loops": [1, 64]}, nuisance={"training.lr": {"real": [5e-3, 2e-2], "scale": "log"}},
        evaluate={"loops": 64},
    )  # fmt: skip
    records = complete(one, Workers(1), Store())
    for cell in one.cells():
        tuned = [r for r in records if r.cell == cell.key and r.role == "tuning"]
        finished = [r for r in tuned if r.outcome == "finished"]
        assert 1 <= len(finished) < len(tuned)
    errors = {
        cell.values["training.loops"]: min(
            r.error for r in records if r.cell == cell.key and r.outcome == "finished"
        )
        for cell in one.cells()
    }
    assert errors[64] > 3 * errors[1]


def test_a_bug_is_trained_again_by_the_next_run_and_a_divergence_is_not():
    broken = Workers(1, fate=lambda job: diverges(job) or ("failed" if job.role == "replicate" else ""))
    store = Store()
    complete(study(), broken, store)
    counts = Conductor(study(), store.records(), store).counts()
    failed = [r for r in store.records() if r.outcome == "failed"]
    assert len(failed) == 2 * len(study().cells()) == counts["waiting"]
    mended = Workers(1)
    assert {r.outcome for r in complete(study(), mended, store) if r.role == "replicate"} == {"finished"}
    assert {key for key, _ in mended.trained} == {r.key for r in failed}


def test_a_lost_worker_is_replaced_a_bounded_number_of_times():
    times: dict[str, int] = {}

    def fate(job: Job) -> str:
        times[job.key] = times.get(job.key, 0) + 1
        return "dies" if job.role == "replicate" and job.work.seed == 1 else diverges(job)  # pyright: ignore

    records = complete(study(), Workers(1, fate), Store())
    lost = [r for r in records if r.outcome == "lost"]
    assert len(lost) == len(study().cells())
    assert all(times[r.key] == 4 for r in lost)
    assert all("caught fire" in r.tags["detail"] and r.status == "FAILED" for r in lost)


def test_a_study_whose_workers_all_die_at_once_stops_and_says_why():
    conductor = Conductor(study(baselines=[]), [], Store())
    for _ in range(SILENT):
        job = conductor.next()
        assert isinstance(job, Job)
        conductor.lost(job.key, "no module named torch")
    with pytest.raises(NoWorkers, match="no module named torch"):
        conductor.next()


def test_an_interrupted_trial_is_killed_and_goes_on_next_time():
    store, workers = Store(), Workers(2)
    conductor = Conductor(study(), [], store)
    workers.drive(conductor, dies_after=30)
    conductor.interrupt()
    under_way = {r.key for r in store.records() if r.outcome == "interrupted"}
    assert under_way
    assert {r.status for r in store.records() if r.key in under_way} == {"KILLED"}
    assert not [r for r in complete(study(), workers, store) if r.outcome in ("interrupted", "running")]
    assert len(set(workers.trained)) == len(workers.trained)


def test_the_search_moves_away_from_where_trials_diverge():
    one = study(
        scientific={"training.loops": [2]}, scheduler={"kind": "none"}, search={"kind": "tpe", "trials": 40},
        nuisance={"training.lr": {"real": [1e-3, 1.0]}},
    )  # fmt: skip
    records = [r for r in complete(one, Workers(1), Store()) if r.role == "tuning"]
    early, late = ([r.outcome == "diverged" for r in part] for part in (records[:10], records[-10:]))
    assert sum(early) >= 5 > 2 >= sum(late)


def test_a_small_space_is_exhausted_and_not_asked_for_ever():
    one = study(nuisance={"training.lr": {"choice": [1e-3, 1e-2]}}, scheduler={"kind": "none"})
    records = complete(one, Workers(3), Store())
    for cell in one.cells():
        assert sorted(
            r.point["training.lr"] for r in records if r.cell == cell.key and r.role == "tuning"
        ) == [1e-3, 1e-2]


def test_a_cell_in_which_nothing_trains_ends_without_replicates():
    records = complete(study(), Workers(2, fate=lambda job: "diverged"), Store())
    assert {r.role for r in records if r.role != "baseline"} == {"tuning"}


def test_a_point_outside_a_narrowed_range_stays_recorded_and_is_not_replicated():
    store = Store()
    complete(study(), Workers(1), store)
    narrow = study(nuisance={"training.lr": {"real": [1e-4, 2e-3], "scale": "log"}})
    conductor = Conductor(narrow, store.records(), store)
    assert all(
        1e-4 <= job.point["training.lr"] <= 2e-3
        for bench in conductor.benches.values()
        for job in bench.jobs.values()
    )


def test_a_nuisance_range_holds_in_the_cells_whose_kind_has_the_setting():
    one = study(
        scientific={"model": [{"kind": "gpt2", "layers": 2}, {"kind": "looped"}]}, where="",
        nuisance={"training.window": {"integer": [1, 3]}, "training.lr": {"real": [1e-3, 1e-2]}},
        search={"kind": "random", "trials": 4},
    )  # fmt: skip
    records = [r for r in complete(one, Workers(1), Store()) if r.role == "tuning"]
    assert {(len(one.space(cell))) for cell in one.cells()} <= {1, 2}
    assert len(records) == 8


def test_a_driver_that_died_between_outcome_and_end_closes_the_run():
    store = Store()
    complete(study(), Workers(1), store)
    ended = next(n for n in reversed(store.notes) if n.status == "FINISHED" and n.tags)
    store.notes[store.notes.index(ended)] = type(ended)(ended.key, ended.step, ended.metrics, {}, ended.tags)
    assert [r.status for r in store.records() if r.key == ended.key] == ["RUNNING"]
    assert Conductor(study(), store.records(), store).next() is Idle.DONE
    assert [r.status for r in store.records() if r.key == ended.key] == ["FINISHED"]


def test_two_objectives_are_told_to_the_search_and_the_best_is_the_lowest_error():
    one = study(
        scientific={"training.loops": [2]}, scheduler={"kind": "none"}, replicates=1,
        search={"kind": "nsga2", "trials": 8, "objectives": ["error", "flops"]},
        nuisance={"training.lr": {"real": [1e-3, 0.1], "scale": "log"}, "model.width": {"choice": [4, 8]}},
    )  # fmt: skip
    store = Store()
    conductor = Conductor(one, [], store)
    assert Workers(1).drive(conductor)
    (bench,) = conductor.benches.values()
    told = [trial.values for trial in bench.sampler.study.trials if trial.values]
    assert len({flops for _, flops in told}) == 2
    assert all(math.isfinite(flops) for _, flops in told)
    best = min((r for r in store.records() if r.role == "tuning"), key=lambda r: r.error)
    assert [r.point for r in store.records() if r.role == "replicate"] == [best.point]


def test_the_key_of_a_job_is_the_key_of_its_trial():
    job = Conductor(study(baselines=[]), [], Store()).next()
    assert isinstance(job, Job)
    assert isinstance(job.work, Trial)
    assert job.key == job.work.key == job.ordered(evaluation=study().evaluate, shelf="x").key


@pytest.mark.slow
def test_a_thousand_trials_are_conducted_in_full():
    large = study(search={"kind": "tpe", "trials": 200})
    assert len(complete(large, Workers(8), Store())) == len(large.cells()) * 202 + 2


def test_every_trial_that_begins_says_from_which_commit_and_is_the_same_trial():
    store = Store()
    conductor = Conductor(study(), [], store)
    conductor.origin = {"git_commit": "abc", "git_changed": "no"}
    job = conductor.next()
    assert isinstance(job, Job)
    (record,) = store.records()
    assert (record.tags["git_commit"], record.key) == ("abc", job.key)
