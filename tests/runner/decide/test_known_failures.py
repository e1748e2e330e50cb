"""Known failures of Ray Tune and Optuna, as users reported them, do not occur. Docstrings quote the reports."""

import pytest
from optuna.trial import TrialState

from loopscale.notation.mistakes import Mistakes
from loopscale.runner.decide.conductor import Conductor
from loopscale.runner.decide.job import Job, Report
from tests.runner.simulated_study import Store, Workers, complete, study


def drive_until_death(workers: Workers, store: Store, after: int, **changes: object) -> Conductor:
    """Run a driver that dies after so many reports. Its records and its workers' checkpoints remain."""
    conductor = Conductor(study(**changes), store.records(), store)
    assert not workers.drive(conductor, dies_after=after)
    return conductor


def test_rungs_are_the_same_after_a_restore():
    """A scheduler loses its rungs on restore."""
    workers, store = Workers(1), Store()
    before = drive_until_death(workers, store, 150)
    after = Conductor(study(), store.records(), store)
    for key, cell_run in before.cell_runs.items():
        assert after.cell_runs[key].rungs.errors == cell_run.rungs.errors
    assert any(cell_run.rungs.errors for cell_run in after.cell_runs.values())


def test_a_restored_search_suggests_each_point_once_and_leaves_no_running_trial():
    """A searcher that is behind its storage suggests a point twice and leaves an orphan."""
    workers, store = Workers(2), Store()
    for _ in range(4):
        drive_until_death(workers, store, 25)
    records = complete(study(), workers, store)
    tuning = [(r.cell, r.point["training.lr"]) for r in records if r.role == "tuning"]
    assert len(tuning) == len(set(tuning)) == 12 * len(study().cells())
    conductor = Conductor(study(), store.records(), store)
    for cell_run in conductor.cell_runs.values():
        assert not [t for t in cell_run.sampler.study.trials if t.state == TrialState.RUNNING]


def test_trials_that_the_dead_driver_had_not_recorded_are_not_trained_again():
    """Trials that started after the last save are forgotten and trained again."""
    workers, store = Workers(1), Store()
    drive_until_death(workers, store, 40)
    del store.notes[-20:]  # notes that the dead driver had not written
    complete(study(), workers, store)
    assert len(set(workers.trained)) == len(workers.trained)


def test_a_finished_study_can_be_extended():
    """A finished experiment cannot be extended."""
    store = Store()
    complete(study(), Workers(1), store)
    assert len(complete(study(search={"kind": "tpe", "trials": 14}), Workers(1), store)) > 12 * len(
        study().cells()
    )


def test_all_replicates_exist_after_a_resume():
    """Replicates break on resume."""
    workers, store = Workers(3), Store()
    while not workers.drive(Conductor(study(replicates=5), store.records(), store), dies_after=70):
        pass
    for cell in study().cells():
        seeds = sorted(r.seed or 0 for r in store.records() if r.cell == cell.key and r.role == "replicate")
        assert seeds == [1, 2, 3, 4, 5]


def test_the_sampler_sees_pruned_trials_as_pruned():
    """A pruned trial is told as complete, with its early error."""
    store = Store()
    conductor = Conductor(study(), [], store)
    assert Workers(1).drive(conductor)
    pruned = [job for job in conductor.jobs() if job.outcome == "pruned"]
    assert pruned
    for rebuilt in (conductor, Conductor(study(), store.records(), store)):
        states = [t.state for cell_run in rebuilt.cell_runs.values() for t in cell_run.sampler.study.trials]
        assert states.count(TrialState.PRUNED) == len(pruned)


def test_the_sampler_sees_diverged_trials_with_an_infinite_error():
    """A diverged trial is invisible to the sampler."""
    conductor = Conductor(study(), [], Store())
    assert Workers(1, fate=lambda job: "diverged").drive(conductor)
    for cell_run in conductor.cell_runs.values():
        assert {t.value for t in cell_run.sampler.study.trials} == {float("inf")}


