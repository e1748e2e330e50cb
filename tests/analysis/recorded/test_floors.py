"""Floors of recorded tasks: saved, computed, and unknown."""

import json
from pathlib import Path

import numpy as np
import pytest

from loopscale.analysis.recorded.floors import (
    FLOORS_FILE,
    Floors,
    _sum,
    floor_key,
    save_floors,
    saved_form,
)
from loopscale.regret import floor
from loopscale.stats.learning import MeanFloor
from loopscale.tasks.base import Task

TASK = {"kind": "linear_regression", "dim": 2, "points": 4, "noise": 0.5}


def test_a_floor_is_computed_once_for_a_store_and_then_read_without_computing(tmp_path: Path):
    file = tmp_path / FLOORS_FILE
    assert Floors(file, file, compute=False).floor(TASK, "evaluate", 64) is None
    computed = Floors(file, file).floor(TASK, "evaluate", 64)
    saved = Floors(file, compute=False).floor(TASK, "evaluate", 64)
    exact = floor(Task.model_validate(TASK), "evaluate", 64).mean
    assert computed
    assert saved
    for known in (computed, saved):
        assert (known.how, known.name, known.measure) == ("bayes", "ridge", "regret")
        assert (known.error == exact.error).all()
        assert (known.ignorance == exact.ignorance).all()
    assert Floors(file, compute=False).floor(TASK, "validate", 64) is None
    assert Floors(file, compute=False).floor(TASK | {"noise": 0.4}, "evaluate", 64) is None


def test_an_unknown_floor_is_saved_as_json_without_nan(tmp_path: Path):
    unknown = MeanFloor("none", "", np.array([np.nan, np.nan]), np.array([1.0, 0.9]))
    save_floors(
        tmp_path / FLOORS_FILE, {floor_key(TASK, "evaluate", 8): saved_form(unknown, TASK, "evaluate", 8)}
    )
    json.loads((tmp_path / FLOORS_FILE).read_text(), parse_constant=pytest.fail)
    known = Floors(tmp_path / FLOORS_FILE, compute=False).floor(TASK, "evaluate", 8)
    assert known
    assert known.how == "none"
    assert np.isnan(known.error).all()
    assert known.ignorance.tolist() == [1, 0.9]


def forged(**changes: object) -> str:
    """A file with one floor whose sum fits its changed values."""
    entry = saved_form(MeanFloor("bayes", "ridge", np.zeros(1), np.ones(1)), TASK, "evaluate", 64) | changes
    return json.dumps({floor_key(TASK, "evaluate", 64): entry | {"sum": _sum(entry)}})


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        '{"a": 1}',
        forged(how="magic"),
        forged(name={"b": 1}),
        forged(error=[np.inf]),
        forged(error=[], ignorance=[]),
    ],
)
def test_a_damaged_file_of_floors_is_computed_again(tmp_path: Path, content: str):
    file = tmp_path / FLOORS_FILE
    file.write_text(content)
    assert Floors(file, compute=False).floor(TASK, "evaluate", 64) is None
    assert Floors(file, file).floor(TASK, "evaluate", 64)
    assert len(json.loads(file.read_text())) == 1


@pytest.mark.parametrize("change", ["value", "key", "no sum"])
def test_a_floor_that_somebody_has_changed_is_computed_again(tmp_path: Path, change: str):
    file = tmp_path / FLOORS_FILE
    exact = Floors(file, file).floor(TASK, "evaluate", 64)
    ((key, entry),) = json.loads(file.read_text()).items()
    if change == "value":
        entry["error"][0] *= 1.1
    elif change == "key":
        Floors(file, file).floor(TASK | {"noise": 0.1}, "evaluate", 64)
        entry = json.loads(file.read_text())[floor_key(TASK | {"noise": 0.1}, "evaluate", 64)]
    else:
        del entry["sum"]
    file.write_text(json.dumps({key: entry}))
    assert Floors(file, compute=False).floor(TASK, "evaluate", 64) is None
    computed = Floors(file, file).floor(TASK, "evaluate", 64)
    assert computed
    assert exact
    assert computed.error.tolist() == exact.error.tolist()


def test_floors_replace_a_link_and_not_its_target(tmp_path: Path):
    (tmp_path / "precious").write_text("mine")
    (tmp_path / FLOORS_FILE).symlink_to(tmp_path / "precious")
    assert Floors(tmp_path / FLOORS_FILE, tmp_path / FLOORS_FILE).floor(TASK, "evaluate", 64)
    assert (tmp_path / "precious").read_text() == "mine"
    assert len(json.loads((tmp_path / FLOORS_FILE).read_text())) == 1


def test_settings_of_another_version_have_no_floor():
    assert Floors().floor({"kind": "linear_regression", "dim": 2, "wheels": 4}, "evaluate", 64) is None
