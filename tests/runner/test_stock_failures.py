"""What fails in Ray Tune, Optuna and MLflow as they come, each as users reported it, holds here.

One test a complaint, named for it. Decisions are tested on simulated workers; what only the real engines can show is
read off one study that ran through them (`ran`).
"""

import shutil
from pathlib import Path

import pytest
import yaml
from optuna.trial import TrialState

from loopscale.runner.decide.conductor import Conductor
from loopscale.runner.decide.job import Job
from loopscale.runner.messages import Report
from loopscale.studies.spec import Mistakes
from loopscale.training.checkpoint import CorruptCheckpoint, load
from loopscale.training.checkpoint_stores import open_checkpoint_store
from tests.runner.drivers import Driver
from tests.runner.simulation import Store, Workers, complete, study


def dead(workers: Workers, store: Store, after: int, **changes: object) -> Conductor:
    """A driver that died after so many reports; its records and its workers' checkpoints are left."""
    conductor = Conductor(study(**changes), store.records(), store)
    assert not workers.drive(conductor, dies_after=after)
    return conductor


def test_a_scheduler_loses_its_rungs_on_restore():
    workers, store = Workers(1), Store()
    before = dead(workers, store, 150)
    after = Conductor(study(), store.records(), store)
    for key, bench in before.benches.items():
        assert after.benches[key].rungs.errors == bench.rungs.errors
    assert any(bench.rungs.errors for bench in after.benches.values())


def test_a_searcher_behind_its_storage_asks_a_point_twice_and_leaves_an_orphan():
    workers, store = Workers(2), Store()
    for _ in range(4):
        dead(workers, store, 25)
    records = complete(study(), workers, store)
    tuning = [(r.cell, r.point["training.lr"]) for r in records if r.role == "tuning"]
    assert len(tuning) == len(set(tuning)) == 12 * len(study().cells())
    conductor = Conductor(study(), store.records(), store)
    for bench in conductor.benches.values():
        assert not [t for t in bench.sampler.study.trials if t.state == TrialState.RUNNING]


def test_trials_begun_after_the_last_save_are_forgotten_and_done_again():
    workers, store = Workers(1), Store()
    dead(workers, store, 40)
    del store.notes[-20:]  # what the dead driver had not written yet
    complete(study(), workers, store)
    assert len(set(workers.trained)) == len(workers.trained)


def test_a_finished_experiment_cannot_be_extended():
    store = Store()
    complete(study(), Workers(1), store)
    assert len(complete(study(search={"kind": "tpe", "trials": 14}), Workers(1), store)) > 12 * len(
        study().cells()
    )


def test_replicates_break_on_resume():
    workers, store = Workers(3), Store()
    while not workers.drive(Conductor(study(replicates=5), store.records(), store), dies_after=70):
        pass
    for cell in study().cells():
        seeds = sorted(r.seed or 0 for r in store.records() if r.cell == cell.key and r.role == "replicate")
        assert seeds == [1, 2, 3, 4, 5]


def test_a_pruned_trial_is_told_as_complete_with_its_early_error():
    store = Store()
    conductor = Conductor(study(), [], store)
    assert Workers(1).drive(conductor)
    pruned = [job for job in conductor.jobs() if job.outcome == "pruned"]
    assert pruned
    for rebuilt in (conductor, Conductor(study(), store.records(), store)):
        states = [t.state for bench in rebuilt.benches.values() for t in bench.sampler.study.trials]
        assert states.count(TrialState.PRUNED) == len(pruned)


def test_a_diverged_trial_is_invisible_to_the_sampler():
    conductor = Conductor(study(), [], Store())
    assert Workers(1, fate=lambda job: "diverged").drive(conductor)
    for bench in conductor.benches.values():
        assert {t.value for t in bench.sampler.study.trials} == {float("inf")}


