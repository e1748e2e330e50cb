"""Folders and pipes in the place of files, and lost rows of metrics: found, mended, and no reader waits."""

import json
import os
import shutil
import sqlite3
import tempfile
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from loopscale.cli.main import main
from loopscale.runner.lease import lease
from loopscale.studies.spec import Study
from tests.cli.conftest import TINY, record


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("recorded") / "store"
    whole = TINY.replace("eval_every: 2", "eval_every: 4")  # the recording has one validation of a trial
    with record(root, Study.parse(whole, "tiny")) as recording:
        recording.whole()
    return root


@pytest.fixture
def store(recorded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))  # without the leftovers of others
    return Path(shutil.copytree(recorded, tmp_path / "store"))


Call = Callable[..., tuple[int, str, str]]


@pytest.fixture
def call(store: Path, capsys: pytest.CaptureFixture[str]) -> Call:
    def called(*words: str) -> tuple[int, str, str]:
        code = main([*words, "--store", str(store)])
        out, err = capsys.readouterr()
        assert "Traceback" not in err
        return code, out, err

    return called


def findings(call: Call, *words: str) -> list[dict]:
    return json.loads(call("doctor", "--json", *words)[1])["findings"]


def changed(store: Path, *statements: str) -> None:
    with closing(sqlite3.connect(store / "mlflow.db")) as database, database:
        for statement in statements:
            database.execute(statement)


KINDS = {
    "a folder": lambda path: path.mkdir(),
    "a pipe": os.mkfifo,
    "a device": lambda path: path.symlink_to("/dev/zero"),
    "a link to itself": lambda path: path.symlink_to(path),
}


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("path", ["locks/tiny.lock", "open.lock", "mirror/own/lock", "locks/tiny.lock.held"])
def test_what_stands_in_the_place_of_a_lock_is_moved_aside(call: Call, store: Path, path: str, kind: str):
    file = store / path
    assert call("list")[0] == 0
    file.unlink(missing_ok=True)
    file.parent.mkdir(parents=True, exist_ok=True)
    KINDS[kind](file)
    assert call("list")[0] == 0
    (finding,) = findings(call)
    assert (finding["check"], finding["place"]) == ("places", str(file))
    (mended,) = findings(call, "--repair")
    assert mended["mended"].startswith(f"renamed to {file.name}.")
    assert findings(call) == []
    with lease(store, "tiny"):
        pass


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("kind", KINDS)
def test_a_verb_that_needs_the_lock_names_its_place(call: Call, store: Path, kind: str):
    (store / "locks").mkdir(exist_ok=True)
    KINDS[kind](store / "locks" / "tiny.lock")
    code, _, err = call("rename", "tiny", "other")
    assert (code, err.count("\n")) == (2, 1)
    assert str(store / "locks") in err
    if "link" not in kind:
        assert (
            "tiny.lock (it is a folder, a pipe or a device); rename the path, or let `loopscale doctor" in err
        )


def test_a_pipe_in_the_place_of_weights_is_one_finding_beside_those_of_other_weights(call: Call, store: Path):
    rows = "FROM tags WHERE key = 'role' AND value = 'replicate' ORDER BY run_uuid LIMIT 3"
    changed(store, f"INSERT INTO tags (key, value, run_uuid) SELECT 'weights', 'kept', run_uuid {rows}")
    with closing(sqlite3.connect(store / "mlflow.db")) as database:
        keys = [
            key
            for (key,) in database.execute(
                "SELECT value FROM tags WHERE key = 'trial' AND run_uuid IN"
                " (SELECT run_uuid FROM tags WHERE key = 'weights') ORDER BY value"
            )
        ]
    (folder := store / "checkpoints").mkdir()
    os.mkfifo(folder / f"{keys[0]}.safetensors")
    (folder / f"{keys[1]}.safetensors").symlink_to("/dev/zero")
    (folder / f"{keys[2]}.safetensors").write_bytes(b"\0" * 9)
    found = [(each["check"], Path(each["place"]).stem) for each in findings(call)]
    assert found == [("places", keys[0]), ("places", keys[1]), ("weights", keys[2])]


