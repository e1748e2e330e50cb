import json
import os
import socket
import struct
from pathlib import Path
from typing import Any

import pytest
import torch

from loopscale.evaluate import Evaluation, evaluate
from loopscale.models.base import Model
from loopscale.training import checkpoint
from loopscale.training.checkpoint import Checkpoint, CorruptCheckpoint, NewerFormat
from loopscale.training.loop import Progress, train
from loopscale.training.trial import Trial


def saved(trial: Trial, path: Path) -> Progress:
    """The end of the trial, with its checkpoint at `path`."""
    history = []
    for progress in train(trial):
        history.append((progress.step, progress.metrics))
    checkpoint.save(path, Checkpoint(progress.state(), tuple(history), 1.5))
    return progress


SETTINGS: list[dict[str, Any]] = [
    *({"kind": kind} for kind in Model.choices()),
    {"schedule": "cosine", "warmup": 3, "clip": 0.05},
    {"curriculum": {"dim": 1, "points": 2, "every": 3}},
    {"precision": "bf16"},
    {"precision": "float64"},
    {"truncate": False},
]


@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_a_trial_stopped_at_any_report_ends_bitwise_where_it_would_have(make, settings, tmp_path: Path):
    trial = make(**settings)
    whole, states = [], []
    for progress in train(trial):
        whole.append((progress.step, progress.metrics))
        path = tmp_path / f"{progress.step}.safetensors"
        checkpoint.save(path, Checkpoint(progress.state(), tuple(whole), 0.0))
        states.append(path)
    end = progress.state()
    for count, path in enumerate(states, 1):
        found = checkpoint.load(path)
        assert found is not None
        assert list(found.history) == whole[:count]
        rest = list(train(trial, found.state))
        assert [(progress.step, progress.metrics) for progress in rest] == whole[count:]
        if rest:
            again = rest[-1].state()
            assert all(torch.equal(again.net[name], end.net[name]) for name in end.net)
            for index, moments in end.optimiser["state"].items():
                for name, value in moments.items():
                    assert torch.equal(again.optimiser["state"][index][name], value)


def test_a_state_may_be_gone_on_from_twice(make):
    state = next(train(make())).state()
    once, again = ([progress.metrics for progress in train(make(), state)] for _ in range(2))
    assert once == again


def test_a_state_of_another_trial_is_refused(make):
    state = next(train(make())).state()
    with pytest.raises(ValueError, match="cannot go on from a state of trial"):
        next(train(make(lr=1.0), state))


@pytest.mark.parametrize("precision", ["float32", "bf16", "float64"])
def test_a_net_from_its_file_evaluates_exactly_as_the_one_in_memory(make, precision: str, tmp_path: Path):
    trial, path = make(precision=precision), tmp_path / "a.safetensors"
    end = saved(trial, path)
    evaluation = Evaluation(loops=8, prompts=64)
    ours = evaluate(end.learner.net, trial.task, evaluation)
    theirs = evaluate(checkpoint.load_net(path, trial), trial.task, evaluation)
    assert (ours.error == theirs.error).all()
    assert (ours.raw == theirs.raw).all()


def test_a_file_names_its_trial_by_itself(make, tmp_path: Path):
    path = tmp_path / "a.safetensors"
    trial = make(curriculum={"dim": 1, "points": 2, "every": 3}, clip=1.0)
    saved(trial, path)
    assert checkpoint.load_trial(path) == trial
    with pytest.raises(ValueError, match="is of trial"):
        checkpoint.load_net(path, make())


def test_no_file_is_no_checkpoint(make, tmp_path: Path):
    assert checkpoint.load(tmp_path / "a.safetensors") is None
    with pytest.raises(FileNotFoundError, match=r"a\.safetensors"):
        checkpoint.load_net(tmp_path / "a.safetensors", make())