def test_a_nan_leaves_a_trial_running_for_ever():
    store = Store()
    conductor = Conductor(study(), [], store)
    job = conductor.next()
    while isinstance(job, Job) and job.role != "tuning":
        conductor.report(job.key, Report(outcome="finished"))
        job = conductor.next()
    assert isinstance(job, Job)
    assert not conductor.report(job.key, Report(outcome="diverged", detail="loss is nan at step 7"))
    (record,) = (r for r in store.records() if r.key == job.key)
    assert (record.status, record.outcome, record.tags["detail"]) == (
        "FAILED",
        "diverged",
        "loss is nan at step 7",
    )
    (trial,) = conductor.benches[job.cell].sampler.study.trials
    assert trial.state == TrialState.COMPLETE


def test_two_studies_share_one_search_by_a_default_name():
    first, second = (study(scientific={"training.loops": [n]}, where="") for n in (2, 4))
    points = [
        [r.point for r in complete(each, Workers(1), Store()) if r.role == "tuning"]
        for each in (first, second)
    ]
    assert points[0] != points[1]


def test_a_grid_cannot_be_crossed_with_an_adaptive_search():
    records = complete(study(), Workers(1), Store())
    points = {
        cell.key: {r.point["training.lr"] for r in records if r.cell == cell.key} for cell in study().cells()
    }
    assert all(len(found) == 12 for found in points.values())


def test_a_range_cannot_hold_for_some_kinds_only():
    one = study(
        scientific={"model": [{"kind": "gpt2"}, {"kind": "looped"}]}, where="",
        nuisance={"training.window": {"integer": [1, 3]}}, search={"kind": "random", "trials": 3},
    )  # fmt: skip
    spaces = {cell.values["model.kind"]: set(one.space(cell)) for cell in one.cells()}
    assert spaces == {"gpt2": set(), "looped": {"training.window"}}
    records = complete(one, Workers(1), Store())
    assert sum(r.role == "tuning" for r in records) == 3


def test_choices_that_are_components_break_the_storage():
    with pytest.raises(Mistakes, match="choice"):
        study(nuisance={"model": {"choice": [{"kind": "gpt2"}, {"kind": "looped"}]}})


def test_the_same_point_is_trained_again_and_again():
    one = study(nuisance={"model.heads": {"choice": [1, 2, 4]}}, search={"kind": "tpe", "trials": 10})
    records = complete(one, Workers(1), Store())
    tuned = [(r.cell, r.point["model.heads"]) for r in records if r.role == "tuning"]
    assert len(tuned) == len(set(tuned)) == 3 * len(one.cells())


def test_a_retry_opens_another_run():
    times: dict[str, int] = {}

    def dies_once(job: Job) -> str:
        times[job.key] = times.get(job.key, 0) + 1
        return "dies" if times[job.key] == 4 else ""

    store = Store()
    records = complete(study(scheduler={"kind": "none"}), Workers(2, dies_once), store)
    assert {r.outcome for r in records} == {"finished"}
    assert len(records) == len({r.key for r in records}) == 14 * len(study().cells()) + 2


def test_a_replay_after_a_restart_doubles_the_history():
    workers, store = Workers(1), Store()
    for seed in range(6):
        dead(workers, store, 10 + seed)
    complete(study(), workers, store)
    assert len(store.points()) == len(set(store.points()))


def test_a_bug_is_retried_as_if_it_were_the_machine():
    workers = Workers(1, fate=lambda job: "failed")
    records = complete(study(), workers, Store())
    assert {r.outcome for r in records if r.role == "tuning"} == {"failed"}
    assert not workers.trained


def test_a_checkpoint_that_is_a_pickle_runs_code(tmp_path: Path):
    bomb = tmp_path / "trial.safetensors"
    bomb.write_bytes(b"cos\nsystem\n(S'touch %s'\ntR." % str(tmp_path / "ran").encode())
    with pytest.raises(CorruptCheckpoint):
        load(open_checkpoint_store(tmp_path), "trial")
    assert not (tmp_path / "ran").exists()


# What only the real engines can show.

