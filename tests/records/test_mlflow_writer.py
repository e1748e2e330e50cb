"""Notes reach MLflow once and in order, even while the store is away or refuses."""

import json
import math
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from loopscale.records.model import Note, decode, encode
from loopscale.records.stores import base
from loopscale.records.stores.base import Store, TrackingStore
from loopscale.records.stores.folder import FolderStore
from loopscale.records.stores.opening import open_store
from loopscale.records.study_records import recorded_trials
from loopscale.records.writing import mlflow_writer
from loopscale.records.writing.mlflow_writer import Delivery, MlflowWriter, Refused
from tests.records.conftest import until


def write(store: Store, *notes: Note, study: str = "study") -> None:
    """Write as a new driver, which knows the recorded runs."""
    runs = {record.key: record.run for record in recorded_trials(store, study)}
    with MlflowWriter(store, study, runs) as writer:
        for note in notes:
            writer.write(note)
        assert writer.flush(30)
        assert writer.refused == []


def points(store: Store, run: str, metric: str) -> list[tuple[int, float]]:
    return [(point.step, point.value) for point in store.client.get_metric_history(run, metric)]


def test_a_record_comes_back_as_it_was_written(store: Store, trials):
    write(store, *trials.whole("a"), Note("a", 20, {"rung/10": 0.5}))
    (record,) = recorded_trials(store, "study")
    assert (record.key, record.cell, record.role, record.number) == ("a", "c1", "replicate", 3)
    assert (record.seed, record.point, record.outcome, record.status) == (1, {}, "finished", "FINISHED")
    assert (record.step, record.error, record.error_last, record.rungs) == (20, 0.5, 0.5, {10: 0.5})
    assert record.metrics["evaluate/error"] == 0.25


@pytest.mark.parametrize("switch", ["true", "1"])
def test_notes_are_written_at_once_where_mlflow_is_told_to_log_in_the_background(
    store: Store, trials, monkeypatch, switch
):
    monkeypatch.setenv("MLFLOW_ENABLE_ASYNC_LOGGING", switch)
    write(store, *trials.whole("a"))
    (record,) = recorded_trials(store, "study")
    assert (record.outcome, record.metrics["evaluate/error"]) == ("finished", 0.25)


def test_a_study_without_records_reads_no_records(store: Store):
    assert list(recorded_trials(store, "nothing")) == []
    assert store.studies() == [], "reading makes no experiment"


def test_records_are_in_the_order_of_their_start(store: Store, trials, monkeypatch):
    monkeypatch.setattr(base, "PAGE_ROWS", 2)
    keys = [f"k{number}" for number in range(40)]
    write(store, *(trials.begun(key) for key in keys))
    assert [record.key for record in recorded_trials(store, "study")] == keys
    experiment = store.find_experiment("study")
    assert experiment
    in_pages, at_once = TrackingStore.runs(store, experiment), store.runs(experiment)
    assert [run.tags["trial"] for run in in_pages if run.tags["trial"] != "study"] == keys
    assert in_pages == at_once


def test_every_trial_is_a_child_of_the_studys_one_parent_run(store: Store, trials):
    write(store, trials.begun("a"))
    write(store, trials.begun("b"), Note("study", tags={"commit": "abc"}, artifacts=(("study.json", b"{}"),)))
    parent = store.parent_run("study")
    assert parent
    assert {record.tags["mlflow.parentRunId"] for record in recorded_trials(store, "study")} == {parent.id}
    assert store.client.get_run(parent.id).data.tags["commit"] == "abc"
    assert len(store.client.search_runs([store.make_experiment("study")])) == 3


def test_numeric_settings_are_also_metrics_so_that_the_ui_can_sort_them(store: Store, trials):
    write(store, trials.begun("a", **{"training.clip": None}))
    (record,) = recorded_trials(store, "study")
    run = store.client.get_run(record.run)
    assert run.data.params["model.kind"] == "looped"
    assert run.data.params["training.truncate"] == "true"
    assert run.data.params["training.clip"] == "null"
    assert {name: record.metrics.get(name) for name in run.data.params} == {
        "model.kind": None,
        "model.width": 8,
        "training.lr": 1e-3,
        "training.truncate": None,
        "training.clip": None,
    }
    sorted_runs = store.client.search_runs([run.info.experiment_id], "metrics.`model.width` > 7")
    assert [run.info.run_id for run in sorted_runs] == [record.run]


