"""The file of ended runs: what a driver recalls with its help is what it would have read without it."""

import gzip
from dataclasses import replace
from pathlib import Path

import pytest

from loopscale.records.model import run as runs
from loopscale.records.model.note import Note
from loopscale.records.model.run import Run
from loopscale.records.read import load, trials
from loopscale.records.stores.store import Store
from loopscale.records.transfer import export, import_
from loopscale.records.writing import ended_runs as ended
from loopscale.records.writing.ended_runs import Ended, recall
from loopscale.records.writing.writer import Writer


@pytest.fixture
def shared(pristine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """A database that is none of ours, as a server has one; in it a few ended runs are many."""
    database = tmp_path / "shared.db"
    database.write_bytes((pristine / "mlflow.db").read_bytes())
    monkeypatch.setattr(ended, "FEW", 2)
    monkeypatch.setattr("loopscale.records.writing.writer.FEW", 2)
    return Store.open(f"sqlite:///{database}", storage=tmp_path / "storage", create=True)


def drive(store: Store, *notes: Note, remember: bool = False) -> Ended:
    """What a driver does that resumes the study, and dies after these notes."""
    known = recall(store, "one")
    found = {record.key: record.run for record in trials(known.in_order)}
    with Writer(store, "one", found, ended=known) as writer:
        for note in notes:
            writer.write(note)
        if remember:
            writer.flush(30)
            writer.remember()
        assert writer.flush(30)
        assert writer.refused == []
    return known


def agree(store: Store) -> None:
    assert list(trials(recall(store, "one").in_order)) == list(load(store, "one"))


def asked(store: Store, monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The trials that the store is asked for to recall the study."""
    answered: list[Run] = []
    page = runs._Asked.page

    def noted(self: runs._Asked, *arguments: str):
        found, token = page(self, *arguments)
        answered.extend(run for run in found if self.view == runs.ACTIVE)
        return found, token

    monkeypatch.setattr(runs._Asked, "page", noted)
    recall(store, "one")
    monkeypatch.setattr(runs._Asked, "page", page)
    return {run.tags["trial"] for run in answered} - {"study"}


def test_a_driver_that_resumes_asks_for_what_may_have_changed_only(shared: Store, trials, monkeypatch):
    first = [note for key in "abcd" for note in trials.whole(key)]
    drive(
        shared, *(replace(note, at=note.at + number) for number, note in enumerate(first)), trials.begun("e")
    )
    agree(shared)
    assert asked(shared, monkeypatch) == {"d", "e"}  # d ended last
    drive(shared, trials.at("e", 10), trials.finished("e", 20), trials.begun("f"), trials.at("f", 10))
    agree(shared)
    assert asked(shared, monkeypatch) == {"e", "f"}
    assert {record.outcome for record in load(shared, "one")} == {"finished", "running"}


def test_it_holds_whatever_a_driver_may_have_done_to_an_ended_run(shared: Store, trials):
    drive(shared, *(note for key in "abc" for note in trials.whole(key)))
    again = Note("a", 20, {"evaluate/error": 0.125}, tags={"evaluation": "other"}, status="FINISHED")
    drive(shared, again)
    agree(shared)
    drive(shared, Note("b", status="RUNNING"))
    agree(shared)
    drive(shared, Note("c", 20, {"loss": float("nan")}, {}, {"weights": "kept"}), remember=True)
    agree(shared)
    assert next(load(shared, "one")).metrics["evaluate/error"] == 0.125


def test_a_clock_that_is_behind_loses_nothing(shared: Store, trials):
    drive(shared, *(note for key in "abc" for note in trials.whole(key)))
    slow = [replace(note, at=note.at - 3_600_000) for note in trials.whole("d")]
    drive(shared, *slow)
    agree(shared)
    assert {record.key for record in load(shared, "one")} == set("abcd")


def test_runs_that_were_deleted_brought_back_or_imported_are_noticed(
    shared: Store, store: Store, tmp_path, trials
):
    drive(shared, *(note for key in "abc" for note in trials.whole(key)))
    victim = next(record.run for record in load(shared, "one") if record.key == "a")
    shared.client.delete_run(victim)
    agree(shared)
    drive(shared, *trials.whole("d"), *trials.whole("e"))
    agree(shared)
    shared.client.restore_run(victim)
    agree(shared)
    with Writer(store, "one", {}) as writer:
        for note in trials.whole("f"):
            writer.write(replace(note, at=note.at - 3_600_000))
    export(store, None, tmp_path / "out")
    assert import_(shared, tmp_path / "out").new == 1
    agree(shared)
    assert {record.key for record in load(shared, "one")} == set("abcdef")


DAMAGED = {
    "empty": b"",
    "no gzip": b"no gzip",
    "no runs": gzip.compress(b"{}"),
    "a run without its record": gzip.compress(b'{"runs": [{"id": 1}], "deleted": []}'),
    "a number for runs": gzip.compress(b'{"runs": 3, "deleted": null}'),
    "a million brackets": gzip.compress(b"[" * 10**6),
}


# Named, since gzip writes the time into its header and two test processes must collect the same names.
@pytest.mark.parametrize("content", DAMAGED.values(), ids=DAMAGED)
def test_a_damaged_file_is_no_file(shared: Store, trials, content: bytes):
    drive(shared, *(note for key in "abc" for note in trials.whole(key)))
    with Writer(shared, "one", {}) as writer:
        writer.write(Note("study", artifacts=((ended.FILE, content),)))
    agree(shared)


def test_a_study_without_records_recalls_none(shared: Store):
    assert recall(shared, "one") == Ended()