TREE = {
    "question": "Does the whole of it hold?",
    "fixed": {
        "task": {"kind": "linear_regression", "dim": 2, "points": 4},
        "model": {"kind": "looped", "width": 8, "heads": 2},
        "training": {"steps": 40, "loops": 3, "window": 2, "batch_size": 8, "eval_every": 10},
    },
    "scientific": {"training.loops": [2, 3]},
    "nuisance": {"training.lr": {"real": [1e-4, 1e30], "scale": "log"}},
    "search": {"kind": "random", "trials": 4},
    "replicates": 1,
    "evaluate": {"loops": 4, "prompts": 32},
    "baselines": ["least_squares"],
}


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Driver:
    folder = tmp_path_factory.mktemp("ran")
    (folder / "whole.yaml").write_text(yaml.safe_dump(TREE))
    driver = Driver(folder / "whole.yaml", folder)
    code, _, err = driver.finish()
    assert code == 0, err
    return driver


@pytest.mark.slow
def test_a_trial_that_diverged_ends_failed_with_its_reason(ran: Driver):
    found = ran.query(
        "SELECT r.status, d.value FROM runs r JOIN tags o ON o.run_uuid = r.run_uuid AND o.key = 'outcome' "
        "JOIN tags d ON d.run_uuid = r.run_uuid AND d.key = 'detail' WHERE o.value = 'diverged'"
    )
    assert found
    assert all(status == "FAILED" and "step" in detail for status, detail in found)


@pytest.mark.slow
def test_every_automatic_key_becomes_a_metric(ran: Driver):
    names = {name for (name,) in ran.query("SELECT DISTINCT key FROM metrics")}
    measured = {"loss", "error", "error_last", "lr", "step", "seconds", "flops"}
    assert {name for name in names if "." not in name and "/" not in name} == measured | {"seed"}


@pytest.mark.slow
def test_settings_cannot_be_sorted_by_because_they_are_text(ran: Driver):
    from loopscale.records.stores.store import Store as Records

    client = Records.open(ran.store).client
    (experiment,) = [e for e in client.search_experiments() if e.name == "whole"]
    found = client.search_runs(
        [experiment.experiment_id], "metrics.`training.loops` > 2", order_by=["metrics.`training.lr` ASC"]
    )
    rates = [run.data.metrics["training.lr"] for run in found]
    assert len(rates) == 5
    assert rates == sorted(rates)


@pytest.mark.slow
def test_a_corrupt_state_file_starts_the_experiment_over(ran: Driver):
    before = ran.saves()
    for file in (ran.store / "ray").rglob("*"):
        if file.is_file():
            file.write_bytes(b"\0garbage")
    assert ran.finish()[0] == 0
    shutil.rmtree(ran.store / "ray")
    assert ran.finish()[0] == 0
    assert ran.saves() == before
    ran.check(trials=2 * (4 + 1), baselines=1)


@pytest.mark.slow
def test_checkpoints_pile_up_and_the_weights_that_matter_are_not_uploaded(ran: Driver):
    weights = [path.parent.parent.name for path in (ran.store / "artifacts").rglob("weights.safetensors")]
    kept = [run for (run,) in ran.query("SELECT run_uuid FROM tags WHERE key = 'weights' AND value = 'kept'")]
    assert sorted(weights) == sorted(kept)
    replicates = {
        run for (run,) in ran.query("SELECT run_uuid FROM tags WHERE key = 'role' AND value = 'replicate'")
    }
    assert replicates < set(kept)
    assert len(kept) == len(replicates) + len(TREE["scientific"]["training.loops"])


@pytest.mark.slow
def test_runs_are_children_of_one_parent_that_says_where_they_come_from(ran: Driver):
    ((parent,),) = ran.query("SELECT run_uuid FROM tags WHERE key = 'role' AND value = 'study'")
    children = ran.query(f"SELECT run_uuid FROM tags WHERE key = 'mlflow.parentRunId' AND value = '{parent}'")
    assert len(children) == 2 * (4 + 1) + 1
    tags = dict(ran.query(f"SELECT key, value FROM tags WHERE run_uuid = '{parent}'"))
    assert tags["question"] == TREE["question"]
    assert {"version.torch", "version.ray", "version.python"} <= set(tags)
    files = {path.name for path in (ran.store / "artifacts" / parent).rglob("*.*")}
    assert {"study.yaml", "study.json", "report.html"} <= files
