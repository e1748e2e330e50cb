"""Checkpoints after the end of studies, with real training and records, without Ray."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from loopscale.records.model import STUDY, WEIGHTS, Note
from loopscale.records.stores.base import Store
from loopscale.records.stores.opening import open_store
from loopscale.records.study_records import recorded_trials
from loopscale.records.writing.mlflow_writer import MlflowWriter
from loopscale.runner.decide.conductor import Conductor
from loopscale.runner.decide.job import Job
from loopscale.runner.on_ray.worker import work
from loopscale.runner.run import delete_leftovers, retain_weights
from loopscale.studies.spec import Study
from loopscale.training import checkpoint
from tests.buckets import CREDENTIALS, Bucket

TREE: dict[str, Any] = {
    "question": "What is left?",
    "fixed": {
        "task": {"kind": "linear_regression", "dim": 2, "points": 3},
        "model": {"kind": "looped", "width": 8, "heads": 1},
        "training": {"steps": 4, "loops": 2, "window": 1, "batch_size": 4, "eval_every": 2},
    },
    "scientific": {"training.window": [1, 2]},
    "nuisance": {"training.lr": {"real": [1e-4, 1e-1], "scale": "log"}},
    "search": {"kind": "random", "trials": 2},
    "replicates": 1,
    "evaluate": {"loops": 3, "prompts": 16},
}


@pytest.fixture(params=["folder", pytest.param("bucket", marks=pytest.mark.slow)])
def store(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    if request.param == "folder":
        yield open_store(tmp_path / "store", create=True)
        return
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    server = Bucket(tmp_path)
    server.start()
    yield open_store(tmp_path / "store", server.url, create=True)
    server.kill()


def run_study(store: Store, folder: Path, name: str, ended: bool = True, **changes: object) -> Conductor:
    """Run the study with one worker in this process. If not `ended`, the driver dies before the clean-up."""
    file = folder / f"{name}.yaml"
    file.write_text(yaml.safe_dump(TREE | changes))
    study = Study.load(str(file))
    records = list(recorded_trials(store, study.name))
    store.checkpoints.make()
    with MlflowWriter(store, study.name, {record.key: record.run for record in records}) as writer:
        conductor = Conductor(study, records, writer)
        writer.write(Note(STUDY, status="RUNNING"))
        while isinstance(job := conductor.start_next(), Job):
            for report in work(job.make_order(study.evaluate, store.checkpoints.url, study.resources)):
                if not conductor.report(job.key, report):
                    break
        assert writer.flush(60)
        if ended:
            retain_weights(conductor, store, records)
            delete_leftovers(store, study.name)
            writer.write(Note(STUDY, status="FINISHED"))
            assert writer.flush(60)
        assert not writer.refused
    return conductor


def checkpoint_contents(store: Store) -> dict[str, str]:
    """For each checkpoint: whole, weights, or history."""
    contents = {}
    for key in checkpoint.keys(store.checkpoints):
        saved = checkpoint.load(store.checkpoints, key)
        assert saved
        assert saved.history[-1][0] == 4
        try:
            checkpoint.load_net(store.checkpoints, key, checkpoint.load_trial(store.checkpoints, key))
            contents[key] = "whole" if saved.state else "weights"
        except checkpoint.Stripped:
            contents[key] = "history"
    return contents


def test_weights_of_replicates_and_best_trials_are_kept_and_recorded(store, tmp_path: Path):
    conductor = run_study(store, tmp_path, "one")
    assert len(conductor.kept_keys()) == 2 * 2
    assert checkpoint_contents(store) == {
        job.key: "weights" if job.key in conductor.kept_keys() else "history" for job in conductor.jobs()
    }
    for record in recorded_trials(store, "one"):
        attached = store.artifact(record.run, WEIGHTS)
        assert bool(attached) == (record.key in conductor.kept_keys())
        if attached:
            assert attached.read_bytes() == store.checkpoints.get(f"{record.key}.safetensors")


def test_checkpoints_that_another_study_may_resume_or_keeps_are_not_stripped(store, tmp_path: Path):
    first = run_study(store, tmp_path, "first", ended=False)
    second = run_study(store, tmp_path, "second")
    keys = {job.key for job in first.jobs()}
    assert keys == {job.key for job in second.jobs()}
    assert checkpoint_contents(store) == dict.fromkeys(keys, "whole")
    run_study(store, tmp_path, "first")
    kept = checkpoint_contents(store)
    assert kept == {key: "weights" if key in first.kept_keys() else "history" for key in keys}
    # The third study has one more trial per cell, so the trials that the others keep may not be its best.
    run_study(store, tmp_path, "third", replicates=1, search={"kind": "random", "trials": 3})
    assert all(
        checkpoint_contents(store)[key] in (state, "weights")
        for key, state in kept.items()
        if state == "weights"
    )


def test_damaged_checkpoints_lose_weights_and_no_result(tmp_path: Path):
    store = open_store(tmp_path / "store", create=True)
    conductor = run_study(store, tmp_path, "one", ended=False)
    kept = conductor.kept_keys()
    # Without its last byte, a checkpoint has a sound header and a changed tensor.
    damaged = {min(kept), min(job.key for job in conductor.jobs() if job.key not in kept)}
    for key in damaged:
        store.checkpoints.put(f"{key}.safetensors", store.checkpoints.get(f"{key}.safetensors")[:-1])
    records, notices = list(recorded_trials(store, "one")), list[str]()
    with MlflowWriter(store, "one", {record.key: record.run for record in records}) as writer:
        again = Conductor(conductor.study, records, writer)
        retain_weights(again, store, records, notices.append)
        assert writer.flush(60)
    (notice,) = notices
    assert min(kept) in notice
    assert "its weights are lost, and the results of the trial stay; `loopscale doctor --repair`" in notice
    weights = {record.key: record.tags.get("weights") for record in recorded_trials(store, "one")}
    expected = {key: "kept" if key in kept else "dropped" for key in weights}
    assert weights == expected | {min(kept): None}
    assert {record.outcome for record in recorded_trials(store, "one")} == {"finished"}


@pytest.mark.slow
def test_trials_of_cells_that_have_left_the_study_are_stripped(store, tmp_path: Path):
    both = run_study(store, tmp_path, "one", ended=False)
    run_study(store, tmp_path, "one", scientific={"training.window": [1]})
    gone = {job.key for job in both.jobs() if job.label.endswith("2")}
    assert len(gone) == 3
    assert {checkpoint_contents(store)[key] for key in gone} == {"history"}


def test_only_the_studys_own_ray_folder_is_deleted(store, tmp_path: Path):
    own, other = store.storage / "ray" / "a__one", store.storage / "ray" / "two"
    for folder in (own, other):
        folder.mkdir(parents=True)
        (folder / "tuner.pkl").write_bytes(b"x")
    delete_leftovers(store, "a/one")
    assert not own.exists()
    assert other.exists()
