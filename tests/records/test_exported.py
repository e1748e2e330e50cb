"""An export is read like a store and never written to. A damaged export gives an error of one line."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from loopscale.core.seeds import stream
from loopscale.records.mirror import Mirror
from loopscale.records.model import WEIGHTS, Note, StoreError
from loopscale.records.stores.base import Store
from loopscale.records.stores.exported import EXPORTED_COLUMNS
from loopscale.records.stores.opening import open_store
from loopscale.records.study_records import recorded_trials
from loopscale.records.transfer import (
    ExportCounts,
    ImportCounts,
    export_records,
    import_records,
    write_sheets,
)
from loopscale.records.writing.mlflow_writer import MlflowWriter
from loopscale.training.checkpoint import _pack
from loopscale.training.trial import Trial

ELSEWHERE = "/home/somebody/secret project"
TAGS = {
    "command": f"/home/somebody/env/bin/loopscale run {ELSEWHERE}/studies/one.yaml --store /data/records --workers 2",
    "source_file": "/home/somebody/lab/studies/deep/one.yaml",
    "git_commit": "abc",
    "git_changed": "yes",
    "question": "Is 1/2 more than 1/3? See https://example.org/a/b.",
}
DETAIL = f"""Traceback (most recent call last):
  File "{ELSEWHERE}/src/loopscale/training/loop.py", line 7, in train
  File "/usr/lib/python3/site-packages/torch/nn.py", line 1
OSError: cannot open '/mnt/data set/x.bin', nor file:///home/somebody/y"""
TRIAL = Trial.model_validate(
    {
        "task": {"kind": "linear_regression", "dim": 2, "points": 4},
        "model": {"kind": "looped", "width": 4, "heads": 1},
        "training": {"steps": 20},
        "seed": 1,
    }
)
KEPT = TRIAL.key
"""The key of the trial with kept weights. The other trial is b."""
HEADER = {"format": 1, "key": KEPT, "trial": TRIAL.model_dump(mode="json"), "step": 20, "history": []}
WEIGHTS_OF_NET = TRIAL.model.build(TRIAL.task.prompt, stream(1, "weights")).state_dict()
NET = _pack(
    HEADER | {"seconds": 1.0, "param_groups": [], "stripped": True},
    {f"net/{name}": tensor for name, tensor in WEIGHTS_OF_NET.items()},
)
"""Kept weights of the trial. An import checks them."""
TABLES = {
    "trials": "SELECT * FROM trials ORDER BY trial",
    "history": "SELECT * FROM history ORDER BY ALL",
    "curves": "SELECT * FROM curves ORDER BY ALL",
    "studies": "SELECT study, question, commit, json FROM studies",
}


def written(store: Store, trials) -> None:
    with MlflowWriter(store, "one", {}) as writer:
        description = (
            ("study.json", b'{"question": "why?", "cells": []}'),
            ("study.yaml", b"question: why?\n"),
        )
        writer.write(Note("study", tags=TAGS, artifacts=description, status="FINISHED"))
        for note in [*trials.whole(KEPT, 0.5), *trials.whole("b"), trials.begun("c"), trials.at("c", 10)]:
            writer.write(note)
        tags = {"weights": "kept", "detail": DETAIL, "git_commit": "abc", "git_changed": "no"}
        writer.write(Note(KEPT, 20, {"rung/10": 0.5, "flops": 1e12}, tags=tags, artifacts=((WEIGHTS, NET),)))
        assert writer.flush(30)


@pytest.fixture
def filled(store: Store, trials) -> Store:
    written(store, trials)
    return store


@pytest.fixture
def folder(filled: Store, tmp_path: Path) -> Path:
    export_records(filled, "one", tmp_path / "out", weights=True)
    return tmp_path / "out"


def answers(store: Store) -> dict[str, list[dict[str, Any]]]:
    mirror = Mirror(store)
    mirror.sync()
    return {name: mirror.query(sql).to_pylist() for name, sql in TABLES.items()}


def everything(folder: Path) -> str:
    """All text of an export."""
    return "\n".join(str(parquet.read_table(file).to_pylist()) for file in sorted(folder.glob("*.parquet")))


def test_an_export_gives_the_same_answers_as_its_store(filled: Store, folder: Path):
    exported, stored = answers(open_store(folder)), answers(filled)
    for name in ("history", "curves"):
        assert exported[name] == [row for row in stored[name] if row["trial"] != "c"]
    finished = [row for row in stored["trials"] if row["trial"] != "c"]
    assert [row | {"detail": None} for row in exported["trials"]] == [
        row | {"detail": None} for row in finished
    ]
    assert {row["trial"]: row["commit"] for row in exported["trials"]} == {KEPT: "abc", "b": None}
    assert exported["studies"][0]["commit"] == "abc-dirty"
    assert exported["studies"][0]["json"] == '{"question": "why?", "cells": []}'
    first, _ = recorded_trials(open_store(folder), "one")
    assert (first.rungs, first.metrics["flops"], first.step) == ({10: 0.5}, 1e12, 20)


