import json
import os
import resource
import struct
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors import torch as safetensors

from loopscale.evaluate import Evaluation, evaluate
from loopscale.models import linear
from loopscale.models.base import Model
from loopscale.training import checkpoint
from loopscale.training.checkpoint import Checkpoint, CorruptCheckpoint, NewerFormat
from loopscale.training.checkpoint_stores import open_checkpoint_store
from loopscale.training.loop import Learner, Progress, train
from loopscale.training.trial import Trial

KEY = "a"
"""The key of a trial without a checkpoint."""


def saved(trial: Trial, folder: Path) -> Progress:
    """The last report of the trial. Its checkpoint lies in `folder`."""
    history = []
    for progress in train(trial):
        history.append((progress.step, progress.metrics))
    checkpoint.save(
        open_checkpoint_store(folder), trial.key, Checkpoint(progress.state(), tuple(history), 1.5)
    )
    return progress


SETTINGS: list[dict[str, Any]] = [
    *({"kind": kind} for kind in Model.choices()),
    {"schedule": "cosine", "warmup": 3, "clip": 0.05},
    {"curriculum": {"dim": 1, "points": 2, "every": 3}},
    {"precision": "bf16"},
    {"precision": "float64"},
    {"truncate": False},
]


@pytest.mark.quick_cases(5)
@pytest.mark.parametrize("settings", SETTINGS, ids=str)
def test_a_trial_resumed_from_any_report_ends_bitwise_equal(make, settings, tmp_path: Path):
    trial, store = make(**settings), open_checkpoint_store(tmp_path)
    whole, contents, file = [], [], tmp_path / f"{trial.key}.safetensors"
    for progress in train(trial):
        whole.append((progress.step, progress.metrics))
        checkpoint.save(store, trial.key, Checkpoint(progress.state(), tuple(whole), 0.0))
        contents.append(file.read_bytes())
    end = progress.state()
    for count, content in enumerate(contents, 1):
        file.write_bytes(content)
        restored = checkpoint.load(store, trial.key)
        assert restored is not None
        assert list(restored.history) == whole[:count]
        rest = list(train(trial, restored.state))
        assert [(progress.step, progress.metrics) for progress in rest] == whole[count:]
        if rest:
            again = rest[-1].state()
            assert all(torch.equal(again.net[name], end.net[name]) for name in end.net)
            for index, moments in end.optimizer["state"].items():
                for name, value in moments.items():
                    assert torch.equal(again.optimizer["state"][index][name], value)


def test_two_runs_from_the_same_state_are_equal(make):
    state = next(train(make())).state()
    once, again = ([progress.metrics for progress in train(make(), state)] for _ in range(2))
    assert once == again


def test_a_state_of_another_trial_is_refused(make):
    state = next(train(make())).state()
    with pytest.raises(ValueError, match="cannot go on from a state of trial"):
        next(train(make(lr=1.0), state))


@pytest.mark.parametrize("precision", ["float32", "bf16", "float64"])
def test_a_net_loaded_from_a_file_evaluates_exactly_as_the_net_in_memory(
    make, precision: str, tmp_path: Path
):
    trial = make(precision=precision)
    end = saved(trial, tmp_path)
    evaluation = Evaluation(loops=8, prompts=64)
    in_memory = evaluate(end.learner.net, trial.task, evaluation)
    from_file = evaluate(
        checkpoint.load_net(open_checkpoint_store(tmp_path), trial.key, trial), trial.task, evaluation
    )
    assert (in_memory.error == from_file.error).all()
    assert (in_memory.raw == from_file.raw).all()


def test_a_file_contains_its_trial(make, tmp_path: Path):
    store = open_checkpoint_store(tmp_path)
    trial = make(curriculum={"dim": 1, "points": 2, "every": 3}, clip=1.0)
    saved(trial, tmp_path)
    assert checkpoint.load_trial(store, trial.key) == trial
    with pytest.raises(ValueError, match="is of trial"):
        checkpoint.load_net(store, trial.key, make())
    (tmp_path / f"{trial.key}.safetensors").rename(tmp_path / f"{KEY}.safetensors")
    with pytest.raises(CorruptCheckpoint, match=f"it is of trial {trial.key}, not of {KEY}"):
        checkpoint.load_trial(store, KEY)


