"""Floors kept beside checkpoints, and the learning that a trial records of itself."""

import math
from pathlib import Path

import numpy as np
import pytest
import torch

from loopscale.core.prompt_sets import VALIDATION_PROMPTS
from loopscale.regret import Floor, floor
from loopscale.tasks.base import Task
from loopscale.training import learning
from loopscale.training.checkpoint_stores import Folder
from loopscale.training.learning import FLOOR_SUFFIX, floor_name, kept_floor, learning_metrics

TASK = Task.model_validate({"kind": "linear_regression", "dim": 2, "points": 4, "noise": 0.5})
MIXTURE = Task.model_validate({"kind": "mixture_regression", "dim": 2, "points": 4, "target": "components"})


def forget() -> None:
    learning._kept_floor.cache_clear()


@pytest.mark.parametrize("task", [TASK, MIXTURE], ids=lambda task: task.kind)
def test_a_slow_floor_is_computed_once_for_all_workers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, task: Task
):
    monkeypatch.setattr(learning, "LEAST_SECONDS", 0.0)
    store = Folder(tmp_path)
    computed = kept_floor(store, task, "evaluate", 32)
    assert [name for name in store.names() if name.endswith(FLOOR_SUFFIX)] == [
        floor_name(task, "evaluate", 32)
    ]
    forget()  # as in another process
    monkeypatch.setattr(learning, "floor", pytest.fail)
    read = kept_floor(store, task, "evaluate", 32)
    assert (read.how, read.name) == (computed.how, computed.name)
    np.testing.assert_array_equal(read.errors, computed.errors)
    np.testing.assert_array_equal(read.ignorances, computed.ignorances)
    assert (read.best is None) == (computed.best is None)
    if read.best is not None and computed.best is not None:
        assert torch.equal(read.best, computed.best)


def test_a_quick_floor_leaves_no_file(tmp_path: Path):
    forget()
    assert kept_floor(Folder(tmp_path), TASK, "evaluate", 33).how == "bayes"
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("content", [b"", b"nonsense", b"PK\x03\x04"])
def test_a_damaged_floor_is_computed_again(tmp_path: Path, content: bytes):
    forget()
    Folder(tmp_path).put(floor_name(TASK, "evaluate", 34), content)
    assert kept_floor(Folder(tmp_path), TASK, "evaluate", 34).how == "bayes"


def reports(*errors: float) -> list[tuple[int, dict[str, float]]]:
    return [(100 * (place + 1), {"error": error}) for place, error in enumerate(errors)]


def test_a_training_records_its_emergence_and_the_fall_of_its_regret():
    known = floor(TASK)
    least, ignorance = known.error.mean(), known.ignorance.mean()
    level = least + (ignorance - least) * np.array([1, 0.98, 0.4, 0.99, 0.45, 0.4])
    noise = np.exp([0.02, -0.02, 0.02, -0.02, 0.02, -0.02])
    falling = least + 0.4 * (ignorance - least) * noise * 600 / np.arange(700, 1300, 100)
    metrics = learning_metrics(reports(*level, *falling), known)
    assert metrics["emerged_at"] == 500
    assert (metrics["validate_floor"], metrics["validate_ignorance"]) == (least, ignorance)
    assert 0 < metrics["still_falling_low"] < metrics["still_falling"] < metrics["still_falling_high"] < 1
    assert metrics["still_falling"] == pytest.approx(0.5, abs=0.1)


def test_a_training_on_the_plateau_records_a_floor_and_no_emergence():
    known = floor(TASK)
    metrics = learning_metrics(reports(*[known.ignorance.mean()] * 8), known)
    assert "emerged_at" not in metrics
    assert metrics["validate_floor"] == known.error.mean()


def test_a_task_without_a_floor_has_nothing_to_record():
    unknown = np.full((VALIDATION_PROMPTS, 3), math.nan)
    assert learning_metrics(reports(0.5, 0.4), Floor("none", "", unknown, np.ones_like(unknown))) == {}
    assert learning_metrics([], floor(TASK)) == {}