def test_reading_an_export_writes_nothing(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    before = sorted(tmp_path.rglob("*"))
    answers(open_store(folder))
    assert sorted(tmp_path.rglob("*")) == before


def test_nothing_is_recorded_in_an_export(folder: Path):
    with pytest.raises(StoreError, match="holds exported records, which are only read; give another --store"):
        open_store(folder, create=True)
    with pytest.raises(StoreError, match="`loopscale import` takes them into a store"):
        open_store(folder).client  # noqa: B018


def test_an_export_contains_no_folders_of_the_exporting_machine(folder: Path):
    content = everything(folder)
    assert all(part not in content for part in ("/home", "somebody", "/data", "/mnt", "/usr", "secret/"))
    (study,) = parquet.read_table(folder / "studies.parquet").to_pylist()
    tags = json.loads(study["tags"])
    assert tags["source_file"] == "studies/deep/one.yaml"
    assert tags["command"].startswith("loopscale run ")
    assert tags["command"].endswith("studies/one.yaml --store records --workers 2")
    assert tags["question"] == TAGS["question"]
    detail = next(
        json.loads(row["tags"]) for row in parquet.read_table(folder / "trials.parquet").to_pylist()
    )["detail"]
    assert detail.splitlines()[1:] == [
        '  File "loopscale/training/loop.py", line 7, in train',
        '  File "site-packages/torch/nn.py", line 1',
        "OSError: cannot open 'x.bin', nor y",
    ]


def test_weights_are_exported_only_on_request(filled: Store, tmp_path: Path):
    assert export_records(filled, None, tmp_path / "with", weights=True) == ExportCounts(trials=2, weights=1)
    assert export_records(filled, None, tmp_path / "without") == ExportCounts(trials=2, weights=0)
    assert [file.name for file in tmp_path.glob("with*/weights/*")] == [f"{KEPT}.safetensors"]
    exported = open_store(tmp_path / "with")
    run = next(record.run for record in recorded_trials(exported, "one") if record.key == KEPT)
    assert exported.artifact(run, WEIGHTS, tmp_path) == tmp_path / f"with/weights/{KEPT}.safetensors"
    other = open_store(tmp_path / "other", create=True)
    assert import_records(other, tmp_path / "with") == ImportCounts(new=2, present=0)
    run = next(record.run for record in recorded_trials(other, "one") if record.key == KEPT)
    assert (other.artifact(run, WEIGHTS) or Path()).read_bytes() == NET


def test_an_export_replaces_an_earlier_export_in_the_same_folder(filled: Store, folder: Path):
    export_records(filled, "one", folder)
    assert not (folder / "weights").exists()
    assert len(answers(open_store(folder))["trials"]) == 2


def test_an_export_can_be_exported_again(folder: Path, tmp_path: Path):
    export_records(open_store(folder), None, tmp_path / "again", weights=True)
    assert answers(open_store(tmp_path / "again")) == answers(open_store(folder))
    assert open_store(tmp_path / "again").parent_run("one")
    assert (tmp_path / f"again/weights/{KEPT}.safetensors").read_bytes() == NET


def test_an_export_does_not_overwrite_a_store(filled: Store):
    with pytest.raises(StoreError, match="is a store; give a folder of its own"):
        export_records(filled, "one", filled.storage)


@pytest.mark.parametrize("target", ["mirror", "artifacts/deep", "reports/out", "link"])
def test_an_export_is_written_into_no_folder_of_a_store(filled: Store, tmp_path: Path, target: str):
    """A file of a store that an export replaces is lost."""
    (tmp_path / "link").symlink_to("store/mirror")
    folder = tmp_path / target if target == "link" else filled.storage / target
    before = sorted(tmp_path.rglob("*"))
    for write in (
        lambda: export_records(filled, "one", folder),
        lambda: write_sheets(filled, "one", folder, "csv"),
        lambda: write_sheets(filled, "one", folder, "parquet"),
    ):
        with pytest.raises(StoreError) as caught:
            write()
        place = f"{folder} lies in the store {filled.storage}"
        assert str(caught.value) == f"{place}; give a folder outside of all stores"
    assert sorted(tmp_path.rglob("*")) == before


def test_tables_do_not_overwrite_a_store_nor_an_export(filled: Store, folder: Path):
    """The tables for pandas have the names of an export's tables, and other columns."""
    with pytest.raises(StoreError, match="is a store; give a folder of its own"):
        write_sheets(filled, "one", filled.storage, "csv")
    before = answers(open_store(folder))
    with pytest.raises(StoreError, match="holds exported records; give a folder of its own"):
        write_sheets(filled, "one", folder, "parquet")
    assert answers(open_store(folder)) == before


def test_an_export_does_not_replace_itself(folder: Path):
    """Without weights, an export deletes the weights of an earlier export in the same folder."""
    with pytest.raises(StoreError, match="is the store itself; give another folder"):
        export_records(open_store(folder), None, folder)
    assert (folder / f"weights/{KEPT}.safetensors").read_bytes() == NET


def test_a_database_of_mlflow_alone_makes_no_store_of_its_folder(filled: Store, tmp_path: Path):
    """MLflow writes mlflow.db into the current folder, say a home folder."""
    (tmp_path / "home").mkdir()
    (tmp_path / "home/mlflow.db").write_bytes(b"")
    assert export_records(filled, "one", tmp_path / "home/out").trials == 2


def test_an_empty_export_has_no_studies(store: Store, tmp_path: Path):
    assert export_records(store, None, tmp_path / "out") == ExportCounts(0, 0)
    assert open_store(tmp_path / "out").studies() == []


def rewritten(folder: Path, table: str, change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    file = folder / f"{table}.parquet"
    parquet.write_table(
        pa.Table.from_pylist([change(row) for row in parquet.read_table(file).to_pylist()]), file
    )


LOST = "is missing or damaged"
HARM: dict[str, tuple[Callable[[Path], Any], str]] = {
    "no trials": (lambda folder: (folder / "trials.parquet").unlink(), f"trials.parquet {LOST}"),
    "no studies": (lambda folder: (folder / "studies.parquet").unlink(), f"studies.parquet {LOST}"),
    "no curves": (lambda folder: (folder / "curves.parquet").unlink(), f"curves.parquet {LOST}"),
    "no history": (lambda folder: (folder / "history.parquet").unlink(), f"history.parquet {LOST}"),
    "no Parquet": (lambda folder: (folder / "curves.parquet").write_bytes(b"x"), f"curves.parquet {LOST}"),
    "cut short": (
        lambda folder: (folder / "history.parquet").write_bytes(
            (folder / "history.parquet").read_bytes()[:99]
        ),
        f"history.parquet {LOST}",
    ),
    "a column less": (
        lambda folder: rewritten(folder, "curves", lambda row: {k: v for k, v in row.items() if k != "sem"}),
        "curves.parquet has no sem; export again",
    ),
    "another type": (
        lambda folder: rewritten(folder, "trials", lambda row: row | {"start": "x"}),
        "holds string where start should be number",
    ),
    "tags that are none": (
        lambda folder: rewritten(folder, "trials", lambda row: row | {"tags": "[1]"}),
        "holds something else than exported records",
    ),
    "settings that are none": (
        lambda folder: rewritten(folder, "trials", lambda row: row | {"settings": "{"}),
        "holds something else than exported records",
    ),
    "a history of nobody": (
        lambda folder: rewritten(folder, "trials", lambda row: row | {"metrics": '{"error": "x"}'}),
        "holds something else than exported records",
    ),
    "no count": (
        lambda folder: (folder / "export.json").write_text('{"format": 1}'),
        "export.json is damaged or unreadable; export again",
    ),
    "half a description": (
        lambda folder: (folder / "export.json").write_text((folder / "export.json").read_text()[:20]),
        "export.json is damaged or unreadable; export again",
    ),
    "newer": (
        lambda folder: (folder / "export.json").write_text('{"format": 9, "made_by": "9.9", "trials": 2}'),
        "install a newer loopscale",
    ),
}


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize(("harm", "message"), HARM.values(), ids=HARM.keys())
def test_a_damaged_export_gives_an_error_of_one_line(folder: Path, harm: Callable[[Path], Any], message: str):
    harm(folder)
    with pytest.raises(StoreError) as caught:
        answers(open_store(folder))
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_key_that_is_a_path_gives_access_to_no_file(folder: Path, tmp_path: Path):
    (tmp_path / "x.safetensors").write_bytes(b"secret")
    rewritten(folder, "trials", lambda row: row | {"trial": "../../x", "run": "r"})
    with pytest.raises(StoreError, match="is no trial's key"):
        open_store(folder).artifact("r", WEIGHTS, tmp_path)


def test_every_table_of_an_export_is_checked(folder: Path):
    assert {file.stem for file in folder.glob("*.parquet")} == set(EXPORTED_COLUMNS)