def test_settings_keep_value_and_type():
    for value in (3, 0.1, 1e-30, True, False, None, "looped", "a b", ""):
        assert decode(encode(value)) == value
        assert type(decode(encode(value))) is type(value)


def test_a_resumed_run_keeps_its_settings_and_gets_missing_settings(store: Store, trials):
    write(store, trials.begun("a"))
    write(store, trials.begun("a", **{"model.width": 9, "training.steps": 7}), trials.begun("a"))
    (record,) = recorded_trials(store, "study")
    params = store.client.get_run(record.run).data.params
    assert (params["model.width"], params["training.steps"]) == ("8", "7")
    assert points(store, record.run, "model.width") == [(0, 8)]
    assert points(store, record.run, "training.steps") == [(0, 7)]


def test_a_run_has_a_readable_name(store: Store, trials):
    write(
        store, trials.begun("a"), trials.begun("b", role="tuning", seed=0), trials.begun("c", role="baseline")
    )
    names = [record.tags["mlflow.runName"] for record in recorded_trials(store, "study")]
    assert names == ["width 8 seed 1", "width 8 #3", "width 8"]


def test_a_step_has_one_point_after_repeated_notes(store: Store, trials):
    first, second = trials.at("a", 10, 0.5), trials.at("a", 10, 0.4)
    write(store, trials.begun("a"), first, first, second, trials.at("a", 20), second)
    write(store, first)
    (record,) = recorded_trials(store, "study")
    assert points(store, record.run, "error") == [(10, 0.5), (20, 0.5)]


def test_a_later_evaluation_replaces_the_earlier(store: Store, trials):
    write(store, *trials.whole("a", error=0.25))
    write(store, trials.finished("a", 20, error=0.125))
    (record,) = recorded_trials(store, "study")
    assert record.metrics["evaluate/error"] == 0.125


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_value_that_mlflow_cannot_store_becomes_a_tag(store: Store, trials, value: float):
    write(store, trials.begun("a"), Note("a", 10, {"loss": value, "error": 1.0}))
    (record,) = recorded_trials(store, "study")
    assert record.tags["not_finite/loss"] == f"{value} at step 10"
    assert points(store, record.run, "loss") == []
    assert record.error == 1


def test_artifacts_are_bytes_or_files_and_are_replaced_by_later_artifacts(
    store: Store, trials, tmp_path: Path
):
    (tmp_path / "other name").write_bytes(b"weights")
    files = (("deep/curve.parquet", b"old"), ("weights.safetensors", tmp_path / "other name"))
    write(store, trials.begun("a"), Note("a", artifacts=files))
    write(store, Note("a", artifacts=(("deep/curve.parquet", b"new"),)))
    (record,) = recorded_trials(store, "study")
    files = [store.artifact(record.run, path) for path in ("deep/curve.parquet", "weights.safetensors")]
    assert [path and path.read_bytes() for path in files] == [b"new", b"weights"]
    assert store.artifact(record.run, "none") is None


def test_an_outcome_is_never_recorded_before_its_curve(store: Store, trials):
    missing = (("curve.parquet", Path("/nowhere")),)
    with MlflowWriter(store, "study", {}) as writer:
        writer.write(trials.begun("a"))
        assert writer.flush(30)
        writer.write(Note("a", tags={"outcome": "finished"}, artifacts=missing))
        writer.flush(30)
        assert "no file /nowhere" in str(writer.refused[0][1])
    assert [record.outcome for record in recorded_trials(store, "study")] == ["running"]


def test_a_refused_note_is_kept_and_the_other_notes_are_written(store: Store, trials):
    bad = Note("a", 15, {"what is this?!": 1.0})
    with MlflowWriter(store, "study", {}) as writer:
        for note in (trials.begun("a"), trials.at("a", 10), bad, trials.at("a", 20), trials.begun("b")):
            writer.write(note)
        assert writer.flush(30)
        assert [note for note, _ in writer.refused] == [bad]
        assert writer.backlog == 0
    first, second = recorded_trials(store, "study")
    assert points(store, first.run, "error") == [(10, 0.5), (20, 0.5)]
    assert second.key == "b"


