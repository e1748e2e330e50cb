"""Decisions of a conductor, which the death of a driver does not change."""

import math
import random
from dataclasses import replace

import pytest

from loopscale.records.model import STATUS
from loopscale.runner.decide.conductor import MAX_SILENT_DEATHS, Conductor, NoWorkers
from loopscale.runner.decide.job import Idle, Job, Report
from loopscale.training.trial import Trial
from tests.runner.simulated_study import Store, Workers, complete, diverges, ends, study


def test_every_cell_is_tuned_and_its_best_point_is_replicated():
    default = study()
    records = complete(default, Workers(1), Store())
    for cell in default.cells():
        tuning = [r for r in records if r.cell == cell.key and r.role == "tuning"]
        replicates = [r for r in records if r.cell == cell.key and r.role == "replicate"]
        best = min((r for r in tuning if r.outcome == "finished"), key=lambda r: r.error)
        assert [r.number for r in tuning] == list(range(12))
        assert {(r.seed, r.outcome, r.step) for r in replicates} == {(1, "finished", 90), (2, "finished", 90)}
        assert all(r.point == best.point for r in replicates)
    assert all(r.status == STATUS.get(r.outcome, "FAILED") for r in records)
    assert {"finished", "pruned", "diverged"} == {r.outcome for r in records}


def test_each_baseline_is_recorded_once_per_task_and_solver():
    records = complete(study(), Workers(1), Store())
    assert [(r.role, r.outcome) for r in records if r.role == "baseline"] == [("baseline", "finished")] * 2


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("seed", range(20))
def test_a_study_whose_driver_dies_repeatedly_equals_the_uninterrupted_study(seed: int):
    workers, store = Workers(1), Store()
    interrupted = complete(study(), workers, store, random.Random(seed))
    assert ends(interrupted) == ends(complete(study(), Workers(1), Store()))
    assert len(set(store.points())) == len(store.points()), "a point was recorded twice"
    assert len(set(workers.trained)) == len(workers.trained), "a step was trained twice"


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("seed", range(10))
def test_a_trial_that_the_store_has_lost_is_suggested_again(seed: int):
    """Runs are created independently, so the store of a dead driver may have a trial and lack an earlier trial."""
    plain = study(search={"kind": "random", "trials": 6}, scheduler={"kind": "none"})
    workers = Workers(3)
    interrupted = complete(plain, workers, Store(), random.Random(seed), forgotten=2)
    assert ends(interrupted) == ends(complete(plain, Workers(1), Store()))
    assert set(workers.histories) == {r.key for r in interrupted if r.role != "baseline"}, (
        "a trial was trained that the study does not have"
    )
    assert len(set(workers.trained)) == len(workers.trained), "a step was trained twice"


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("kind", ["random", "gp", "nsga2", "grid"])
def test_every_search_suggests_the_same_points_after_a_death(kind: str, seed: int):
    changes = {
        "grid": {"search": {"kind": "grid"}, "nuisance": {"training.lr": {"choice": [1e-3, 1e-2, 0.1, 0.9]}}},
        "nsga2": {
            "search": {"kind": "nsga2", "trials": 10, "objectives": ["error", "flops"]},
            "scheduler": {"kind": "none"},
        },
    }.get(kind, {"search": {"kind": kind, "trials": 7}})
    reduced = study(**{"scientific": {"training.loops": [2, 4]}, **changes})
    resumed = complete(reduced, Workers(1), Store(), random.Random(seed))
    assert ends(resumed) == ends(complete(reduced, Workers(1), Store()))


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("kind", ["median", "hyperband"])
def test_every_scheduler_decides_the_same_after_a_death(kind: str):
    reduced = study(scheduler={"kind": kind, "first_rung": 10})
    resumed = complete(reduced, Workers(1), Store(), random.Random(1))
    assert ends(resumed) == ends(complete(reduced, Workers(1), Store()))
    assert any(r.outcome == "pruned" for r in resumed)


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("seed", range(5))
def test_with_several_workers_no_trial_is_lost_doubled_or_left_running(seed: int):
    workers, store = Workers(4), Store()
    records = complete(study(), workers, store, random.Random(seed))
    assert len(records) == len(study().cells()) * (12 + 2) + 2
    assert not [r for r in records if r.status == "RUNNING"]
    assert len(set(workers.trained)) == len(workers.trained)


