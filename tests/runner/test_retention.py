"""What is left of checkpoints when studies end, conducted with real training and records, without Ray."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from loopscale.records.model.note import STUDY, WEIGHTS, Note
from loopscale.records.stores.base import Store
from loopscale.records.stores.opening import open_store
from loopscale.records.trial_records import recorded_trials
from loopscale.records.writing.mlflow_writer import MlflowWriter
from loopscale.runner.decide.conductor import Conductor
from loopscale.runner.decide.job import Job
from loopscale.runner.on_ray.worker import work
from loopscale.runner.retention import collect, retain
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


def conducted(store: Store, folder: Path, name: str, ended: bool = True, **changes: object) -> Conductor:
    """The study trained by one worker in this process, to its end, or to where its driver died before retention."""
    file = folder / f"{name}.yaml"
    file.write_text(yaml.safe_dump(TREE | changes))
    study = Study.load(str(file))
    found = list(recorded_trials(store, study.name))
    store.checkpoints.make()
    with MlflowWriter(store, study.name, {record.key: record.run for record in found}) as writer:
        conductor = Conductor(study, found, writer)
        writer.write(Note(STUDY, status="RUNNING"))
        while isinstance(job := conductor.next(), Job):
            for report in work(job.ordered(evaluation=study.evaluate, shelf=store.checkpoints.url)):
                if not conductor.report(job.key, report):
                    break
        assert writer.flush(60)
        if ended:
            retain(conductor, store, found)
            collect(store, study.name)
            writer.write(Note(STUDY, status="FINISHED"))
            assert writer.flush(60)
        assert not writer.refused
    return conductor


def left(store: Store) -> dict[str, str]:
    """Of every checkpoint, whether it is whole, has weights, or its history alone."""
    found = {}
    for key in checkpoint.keys(store.checkpoints):
        saved = checkpoint.load(store.checkpoints, key)
        assert saved
        assert saved.history[-1][0] == 4
        try:
            checkpoint.load_net(store.checkpoints, key, checkpoint.load_trial(store.checkpoints, key))
            found[key] = "whole" if saved.state else "weights"
        except checkpoint.Stripped:
            found[key] = "history"
    return found


def test_weights_are_kept_of_replicates_and_of_the_best_and_handed_to_the_records(store, tmp_path: Path):
    conductor = conducted(store, tmp_path, "one")
    assert len(conductor.keepers) == 2 * 2
    assert left(store) == {
        job.key: "weights" if job.key in conductor.keepers else "history" for job in conductor.jobs()
    }
    for record in recorded_trials(store, "one"):
        attached = store.artifact(record.run, WEIGHTS)
        assert bool(attached) == (record.key in conductor.keepers)
        if attached:
            assert attached.read_bytes() == store.checkpoints.get(f"{record.key}.safetensors")


def test_what_another_study_may_go_on_from_or_keeps_is_left_to_it(store, tmp_path: Path):
    first = conducted(store, tmp_path, "first", ended=False)
    second = conducted(store, tmp_path, "second")
    keys = {job.key for job in first.jobs()}
    assert keys == {job.key for job in second.jobs()}
    assert left(store) == dict.fromkeys(keys, "whole")
    conducted(store, tmp_path, "first")
    kept = left(store)
    assert kept == {key: "weights" if key in first.keepers else "history" for key in keys}
    # A third needs one more trial a cell, so that what the others keep is no longer the best of its own.
    conducted(store, tmp_path, "third", replicates=0 + 1, search={"kind": "random", "trials": 3})
    assert all(left(store)[key] in (state, "weights") for key, state in kept.items() if state == "weights")


def test_trials_of_cells_that_have_left_the_study_are_stripped(store, tmp_path: Path):
    both = conducted(store, tmp_path, "one", ended=False)
    conducted(store, tmp_path, "one", scientific={"training.window": [1]})
    gone = {job.key for job in both.jobs() if job.label.endswith("2")}
    assert len(gone) == 3
    assert {left(store)[key] for key in gone} == {"history"}


def test_rays_folder_and_parts_of_dead_writers_are_gone_and_other_studies_stay(store, tmp_path: Path):
    mine, other = store.storage / "ray" / "a__one", store.storage / "ray" / "two"
    for folder in (mine, other):
        folder.mkdir(parents=True)
        (folder / "tuner.pkl").write_bytes(b"x")
    collect(store, "a/one")
    assert not mine.exists()
    assert other.exists()