def test_more_points_tags_and_settings_than_fit_in_one_request(store: Store, trials):
    settings = {f"s{number}": number for number in range(150)}
    notes = [Note("a", step, {"loss": float(step)}) for step in range(2000)]
    tagged = Note("a", tags={f"t{number}": "x" for number in range(150)})
    write(store, trials.begun("a", **settings), *notes, tagged)
    (record,) = recorded_trials(store, "study")
    assert points(store, record.run, "loss") == [(step, step) for step in range(2000)]
    assert store.client.get_run(record.run).data.params["s149"] == "149"
    assert record.tags["t149"] == "x"


@pytest.mark.slow
def test_notes_wait_while_the_store_is_away_and_arrive_in_order():
    notes = [Note("a", step) for step in range(3)]
    arrived: list[Note] = []
    later, again = notes[1:], threading.Event()

    def send(sent: list[Note]) -> None:
        if len(later) < 2:
            again.wait()
        if later:  # the next note comes while this one is failing
            delivery.write(later.pop(0))
            raise OSError
        arrived.extend(sent)

    delivery = Delivery(send)
    delivery.write(notes[0])
    assert until(lambda: delivery.away_since, 60)
    assert delivery.backlog == 2
    again.set()
    assert delivery.flush(60)
    assert arrived == notes
    assert delivery.away_since is None
    assert delivery.close(1)


@pytest.mark.slow
def test_runs_are_created_in_the_order_of_their_first_notes_despite_failures():
    arrived: list[str] = []
    failures = {"a": 2, "c": 1}
    ready = threading.Event()

    def send(notes: list[Note]) -> None:
        ready.wait(10)
        key = notes[0].key
        if failures.get(key):
            failures[key] -= 1
            raise OSError
        arrived.append(key)

    delivery = Delivery(send)
    for key in "abcd":
        delivery.write(Note(key))
    ready.set()
    assert delivery.flush(30)
    assert arrived == ["a", "b", "c", "d"]
    delivery.close(1)


def test_a_run_that_cannot_be_written_does_not_delay_other_runs():
    arrived: list[str] = []

    def send(notes: list[Note]) -> None:
        if notes[0].step:
            raise OSError
        arrived.append(notes[0].key)

    delivery = Delivery(send)
    delivery.write(Note("bad"))
    assert delivery.flush(60)
    delivery.write(Note("bad", 1))
    for key in "abc":
        delivery.write(Note(key))
    assert until(lambda: len(arrived) == 4, 60)
    assert arrived == ["bad", "a", "b", "c"]
    assert not delivery.flush(0.1)
    assert delivery.backlog == 1
    delivery.close(0)