def test_the_number_of_workers_does_not_change_a_random_search_without_pruning():
    plain = study(search={"kind": "random", "trials": 6}, scheduler={"kind": "none"})
    one_worker, four_workers = (complete(plain, Workers(n), Store()) for n in (1, 4))
    assert {(r.key, r.outcome) for r in one_worker} == {(r.key, r.outcome) for r in four_workers}


def test_more_replicates_train_only_the_new_replicates():
    store = Store()
    before = {r.key for r in complete(study(), Workers(2), store)}
    workers = Workers(2)
    after = {r.key for r in complete(study(replicates=4), workers, store)}
    assert before < after
    assert {key for key, _ in workers.trained} == after - before


def test_a_new_axis_value_trains_only_the_new_cells():
    store, workers = Store(), Workers(2)
    before = {r.key for r in complete(study(), Workers(2), store)}
    complete(study(scientific={"training.loops": [1, 2, 4, 8], "training.window": [1, 2]}), workers, store)
    assert not {key for key, _ in workers.trained} & before
    assert len({key for key, _ in workers.trained}) == 2 * (12 + 2) - len(
        {r.key for r in store.records() if r.outcome == "diverged"} - before
    )


def test_new_values_of_a_grid_are_trained_wherever_they_lie():
    def grid_of(*rates: float):
        changes = {"search": {"kind": "grid"}, "nuisance": {"training.lr": {"choice": list(rates)}}}
        return study(scheduler={"kind": "none"}, **changes)

    store = Store()
    complete(grid_of(1e-2, 0.1), Workers(2), store)
    records = complete(grid_of(1e-4, 1e-3, 1e-2, 0.05, 0.1), Workers(2), store)
    for cell in study().cells():
        tried = [r.point["training.lr"] for r in records if r.cell == cell.key and r.role == "tuning"]
        assert sorted(tried) == [1e-4, 1e-3, 1e-2, 0.05, 0.1]


def test_a_longer_grid_still_contains_its_old_values():
    """The third of five values is 0.004999999999999999. The last of three values was 0.005."""

    def grid_up_to(highest: float, points: int):
        lr = {"real": [5e-4, highest], "scale": "log", "points": points}
        changes = {"search": {"kind": "grid"}, "nuisance": {"training.lr": lr}}
        return study(scheduler={"kind": "none"}, **changes)

    store = Store()
    complete(grid_up_to(5e-3, 3), Workers(2), store)
    records = complete(grid_up_to(5e-2, 5), Workers(2), store)
    for cell in study().cells():
        tried = sorted(r.point["training.lr"] for r in records if r.cell == cell.key and r.role == "tuning")
        assert tried == pytest.approx([5e-4 * 10 ** (n / 2) for n in range(5)])


def test_another_evaluation_trains_nothing_and_evaluates_the_reported_trials():
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


def test_rungs_compare_only_trials_of_the_same_cell():
    """A cell with much larger errors than another cell still finishes a third of its trials."""
    reduced = study(
        scientific={"training.loops": [1, 64]},
        nuisance={"training.lr": {"real": [5e-3, 2e-2], "scale": "log"}},
        evaluate={"loops": 64},
    )
    records = complete(reduced, Workers(1), Store())
    for cell in reduced.cells():
        tuned = [r for r in records if r.cell == cell.key and r.role == "tuning"]
        finished = [r for r in tuned if r.outcome == "finished"]
        assert 1 <= len(finished) < len(tuned)
    errors = {
        cell.values["training.loops"]: min(
            r.error for r in records if r.cell == cell.key and r.outcome == "finished"
        )
        for cell in reduced.cells()
    }
    assert errors[64] > 3 * errors[1]