def test_a_pipe_in_the_place_of_a_curve_is_a_missing_curve(call: Call, store: Path):
    changed(
        store,
        "INSERT INTO tags (key, value, run_uuid)"
        " SELECT 'evaluation', 'x', run_uuid FROM tags WHERE key = 'outcome'",
    )
    file = sorted(store.glob("artifacts/*/artifacts/curve.parquet"))[0]
    file.unlink()
    os.mkfifo(file)
    code, _, err = call("best", "tiny")
    assert (code, err.count("\n")) == (0, 1)
    assert "cannot be read (it is missing)" in err


LOSSES = {
    "all last values": "DELETE FROM latest_metrics",
    "some last values": "DELETE FROM latest_metrics WHERE key LIKE 'evaluate/%'",
    "all histories": "DELETE FROM metrics",
    "the histories of results": "DELETE FROM metrics WHERE key LIKE 'evaluate/%' OR key = 'error'",
    "other last values": "UPDATE latest_metrics SET value = value + 1 WHERE key = 'evaluate/error'",
}


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
def test_lost_rows_of_metrics_come_back_from_the_other_table(call: Call, store: Path, loss: str):
    tables = (
        "SELECT * FROM latest_metrics ORDER BY run_uuid, key",
        "SELECT * FROM metrics ORDER BY run_uuid, key",
    )

    def rows() -> list:
        with closing(sqlite3.connect(store / "mlflow.db")) as database:
            return [sorted(map(str, database.execute(table).fetchall())) for table in tables]

    before = rows()
    assert findings(call) == []
    changed(store, loss)
    found = findings(call)
    # A changed error contradicts the curve too, until the repair of the last values, which comes first.
    contradicted = {"curves"} if "UPDATE" in loss else set[str]()
    assert {each["check"] for each in found} == {"last values"} | contradicted
    assert sum(each["check"] == "last values" for each in found) == 12
    repaired = findings(call, "--repair")
    assert {each["check"] for each in repaired} == {"last values"}
    assert all(each["mended"] for each in repaired)
    assert findings(call) == []
    assert rows() == before


DAMAGED_DESCRIPTIONS = {
    "cells that are numbers": lambda text: json.dumps(json.loads(text) | {"cells": [1, 2]}),
    "a plan that is a text": lambda text: json.dumps(json.loads(text) | {"planned": "many"}),
    "too deep": lambda text: "[" * 100_000,
}


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("damage", DAMAGED_DESCRIPTIONS.values(), ids=DAMAGED_DESCRIPTIONS)
def test_a_description_of_another_form_comes_back(call: Call, store: Path, damage: Callable[[str], str]):
    before = call("best", "tiny", "--json")[1]
    (file,) = store.glob("artifacts/*/artifacts/study.json")
    kept = file.read_text()
    file.write_text(damage(kept))
    (finding,) = findings(call, "--repair")
    assert (finding["problem"], finding["mended"]) == (
        "the description is damaged",
        "restored from the mirror",
    )
    assert json.loads(file.read_text()) == json.loads(kept)
    assert call("best", "tiny", "--json")[1] == before


def test_the_file_and_the_description_come_back_at_once(call: Call, store: Path):
    assert call("best", "tiny")[0] == 0
    (store.parent / "tiny.yaml").write_text(TINY.replace("eval_every: 2", "eval_every: 4"))
    shutil.rmtree(store / "artifacts")
    mended = {each["place"]: each["mended"] for each in findings(call, "--repair")}
    assert mended["study.json of tiny"] == "restored from the mirror"
    assert mended["study.yaml of tiny"] == "restored from tiny.yaml"
    assert not any("tiny" in each["place"] for each in findings(call))