def test_closing_does_not_wait_for_a_store_that_is_away(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(mlflow_writer, "FIRST_PAUSE", 1e6)

    def send(notes: list[Note]) -> None:
        raise OSError

    delivery = Delivery(send)
    delivery.write(Note("a"))
    assert until(lambda: delivery.away_since, 60)
    assert not delivery.close(0.1)
    delivery._thread.join()  # the delivery is not asleep between two tries
    assert delivery.backlog == 1


def test_one_refusal_does_not_stop_other_notes():
    arrived: list[Note] = []

    def send(notes: list[Note]) -> None:
        if any(note.tags for note in notes):
            raise Refused(json.dumps(notes[0].tags))
        arrived.extend(notes)

    delivery = Delivery(send)
    notes = [Note("a"), Note("a", tags={"bad": ""}), Note("a", 1), Note("b")]
    for note in notes:
        delivery.write(note)
    assert delivery.flush(60)
    assert sorted((note.key, note.step) for note in arrived) == [("a", 0), ("a", 1), ("b", 0)]
    assert [note for note, _ in delivery.refused] == [notes[1]]
    delivery.close(1)


def commits(store: FolderStore) -> int:
    """SQLite's count of changes of the database."""
    return int(str(store.change_stamp()).split()[0], 16)


def test_all_waiting_notes_of_a_run_are_one_commit(store: FolderStore, trials):
    """SQLite waits for the disk at every commit, and MLflow itself commits eight times for a trial."""
    write(store, trials.begun("a"))
    with MlflowWriter(store, "study", {}) as writer:
        before = commits(store)
        writer._send([*trials.whole("b"), Note("b", 20, {"rung/10": 0.5})])
        assert commits(store) == before + 1
    assert {record.key: record.outcome for record in recorded_trials(store, "study")} == {
        "a": "running",
        "b": "finished",
    }


def test_a_batch_is_written_again_as_a_whole_after_its_commit_has_failed(tmp_path: Path, trials):
    class FullDisk(FolderStore):
        fails = 2

        @contextmanager
        def transaction(self) -> Iterator[None]:
            with super().transaction():
                yield
                if self.fails:
                    self.fails -= 1
                    raise OSError("no space left on device")

    FolderStore.check(tmp_path, create=True)
    store = FullDisk(tmp_path, tmp_path)
    write(store, *trials.whole("a"))
    (record,) = recorded_trials(store, "study")
    assert (record.outcome, record.status, record.step) == ("finished", "FINISHED", 20)
    assert (
        len(points(store, record.run, "error"))
        == len({step for step, _ in points(store, record.run, "error")})
        > 0
    )
    assert store.fails == 0


@pytest.mark.slow
def test_a_writer_killed_within_a_batch_leaves_no_part_of_the_batch(tmp_path: Path):
    code = f"""
import os
from loopscale.records.stores.opening import open_store
store = open_store({str(tmp_path)!r}, create=True)
experiment = store.make_experiment("study")
with store.transaction():
    run = store.client.create_run(experiment)
    store.client.log_metric(run.info.run_id, "error", 1.0)
    assert store.client.get_run(run.info.run_id).data.metrics == {{"error": 1.0}}
    os._exit(0)
"""
    subprocess.run([sys.executable, "-c", code], check=True)
    store = open_store(tmp_path)
    assert store.runs(store.require_experiment("study")) == []
    MlflowWriter(store, "study", {}).close(10)  # the dead writer holds no lock


def test_two_writers_of_one_process_wait_for_each_other(store: FolderStore, trials):
    other = open_store(store.root)
    with MlflowWriter(store, "one", {}) as first, MlflowWriter(other, "two", {}) as second:
        for number in range(20):
            first.write(trials.begun(f"a{number}"))
            second.write(trials.begun(f"b{number}"))
        assert first.flush(60)
        assert second.flush(60)
    assert [len(list(recorded_trials(store, study))) for study in ("one", "two")] == [20, 20]


def test_the_question_is_the_description_of_the_experiment_in_mlflow(store: FolderStore, trials):
    write(store, Note("study", tags={"question": "Is it safe?"}), *trials.whole("k"))
    write(store, Note("study", tags={"question": "Is it faster?"}))
    experiment = store.client.get_experiment(store.require_experiment("study"))
    assert experiment.tags["mlflow.note.content"] == "Is it faster?"


def kept_objects(writer: MlflowWriter) -> int:
    """Number of values in the writer's own collections."""
    found, waiting = set[int](), list(vars(writer).values())
    while waiting:
        each = waiting.pop()
        if id(each) in found or not isinstance(each, dict | list | set | frozenset | tuple | str):
            continue
        found.add(id(each))
        if not isinstance(each, str):
            waiting += [*each.keys(), *each.values()] if isinstance(each, dict) else list(each)
    return len(found)


def test_an_ended_trial_leaves_only_its_key_and_its_run_in_memory(store: Store, trials):
    """A driver may have 100,000 trials, each with 60 metrics."""
    with MlflowWriter(store, "study", {}) as writer:
        kept = list[int]()
        for batch in ("a", "b", "c"):
            for number in range(3):
                for note in trials.whole(f"{batch}{number}", **{f"model.{name}": 1 for name in "abcdefgh"}):
                    writer.write(note)
            assert writer.flush(30)
            kept.append(kept_objects(writer))
    first, second, third = kept
    assert third - second == second - first <= 3 * 2