def test_the_next_run_repeats_trials_that_failed_but_not_trials_that_diverged():
    buggy = Workers(1, fate=lambda job: diverges(job) or ("failed" if job.role == "replicate" else ""))
    store = Store()
    complete(study(), buggy, store)
    counts = Conductor(study(), store.records(), store).counts()
    failed = [r for r in store.records() if r.outcome == "failed"]
    assert len(failed) == 2 * len(study().cells()) == counts["waiting"]
    fixed = Workers(1)
    assert {r.outcome for r in complete(study(), fixed, store) if r.role == "replicate"} == {"finished"}
    assert {key for key, _ in fixed.trained} == {r.key for r in failed}


def test_a_lost_worker_is_replaced_a_limited_number_of_times():
    times: dict[str, int] = {}

    def fate(job: Job) -> str:
        times[job.key] = times.get(job.key, 0) + 1
        return "dies" if job.role == "replicate" and job.work.seed == 1 else diverges(job)  # pyright: ignore

    records = complete(study(), Workers(1, fate), Store())
    lost = [r for r in records if r.outcome == "lost"]
    assert len(lost) == len(study().cells())
    assert all(times[r.key] == 4 for r in lost)
    assert all("caught fire" in r.tags["detail"] and r.status == "FAILED" for r in lost)


def test_a_study_whose_workers_all_die_before_a_report_stops_with_the_reason():
    conductor = Conductor(study(baselines=[]), [], Store())
    for _ in range(MAX_SILENT_DEATHS):
        job = conductor.start_next()
        assert isinstance(job, Job)
        conductor.report_lost(job.key, "no module named torch")
    with pytest.raises(NoWorkers, match="no module named torch"):
        conductor.start_next()


def test_to_ask_for_the_next_job_writes_nothing_and_has_the_same_answer_again():
    store = Store()
    conductor = Conductor(study(), [], store)
    for _ in range(12):
        before = list(store.notes)
        answers = conductor.next(), conductor.next()
        assert store.notes == before
        job = conductor.start_next()
        assert isinstance(job, Job)
        assert answers[0] is answers[1] is job
        assert store.notes != before, "the start of the job is recorded"
        conductor.report(job.key, Report(outcome="diverged"))


def test_an_interrupted_trial_has_status_killed_and_the_next_run_resumes_it():
    store, workers = Store(), Workers(2)
    conductor = Conductor(study(), [], store)
    workers.drive(conductor, dies_after=30)
    conductor.interrupt()
    interrupted = {r.key for r in store.records() if r.outcome == "interrupted"}
    assert interrupted
    assert {r.status for r in store.records() if r.key in interrupted} == {"KILLED"}
    assert not [r for r in complete(study(), workers, store) if r.outcome in ("interrupted", "running")]
    assert len(set(workers.trained)) == len(workers.trained)


def test_the_search_avoids_regions_where_trials_diverge():
    reduced = study(
        scientific={"training.loops": [2]},
        scheduler={"kind": "none"},
        search={"kind": "tpe", "trials": 40},
        nuisance={"training.lr": {"real": [1e-3, 1.0]}},
    )
    records = [r for r in complete(reduced, Workers(1), Store()) if r.role == "tuning"]
    early, late = ([r.outcome == "diverged" for r in part] for part in (records[:10], records[-10:]))
    assert sum(early) >= 5 > 2 >= sum(late)


def test_the_search_of_a_small_space_ends_when_the_space_is_exhausted():
    reduced = study(nuisance={"training.lr": {"choice": [1e-3, 1e-2]}}, scheduler={"kind": "none"})
    records = complete(reduced, Workers(3), Store())
    for cell in reduced.cells():
        assert sorted(
            r.point["training.lr"] for r in records if r.cell == cell.key and r.role == "tuning"
        ) == [1e-3, 1e-2]


def test_a_cell_whose_trials_all_diverge_ends_without_replicates():
    records = complete(study(), Workers(2, fate=lambda job: "diverged"), Store())
    assert {r.role for r in records if r.role != "baseline"} == {"tuning"}


def test_a_point_outside_a_narrowed_range_leaves_the_study():
    store = Store()
    complete(study(), Workers(1), store)
    narrow = study(nuisance={"training.lr": {"real": [1e-4, 2e-3], "scale": "log"}})
    conductor = Conductor(narrow, store.records(), store)
    assert all(
        1e-4 <= job.point["training.lr"] <= 2e-3
        for cell_run in conductor.cell_runs.values()
        for job in cell_run.jobs.values()
    )