def test_without_a_file_there_is_no_checkpoint(make, tmp_path: Path):
    assert checkpoint.load(open_checkpoint_store(tmp_path), KEY) is None
    with pytest.raises(FileNotFoundError, match=r"a\.safetensors"):
        checkpoint.load_net(open_checkpoint_store(tmp_path), KEY, make())


@pytest.mark.parametrize("keep", [True, False])
def test_a_stripped_file_keeps_its_history_and_the_requested_weights(make, keep: bool, tmp_path: Path):
    trial, store = make(), open_checkpoint_store(tmp_path)
    path = tmp_path / f"{trial.key}.safetensors"
    saved(trial, tmp_path)
    before, size = checkpoint.load(store, trial.key), path.stat().st_size
    once = checkpoint.strip(store, trial.key, keep_weights=keep)
    assert checkpoint.strip(store, trial.key, keep_weights=keep) == once == path.read_bytes()
    after = checkpoint.load(store, trial.key)
    assert before is not None
    assert after == Checkpoint(None, before.history, 1.5)
    assert path.stat().st_size < size / 2
    if keep:
        checkpoint.load_net(store, trial.key, trial)
    else:
        with pytest.raises(ValueError, match="stripped of its weights"):
            checkpoint.load_net(store, trial.key, trial)


def test_a_checkpoint_without_a_state_is_not_saved(tmp_path: Path):
    with pytest.raises(ValueError, match="nothing to go on from"):
        checkpoint.save(open_checkpoint_store(tmp_path), KEY, Checkpoint(None, (), 0.0))


def test_a_truncated_file_is_corrupt(make, tmp_path: Path):
    trial, store = make(), open_checkpoint_store(tmp_path)
    path = tmp_path / f"{trial.key}.safetensors"
    saved(trial, tmp_path)
    whole = path.read_bytes()
    for share in (0.0, 0.001, 0.1, 0.5, 0.99):
        path.write_bytes(whole[: int(len(whole) * share)])
        with pytest.raises(CorruptCheckpoint, match=rf"{trial.key}\.safetensors is damaged"):
            checkpoint.load(store, trial.key)