@pytest.mark.parametrize("keep", [True, False])
def test_a_stripped_file_keeps_its_history_and_the_weights_asked_for(make, keep: bool, tmp_path: Path):
    trial, path = make(), tmp_path / "a.safetensors"
    saved(trial, path)
    before, size = checkpoint.load(path), path.stat().st_size
    checkpoint.strip(path, keep_weights=keep)
    checkpoint.strip(path, keep_weights=keep)
    after = checkpoint.load(path)
    assert before is not None
    assert after == Checkpoint(None, before.history, 1.5)
    assert path.stat().st_size < size / 2
    if keep:
        checkpoint.load_net(path, trial)
    else:
        with pytest.raises(ValueError, match="stripped of its weights"):
            checkpoint.load_net(path, trial)


def test_a_checkpoint_without_a_state_is_not_saved(tmp_path: Path):
    with pytest.raises(ValueError, match="nothing to go on from"):
        checkpoint.save(tmp_path / "a.safetensors", Checkpoint(None, (), 0.0))


def test_a_file_cut_anywhere_is_corrupt(make, tmp_path: Path):
    path = tmp_path / "a.safetensors"
    saved(make(), path)
    whole = path.read_bytes()
    for share in (0.0, 0.001, 0.1, 0.5, 0.99):
        path.write_bytes(whole[: int(len(whole) * share)])
        with pytest.raises(CorruptCheckpoint, match=r"a\.safetensors is damaged"):
            checkpoint.load(path)


def test_a_flipped_bit_anywhere_is_corrupt(make, tmp_path: Path):
    path = tmp_path / "a.safetensors"
    saved(make(), path)
    whole = bytearray(path.read_bytes())
    for position in range(8, len(whole), len(whole) // 60):
        flipped = bytearray(whole)
        flipped[position] ^= 1
        path.write_bytes(flipped)
        with pytest.raises(CorruptCheckpoint):
            checkpoint.load(path)


def test_a_file_of_something_else_is_corrupt(tmp_path: Path):
    path = tmp_path / "a.safetensors"
    path.write_bytes(struct.pack("<Q", 2) + b"{}")
    with pytest.raises(CorruptCheckpoint):
        checkpoint.load(path)


def test_a_newer_format_is_said_to_be_newer_not_corrupt(
    make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    path = tmp_path / "a.safetensors"
    monkeypatch.setattr(checkpoint, "FORMAT", 2)
    saved(make(), path)
    monkeypatch.undo()
    with pytest.raises(NewerFormat, match="has format 2, and this version reads up to 1"):
        checkpoint.load(path)


def test_a_write_that_fails_leaves_the_old_file_and_no_part(
    make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    path = tmp_path / "a.safetensors"
    saved(make(), path)
    whole = path.read_bytes()

    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        saved(make(seed=1), path)
    assert path.read_bytes() == whole
    assert [file.name for file in tmp_path.iterdir()] == ["a.safetensors"]


def test_leftovers_of_dead_writers_are_swept_and_no_others(tmp_path: Path):
    gone = os.spawnlp(os.P_NOWAIT, "true", "true")
    os.waitpid(gone, 0)
    here = socket.gethostname()
    dead = tmp_path / f"a.safetensors.{here}.{gone}.part"
    alive = tmp_path / f"b.safetensors.{here}.{os.getpid()}.part"
    elsewhere = tmp_path / f"c.safetensors.{here}-2.{gone}.part"
    long_ago = tmp_path / f"d.safetensors.{here}-2.{gone}.part"
    whole = tmp_path / "e.safetensors"
    for file in (dead, alive, elsewhere, long_ago, whole):
        file.write_bytes(b"x")
    os.utime(long_ago, (0, 0))
    assert checkpoint.sweep(tmp_path) == 2
    assert set(tmp_path.iterdir()) == {alive, elsewhere, whole}


def test_the_history_of_a_long_trial_is_kept_whole(make, tmp_path: Path):
    path = tmp_path / "a.safetensors"
    progress = next(train(make()))
    history = tuple((step, progress.metrics | {"loss": step / 3}) for step in range(1, 1001))
    checkpoint.save(path, Checkpoint(progress.state(), history, 0.0))
    found = checkpoint.load(path)
    assert found is not None
    assert found.history == json.loads(json.dumps(history), object_hook=dict) or found.history == history