def test_a_nuisance_range_applies_only_to_cells_whose_kind_has_the_setting():
    reduced = study(
        scientific={"model": [{"kind": "gpt2", "layers": 2}, {"kind": "looped"}]},
        where="",
        nuisance={"training.window": {"integer": [1, 3]}, "training.lr": {"real": [1e-3, 1e-2]}},
        search={"kind": "random", "trials": 4},
    )
    records = [r for r in complete(reduced, Workers(1), Store()) if r.role == "tuning"]
    assert {(len(reduced.space(cell))) for cell in reduced.cells()} <= {1, 2}
    assert len(records) == 8


def test_the_next_driver_closes_a_run_whose_driver_died_after_the_outcome():
    store = Store()
    complete(study(), Workers(1), store)
    last = next(n for n in reversed(store.notes) if n.status == "FINISHED" and n.tags)
    store.notes[store.notes.index(last)] = replace(last, params={}, status="", artifacts=())
    assert [r.status for r in store.records() if r.key == last.key] == ["RUNNING"]
    assert Conductor(study(), store.records(), store).start_next() is Idle.DONE
    assert [r.status for r in store.records() if r.key == last.key] == ["FINISHED"]


def test_a_search_with_two_objectives_gets_both_and_the_best_trial_has_the_lowest_error():
    reduced = study(
        scientific={"training.loops": [2]},
        scheduler={"kind": "none"},
        replicates=1,
        search={"kind": "nsga2", "trials": 8, "objectives": ["error", "flops"]},
        nuisance={"training.lr": {"real": [1e-3, 0.1], "scale": "log"}, "model.width": {"choice": [4, 8]}},
    )
    store = Store()
    conductor = Conductor(reduced, [], store)
    assert Workers(1).drive(conductor)
    (cell_run,) = conductor.cell_runs.values()
    values = [trial.values for trial in cell_run.sampler.study.trials if trial.values]
    assert len({flops for _, flops in values}) == 2
    assert all(math.isfinite(flops) for _, flops in values)
    best = min((r for r in store.records() if r.role == "tuning"), key=lambda r: r.error)
    assert [r.point for r in store.records() if r.role == "replicate"] == [best.point]


def test_the_key_of_a_job_is_the_key_of_its_trial():
    job = Conductor(study(baselines=[]), [], Store()).start_next()
    assert isinstance(job, Job)
    assert isinstance(job.work, Trial)
    assert job.key == job.work.key == job.make_order(study().evaluate, "x", study().resources).key


@pytest.mark.slow
def test_a_study_of_a_thousand_trials_runs_to_its_end():
    large = study(search={"kind": "tpe", "trials": 200})
    assert len(complete(large, Workers(8), Store())) == len(large.cells()) * 202 + 2


def test_each_trial_records_its_commit_which_is_not_part_of_its_key():
    store = Store()
    conductor = Conductor(study(), [], store)
    conductor.services.commit_tags = {"git_commit": "abc", "git_changed": "no"}
    job = conductor.start_next()
    assert isinstance(job, Job)
    (record,) = store.records()
    assert (record.tags["git_commit"], record.key) == ("abc", job.key)


def test_a_finished_trial_whose_metrics_the_records_have_lost_is_told_by_its_checkpoint():
    plain = study(search={"kind": "tpe", "trials": 4}, scheduler={"kind": "none"})
    workers, store = Workers(1, lambda job: ""), Store()
    before = complete(plain, workers, store)
    lost = [record.key for record in before if record.role == "tuning"][:2]
    store.notes = [replace(note, metrics={}) if note.key in lost else note for note in store.notes]
    assert sum(math.isnan(record.error) for record in store.records() if record.role == "tuning") == 2
    after = complete(plain, workers, store)
    assert ends(after) == ends(before)
    assert {record.key: record.error for record in after if record.role == "tuning"} == {
        record.key: record.error for record in before if record.role == "tuning"
    }
    assert len(set(workers.trained)) == len(workers.trained), "a step was trained twice"