def test_a_file_with_a_flipped_bit_is_corrupt(make, tmp_path: Path):
    trial, store = make(), open_checkpoint_store(tmp_path)
    path = tmp_path / f"{trial.key}.safetensors"
    saved(trial, tmp_path)
    whole = bytearray(path.read_bytes())
    for position in range(8, len(whole), len(whole) // 60):
        flipped = bytearray(whole)
        flipped[position] ^= 1
        path.write_bytes(flipped)
        with pytest.raises(CorruptCheckpoint):
            checkpoint.load(store, trial.key)


def test_a_file_without_a_checkpoint_is_corrupt(tmp_path: Path):
    (tmp_path / f"{KEY}.safetensors").write_bytes(struct.pack("<Q", 2) + b"{}")
    with pytest.raises(CorruptCheckpoint):
        checkpoint.load(open_checkpoint_store(tmp_path), KEY)


def test_a_newer_format_is_reported_as_newer_not_as_corrupt(
    make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(checkpoint, "FORMAT", 2)
    saved(make(), tmp_path)
    monkeypatch.undo()
    with pytest.raises(NewerFormat, match="has format 2, and this version reads up to 1"):
        checkpoint.load(open_checkpoint_store(tmp_path), make().key)


def test_a_long_history_is_kept_completely(make, tmp_path: Path):
    store = open_checkpoint_store(tmp_path)
    trial = make()
    progress = next(train(trial))
    history = tuple((step, progress.metrics | {"loss": step / 3}) for step in range(1, 1001))
    checkpoint.save(store, trial.key, Checkpoint(progress.state(), history, 0.0))
    restored = checkpoint.load(store, trial.key)
    assert restored is not None
    assert (
        restored.history == json.loads(json.dumps(history), object_hook=dict) or restored.history == history
    )


def test_a_resumed_trial_keeps_its_library_and_the_next_trial_does_not(make, tmp_path: Path):
    trial = make("looped")
    linear.use("mkl")
    learner = Learner(trial)
    other = "mkl" if linear.fastest() == "onednn" else "onednn"
    linear.use(other)
    store = open_checkpoint_store(tmp_path)
    checkpoint.save(store, trial.key, Checkpoint(learner.state(3), ((3, {}),), 1.0))
    linear.use(linear.fastest())
    saved = checkpoint.load(store, trial.key)
    assert saved
    assert saved.state
    next(train(trial, saved.state))
    assert linear.used() == other
    Learner(trial)
    assert linear.used() == linear.fastest()


HOSTILE: dict[str, Callable[[dict[str, Any], dict[str, torch.Tensor]], Any]] = {
    "other shapes": lambda header, net: {name: torch.zeros(3) for name in net},
    "a tensor more": lambda header, net: net | {"net/more": torch.zeros(3)},
    "a tensor less": lambda header, net: dict(list(net.items())[1:]),
    "integers": lambda header, net: {name: tensor.to(torch.int8) for name, tensor in net.items()},
    "complex numbers": lambda header, net: {name: tensor.to(torch.complex64) for name, tensor in net.items()},
    "nan": lambda header, net: {name: tensor * torch.nan for name, tensor in net.items()},
    "the state of an optimizer": lambda header, net: net | {"adam/0/step": torch.zeros(1)},
    "another trial": lambda header, net: header["trial"].update(seed=99),
    "an unknown task": lambda header, net: header["trial"].update(task={"kind": "absent"}),
    "a net of any size": lambda header, net: header["trial"]["model"].update(width=2**15),
}


@pytest.mark.quick_cases(3)
@pytest.mark.parametrize("harm", HOSTILE.values(), ids=HOSTILE)
def test_weights_of_another_net_are_refused_before_an_import(make, tmp_path: Path, harm: Callable):
    trial, store = make(kind="looped"), open_checkpoint_store(tmp_path)
    saved(trial, tmp_path)
    content = checkpoint.strip(store, trial.key, keep_weights=True)
    file = tmp_path / f"{trial.key}.safetensors"
    checkpoint.check_weights(file, trial.key)
    header, net = checkpoint._unpack("", trial.key, content)
    changed = harm(header, net)
    file.write_bytes(checkpoint._pack(header, net if changed is None else changed))
    with pytest.raises(CorruptCheckpoint, match="is damaged: "):
        checkpoint.check_weights(file, trial.key)


@pytest.mark.parametrize(
    "content", [b"", b"\x80\x04cposix\nsystem\n", b"\xff" * 30, struct.pack("<Q", 2**40) + b"{}"]
)
def test_other_files_are_no_weights(tmp_path: Path, content: bytes):
    (file := tmp_path / "a.safetensors").write_bytes(content)
    with pytest.raises(CorruptCheckpoint, match="is damaged: "):
        checkpoint.check_weights(file, "a")


@pytest.fixture
def little_memory() -> Iterator[None]:
    """This process gets at most 1 GiB more than it has."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + 2**30, hard))
    yield
    resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


def test_a_file_that_is_larger_than_the_memory_is_damaged(make, tmp_path: Path, little_memory: None):
    """A sparse file has any size, and needs no room on the disk."""
    trial, store = make(kind="looped"), open_checkpoint_store(tmp_path)
    saved(trial, tmp_path)
    checkpoint.strip(store, trial.key, keep_weights=True)
    os.truncate(file := tmp_path / f"{trial.key}.safetensors", 2**36)
    assert checkpoint.condition(store, trial.key, 1) == "damaged"
    with pytest.raises(CorruptCheckpoint, match="it is longer than the weights of its net"):
        checkpoint.check_weights(file, trial.key)


def test_a_checksum_of_numbers_without_a_type_in_numpy_is_damage(make, tmp_path: Path):
    trial, store = make(kind="looped"), open_checkpoint_store(tmp_path)
    saved(trial, tmp_path)
    file = tmp_path / f"{trial.key}.safetensors"
    header, net = checkpoint._unpack("", trial.key, file.read_bytes())
    text = json.dumps(header | {"sums": dict.fromkeys(net, 0)})
    halves = {name: tensor.to(torch.bfloat16) for name, tensor in net.items()}
    file.write_bytes(safetensors.save(halves, {"loopscale": text, "sum": str(zlib.crc32(text.encode()))}))
    assert checkpoint.condition(store, trial.key, 1) == "damaged"
