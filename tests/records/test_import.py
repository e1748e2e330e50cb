"""Imports of hostile exports and cut short imports: a trial arrives as a whole or not at all."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from loopscale.cli.main import main
from loopscale.records.model import CURVE, Note, StoreError
from loopscale.records.stores.base import Store
from loopscale.records.stores.opening import open_store
from loopscale.records.study_records import recorded_trials
from loopscale.records.transfer import ImportCounts, export_records, import_records
from loopscale.records.writing.mlflow_writer import MlflowWriter
from tests.named_cases import named

DESCRIPTION = b'{"question": "why?", "cells": [{"key": "c1", "label": "width 8", "values": {}}]}'


@pytest.fixture
def other(tmp_path: Path) -> Store:
    return open_store(tmp_path / "other", create=True)


@pytest.fixture
def exported(store: Store, trials, tmp_path: Path) -> Path:
    """An export of three finished trials."""
    with MlflowWriter(store, "one", {}) as writer:
        writer.write(Note("study", artifacts=(("study.json", DESCRIPTION),)))
        for note in [*trials.whole("a", 0.5), *trials.whole("b"), *trials.whole("c")]:
            writer.write(note)
        assert writer.flush(30)
    export_records(store, "one", tmp_path / "out")
    return tmp_path / "out"


def rewritten(file: Path, change: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """The export with every row of one table changed."""
    rows = [change(row) for row in parquet.read_table(file).to_pylist()]
    parquet.write_table(pa.Table.from_pylist(rows), file)


def of_trial(key: str, **changes: Any) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """Changes the row of one trial."""
    return lambda row: row | changes if row["trial"] == key else row


def tagged(key: str, **changes: str) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """Changes tags of one trial."""

    def change(row: dict[str, Any]) -> dict[str, Any]:
        tags = json.dumps(json.loads(row["tags"]) | changes)
        return row | {"tags": tags} if row["trial"] == key else row

    return change


def described(content: bytes) -> Callable[[dict[str, Any]], dict[str, Any]]:
    """Changes the description of the study."""
    return lambda row: row | {"study.json": content}


HARM: dict[str, tuple[str, Callable[[dict[str, Any]], dict[str, Any]], str]] = {
    "text for a number": (
        "trials",
        of_trial("b", metrics='{"flops": "many"}'),
        "'many' as the number 'flops'",
    ),
    "a list for a number": ("trials", of_trial("b", metrics='{"flops": [1]}'), "as the number"),
    "a number for text": ("trials", of_trial("b", tags='{"outcome": 3}'), "has int where tags hold text"),
    "another outcome": ("trials", of_trial("b", tags='{"outcome": "running"}'), "has the outcome 'running'"),
    "another status": ("trials", of_trial("b", status="ODD"), "has the status 'ODD'"),
    "a long setting": ("trials", of_trial("b", settings=json.dumps({"a": "x" * 9000})), "9,000 characters"),
    "a long name of a setting": (
        "trials",
        of_trial("b", settings=json.dumps({"x" * 300: "1"})),
        "has the name",
    ),
    "a bad name of a metric": ("trials", of_trial("b", metrics='{"a;b": 1}'), "has the name"),
    "a start before all time": ("trials", of_trial("b", start=-5), "as start"),
    "a key that is a path": ("trials", of_trial("b", trial="../../b"), "has the key"),
    "a trial twice": ("trials", of_trial("b", trial="a"), "stands twice"),
    "a name of 5,000 characters": (
        "studies",
        lambda row: row | {"study": "x" * 5000},
        "has a name of 5,000 characters",
    ),
    "a name with a line": ("studies", lambda row: row | {"study": "one\ntwo"}, "has the name"),
    "a damaged description": ("studies", described(b"{"), "damaged study.json"),
    "a description of nothing": ("studies", described(b"{}"), "damaged study.json: `cells` is missing"),
    "cells of text": (
        "studies",
        described(b'{"cells": [{"key": 1, "label": "", "values": {}}]}'),
        "damaged study.json: `cells` has the wrong form",
    ),
    "laws that are a number": (
        "studies",
        described(b'{"cells": [], "laws": 5}'),
        "damaged study.json: `laws` has the wrong type",
    ),
    "a step before the first": ("history", lambda row: row | {"step": -1}, "as a step of its history"),
    "a trial of another study": (
        "trials",
        of_trial("b", study="two"),
        "the exported trial b belongs to the study 'two', which is not in studies.parquet",
    ),
    "a trial without an end": ("trials", of_trial("b", end=None), "has no end"),
    "a trial without a run": ("trials", of_trial("b", run=None), "has no run"),
    "a seed of text": ("trials", tagged("b", seed="x"), "the exported trial b has 'x' as its seed"),
    "a seed below zero": ("trials", tagged("b", seed="-1"), "has '-1' as its seed"),
    "a number of text": ("trials", tagged("b", number="1.5"), "has '1.5' as its number"),
    "a factor of text": ("trials", tagged("b", steps_factor="two"), "has 'two' as its steps_factor"),
    "a point that is no JSON": ("trials", tagged("b", point="nope"), "has 'nope' as its point"),
    "a point that is a list": ("trials", tagged("b", point="[1]"), "has '[1]' as its point"),
    "a rung without a step": ("trials", of_trial("b", metrics='{"rung/x": 1}'), "has the rung 'rung/x'"),
    "a step that is none": ("trials", of_trial("b", metrics='{"step": NaN}'), "has nan as its last step"),
    "half a step": ("trials", of_trial("b", metrics='{"step": 1.5}'), "has 1.5 as its last step"),
    "an integer that is no float": (
        "trials",
        of_trial("b", metrics=json.dumps({"error": 10**400})),
        "has an integer of 1,329 bits as the number 'error'",
    ),
    "half a character": (
        "trials",
        tagged("b", label="\ud800"),
        "has a character in 'label' that no database",
    ),
    "a null character": ("trials", tagged("b", label="\0"), "has a character in 'label' that no database"),
    "a loop below zero": ("curves", of_trial("b", loop=-1), "has -1 as its loop; "),
    "the loop 0": ("curves", of_trial("b", loop=0), "has 0 as its loop"),
    "no loop": ("curves", of_trial("b", loop=None), "has None as its loop"),
    "a point below zero": ("curves", of_trial("b", point=-1), "has -1 as its point"),
    "a loop beyond all columns": ("curves", of_trial("b", loop=2**40), "has 1099511627776 as its loop"),
    "a curve of another trial": (
        "curves",
        of_trial("b", trial="a"),
        "a row of the exported curves is of the trial 'a' and the run ",
    ),
    "a curve of no trial": ("curves", of_trial("b", run="nobody"), "and the run 'nobody', which no exported"),
    "a history of no trial": (
        "history",
        of_trial("b", run="nobody"),
        "a row of the exported history is of the run 'nobody', which no exported trial has",
    ),
}


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize(("table", "harm", "message"), named(HARM))
def test_a_bad_row_is_refused_before_anything_is_written(exported: Path, other: Store, table, harm, message):
    rewritten(exported / f"{table}.parquet", harm)
    with pytest.raises(StoreError) as caught:
        import_records(other, exported)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert other.studies() == []


TWICE = {
    "trials": "the exported trial a stands twice in one",
    "studies": "the exported study one stands twice",
    "curves": "the exported trial a has the error of loop 1 and point 0 twice",
    "history": "the exported trial a has the metric 'error' of step 10 twice",
}


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize(("table", "message"), TWICE.items(), ids=TWICE.keys())
@pytest.mark.parametrize("rows", ["all", "one"])
def test_a_row_that_stands_twice_is_refused_before_anything_is_written(
    exported: Path, other: Store, table: str, message: str, rows: str
):
    """A row is the same row with other values, too: its keys count."""
    file = exported / f"{table}.parquet"
    once = parquet.read_table(file)
    first = [("trial", "==", "a"), ("loop", "==", 1), ("point", "==", 0)]
    first = {"studies": None, "trials": first[:1], "curves": first}.get(
        table, [*first[:1], ("metric", "==", "error"), ("step", "==", 10)]
    )
    again = once if rows == "all" else parquet.read_table(file, filters=first)
    assert len(again) == (len(once) if rows == "all" else 1)
    if table == "curves":
        again = again.set_column(again.schema.get_field_index("error"), "error", pa.array([9.0] * len(again)))
    parquet.write_table(pa.concat_tables([once, again]), file)
    with pytest.raises(StoreError) as caught:
        import_records(other, exported)
    if rows == "one":
        assert str(caught.value) == f"{message}; nothing was imported; export again"
    assert "twice" in str(caught.value)
    assert other.studies() == []


def test_two_trials_with_one_run_are_refused(exported: Path, other: Store):
    """Both trials would get the curve and the history of the run."""
    rows = parquet.read_table(exported / "trials.parquet").to_pylist()
    rewritten(exported / "trials.parquet", of_trial("b", run=rows[0]["run"]))
    with pytest.raises(
        StoreError, match="the exported trial b has the run of the trial a; nothing was imported"
    ):
        import_records(other, exported)
    assert other.studies() == []


def test_the_store_of_a_refused_import_has_no_study(exported: Path, tmp_path: Path, capsys):
    rewritten(exported / "studies.parquet", lambda row: row | {"study": "two"})
    assert main(["import", str(exported), "--store", str(tmp_path / "new")]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err == (
        "the exported trial a belongs to the study 'one', which is not in studies.parquet; "
        "nothing was imported; export again\n"
    )
    assert open_store(tmp_path / "new").studies() == []


@pytest.mark.quick_cases(3)
@pytest.mark.parametrize("name", ["export.json", "trials.parquet", "curves.parquet"])
@pytest.mark.parametrize("kind", ["link", "pipe", "folder"])
def test_links_pipes_and_folders_are_not_read(
    exported: Path, other: Store, tmp_path: Path, name: str, kind: str
):
    file = exported / name
    file.rename(tmp_path / "moved")
    if kind == "link":
        file.symlink_to(tmp_path / "moved")
    elif kind == "pipe":
        os.mkfifo(file)
    else:
        file.mkdir()
    with pytest.raises(StoreError, match="is a link, a folder, a pipe or a device; "):
        import_records(other, exported)
    assert other.studies() == []


def test_weights_that_are_a_link_or_damaged_or_of_another_trial_are_refused(
    exported: Path, other: Store, tmp_path: Path
):
    (exported / "weights").mkdir()
    file = exported / "weights" / "b.safetensors"
    file.write_bytes(b"no weights")
    with pytest.raises(StoreError, match=r"b\.safetensors is damaged: .*; .*, or remove the file to import"):
        import_records(other, exported)
    file.rename(tmp_path / "secret")
    file.symlink_to(tmp_path / "secret")
    with pytest.raises(StoreError, match="is a link"):
        import_records(other, exported)
    assert other.studies() == []


def test_a_value_that_no_store_takes_is_refused_at_once(store: Store, trials):
    """The writer does not take a wrong value for a store that is away."""
    with MlflowWriter(store, "one", {}) as writer:
        writer.write(Note("a", 1, {"error": "text"}))  # type: ignore[dict-item]
        writer.write(trials.begun("b"))
        assert writer.flush(120)
        ((note, problem),) = writer.refused
        assert note.key == "a"
        assert "TypeError" in str(problem) or "must be" in str(problem)
    assert writer.away_since is None


def test_of_a_refused_trial_nothing_is_written(store: Store, trials):
    """The notes of a whole trial are one transaction."""
    bad = Note("a", 20, {"error": "text"}, tags={"outcome": "finished"}, status="FINISHED")  # type: ignore[dict-item]
    with MlflowWriter(store, "one", {}) as writer:
        writer.write_whole([trials.begun("a"), trials.at("a", 10), bad])
        writer.write_whole(trials.whole("b"))
        assert writer.flush(120)
        assert [note.key for note, _ in writer.refused] == ["a"]
    assert [record.key for record in recorded_trials(store, "one")] == ["b"]


def test_the_next_import_writes_damaged_curves_of_imported_trials_again(exported: Path, other: Store):
    import_records(other, exported)
    [run] = [record.run for record in recorded_trials(other, "one") if record.key == "b"]
    whole = other.read_artifact(run, CURVE)
    assert whole
    other.write_artifact(run, CURVE, b"")
    assert import_records(other, exported) == ImportCounts(new=0, present=3, mended=1)
    assert other.read_artifact(run, CURVE) == whole
    assert import_records(other, exported) == ImportCounts(new=0, present=3)


def test_the_next_import_ends_runs_that_a_killed_import_has_left_under_way(exported: Path, other: Store):
    """As a server leaves the runs: the last request of a run sets the status."""
    import_records(other, exported)
    experiment = other.require_experiment("one")
    for run in other.runs(experiment):
        other.client.update_run(run.id, "RUNNING")
    assert import_records(other, exported) == ImportCounts(new=0, present=3)
    assert {run.status for run in other.runs(experiment)} == {"FINISHED"}


KILLED = """
import os, sys
from loopscale.records.stores.opening import open_store
from loopscale.records.transfer import import_records
from loopscale.records.writing import mlflow_writer

send, left = mlflow_writer.MlflowWriter._write_notes, [int(sys.argv[3])]

def counted(writer, notes):
    left[0] -= 1
    if left[0] == 0:
        send(writer, notes)
        os.kill(os.getpid(), 9)
    return send(writer, notes)

mlflow_writer.MlflowWriter._write_notes = counted
import_records(open_store(sys.argv[1], create=True), sys.argv[2])
"""


@pytest.mark.slow
def test_after_a_kill_every_trial_is_there_as_a_whole_or_not_at_all(
    exported: Path, pristine: Path, tmp_path: Path
):
    for kill in range(1, 5):
        place = tmp_path / f"killed{kill}"
        shutil.copytree(pristine, place)
        done = subprocess.run([sys.executable, "-c", KILLED, place, exported, str(kill)], check=False)
        assert done.returncode == -9
        store = open_store(place, create=True)
        for record in recorded_trials(store, "one"):
            assert (record.outcome, record.status, record.step) == ("finished", "FINISHED", 20)
        import_records(store, exported)
        assert [record.key for record in recorded_trials(store, "one")] == ["a", "b", "c"]
        assert {run.status for run in store.runs(store.require_experiment("one"))} == {"FINISHED"}