def test_a_trial_with_nan_ends_as_diverged():
    """A nan leaves a trial running for ever."""
    store = Store()
    conductor = Conductor(study(), [], store)
    job = conductor.start_next()
    while isinstance(job, Job) and job.role != "tuning":
        conductor.report(job.key, Report(outcome="finished"))
        job = conductor.start_next()
    assert isinstance(job, Job)
    assert not conductor.report(job.key, Report(outcome="diverged", detail="loss is nan at step 7"))
    (record,) = (r for r in store.records() if r.key == job.key)
    assert (record.status, record.outcome, record.tags["detail"]) == (
        "FAILED",
        "diverged",
        "loss is nan at step 7",
    )
    (trial,) = conductor.cell_runs[job.cell].sampler.study.trials
    assert trial.state == TrialState.COMPLETE


def test_two_studies_have_independent_searches():
    """Two studies share one search through a default name."""
    first, second = (study(scientific={"training.loops": [n]}, where="") for n in (2, 4))
    points = [
        [r.point for r in complete(loops, Workers(1), Store()) if r.role == "tuning"]
        for loops in (first, second)
    ]
    assert points[0] != points[1]


def test_each_cell_of_a_grid_has_an_adaptive_search_of_its_own():
    """A grid cannot be crossed with an adaptive search."""
    records = complete(study(), Workers(1), Store())
    points = {
        cell.key: {r.point["training.lr"] for r in records if r.cell == cell.key} for cell in study().cells()
    }
    assert all(len(rates) == 12 for rates in points.values())


def test_a_range_can_apply_to_some_kinds_only():
    """A range cannot apply to some kinds only."""
    reduced = study(
        scientific={"model": [{"kind": "gpt2"}, {"kind": "looped"}]},
        where="",
        nuisance={"training.window": {"integer": [1, 3]}},
        search={"kind": "random", "trials": 3},
    )
    spaces = {cell.values["model.kind"]: set(reduced.space(cell)) for cell in reduced.cells()}
    assert spaces == {"gpt2": set(), "looped": {"training.window"}}
    records = complete(reduced, Workers(1), Store())
    assert sum(r.role == "tuning" for r in records) == 3


def test_components_as_choices_are_refused():
    """Components as choices break the storage."""
    with pytest.raises(Mistakes, match="choice"):
        study(nuisance={"model": {"choice": [{"kind": "gpt2"}, {"kind": "looped"}]}})


def test_no_point_is_trained_twice():
    """The same point is trained again and again."""
    reduced = study(nuisance={"model.heads": {"choice": [1, 2, 4]}}, search={"kind": "tpe", "trials": 10})
    records = complete(reduced, Workers(1), Store())
    tuned = [(r.cell, r.point["model.heads"]) for r in records if r.role == "tuning"]
    assert len(tuned) == len(set(tuned)) == 3 * len(reduced.cells())


def test_a_retry_continues_the_same_run():
    """A retry opens another run."""
    times: dict[str, int] = {}

    def dies_once(job: Job) -> str:
        times[job.key] = times.get(job.key, 0) + 1
        return "dies" if times[job.key] == 4 else ""

    store = Store()
    records = complete(study(scheduler={"kind": "none"}), Workers(2, dies_once), store)
    assert {r.outcome for r in records} == {"finished"}
    assert len(records) == len({r.key for r in records}) == 14 * len(study().cells()) + 2


def test_a_restart_does_not_double_the_history():
    """A replay after a restart doubles the history."""
    workers, store = Workers(1), Store()
    for seed in range(6):
        drive_until_death(workers, store, 10 + seed)
    complete(study(), workers, store)
    assert len(store.points()) == len(set(store.points()))


def test_a_bug_is_not_retried_in_the_same_run():
    """A bug is retried like a failure of the machine."""
    workers = Workers(1, fate=lambda job: "failed")
    records = complete(study(), workers, Store())
    assert {r.outcome for r in records if r.role == "tuning"} == {"failed"}
    assert not workers.trained
