"""Records are carried from one store to another, completely and once."""

import json
from pathlib import Path

import pytest

from loopscale.records.mirror import Mirror
from loopscale.records.model import Note, StoreError
from loopscale.records.stores.base import Store
from loopscale.records.stores.opening import open_store
from loopscale.records.study_records import recorded_trials
from loopscale.records.transfer import ExportCounts, ImportCounts, export_records, import_records
from loopscale.records.writing.mlflow_writer import MlflowWriter

TABLES = {
    "trials": "SELECT * FROM trials ORDER BY trial",
    "history": "SELECT * FROM history ORDER BY ALL",
    "curves": "SELECT * FROM curves ORDER BY ALL",
}


@pytest.fixture
def other(tmp_path: Path) -> Store:
    return open_store(tmp_path / "other", create=True)


@pytest.fixture
def filled(store: Store, trials) -> Store:
    with MlflowWriter(store, "one", {}) as writer:
        writer.write(
            Note(
                "study",
                tags={"commit": "abc"},
                artifacts=(("study.json", b'{"question": "why?", "cells": []}'),),
            )
        )
        for note in [*trials.whole("a", 0.5), *trials.whole("b"), trials.begun("c"), trials.at("c", 10)]:
            writer.write(note)
        writer.write(
            Note("a", 20, {"rung/10": 0.5, "flops": 1e12}, artifacts=(("weights.safetensors", b"w"),))
        )
        assert writer.flush(30)
    return store


def answers(store: Store, name: str) -> list[dict[str, object]]:
    mirror = Mirror(store)
    mirror.sync()
    return mirror.query(TABLES[name]).to_pylist()


def test_finished_trials_arrive_unchanged(filled: Store, other: Store, tmp_path: Path):
    assert export_records(filled, "one", tmp_path / "out") == ExportCounts(trials=2, weights=0)
    assert import_records(other, tmp_path / "out") == ImportCounts(new=2, present=0)
    for name in TABLES:
        assert answers(other, name) == [row for row in answers(filled, name) if row["trial"] != "c"]
    first, second = recorded_trials(other, "one")
    assert first.rungs == {10: 0.5}
    assert first.tags["imported"].startswith("20")
    assert (second.outcome, second.status) == ("finished", "FINISHED")
    assert other.artifact(first.run, "weights.safetensors") is None


def test_the_study_arrives_with_its_description(filled: Store, other: Store, tmp_path: Path):
    export_records(filled, None, tmp_path / "out")
    import_records(other, tmp_path / "out")
    mirror = Mirror(other)
    mirror.sync()
    (row,) = mirror.query("SELECT question, commit FROM studies").to_pylist()
    assert row == {"question": "why?", "commit": "abc"}
    assert other.studies() == ["one"]


def test_a_repeated_import_changes_nothing(filled: Store, other: Store, tmp_path: Path):
    export_records(filled, None, tmp_path / "out")
    import_records(other, tmp_path / "out")
    before = {name: answers(other, name) for name in TABLES}
    parent = other.parent_run("one")
    assert import_records(other, tmp_path / "out") == ImportCounts(new=0, present=2)
    assert {name: answers(other, name) for name in TABLES} == before
    again = other.parent_run("one")
    assert parent
    assert again
    assert again.id == parent.id


def test_an_import_completes_an_unfinished_trial_without_doubling_points(
    filled: Store, other: Store, tmp_path: Path, trials
):
    with MlflowWriter(other, "one", {}) as writer:
        for note in (trials.begun("a"), trials.at("a", 10)):
            writer.write(note)
    export_records(filled, None, tmp_path / "out")
    assert import_records(other, tmp_path / "out") == ImportCounts(new=2, present=0)
    run = next(record.run for record in recorded_trials(other, "one") if record.key == "a")
    for metric in ("error", "seconds", "step"):
        assert sorted(point.step for point in other.client.get_metric_history(run, metric)) == [10, 20]
    assert len(other.client.get_metric_history(run, "model.width")) == 1


def test_the_error_for_a_folder_without_an_export_names_the_remedy(store: Store, tmp_path: Path):
    with pytest.raises(StoreError, match=r"holds no exported records; `loopscale export` makes them"):
        import_records(store, tmp_path)


def test_an_export_of_a_newer_version_is_left_alone(filled: Store, other: Store, tmp_path: Path):
    export_records(filled, None, tmp_path / "out")
    (tmp_path / "out" / "export.json").write_text(json.dumps({"format": 2, "made_by": "9.9"}))
    with pytest.raises(StoreError, match=r"by loopscale 9\.9 in format 2, .*; install a newer loopscale"):
        import_records(other, tmp_path / "out")
    assert other.studies() == []


def test_a_study_without_records_cannot_be_exported(filled: Store, tmp_path: Path):
    with pytest.raises(StoreError, match=r"no records of two in .*; there are records of one"):
        export_records(filled, "two", tmp_path / "out")
    with pytest.raises(StoreError, match="cannot write to /proc/out"):
        export_records(filled, "one", "/proc/out")


def test_predictions_are_imported_and_never_replaced(filled: Store, other: Store, tmp_path: Path):
    tags = {"prediction/error/training.loops/x": "1", "prediction/error/training.loops/y": "2"}
    with MlflowWriter(filled, "one", {}) as writer:
        writer.write(Note("study", tags=tags))
    with MlflowWriter(other, "one", {}) as writer:
        writer.write(Note("study", tags={"prediction/error/training.loops/x": "own"}))
    export_records(filled, "one", tmp_path / "out")
    import_records(other, tmp_path / "out")
    parent = other.parent_run("one")
    assert parent
    assert parent.tags["prediction/error/training.loops/x"] == "own"
    assert parent.tags["prediction/error/training.loops/y"] == "2"
    assert "commit" not in parent.tags


def test_the_description_of_a_study_holds_its_predictions(filled: Store):
    with MlflowWriter(filled, "one", {}) as writer:
        writer.write(Note("study", tags={"prediction/error/training.loops/x": "1"}))
    mirror = Mirror(filled)
    mirror.sync()
    [row] = mirror.query("SELECT json FROM studies").to_pylist()
    assert json.loads(row["json"])["predictions"] == {"prediction/error/training.loops/x": "1"}
