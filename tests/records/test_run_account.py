"""The file of ended runs: with the file, a driver recalls the same runs as without it."""

import gzip
import tracemalloc
from dataclasses import replace
from pathlib import Path

import pytest

from loopscale.records.model import Note, Run
from loopscale.records.stores.base import ACTIVE, Store, TrackingStore
from loopscale.records.stores.opening import open_store
from loopscale.records.study_records import as_records, recorded_trials
from loopscale.records.transfer import export_records, import_records
from loopscale.records.writing import run_account
from loopscale.records.writing.mlflow_writer import MlflowWriter
from loopscale.records.writing.run_account import RunAccount, changed_since, recall_runs


@pytest.fixture
def shared(pristine: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """A shared database, and a file of ended runs after two runs instead of 500."""
    database = tmp_path / "shared.db"
    database.write_bytes((pristine / "mlflow.db").read_bytes())
    monkeypatch.setattr(run_account, "FEW", 2)
    return open_store(f"sqlite:///{database}", storage=tmp_path / "storage", create=True)


def drive(store: Store, *notes: Note, remember: bool = False) -> RunAccount:
    """Resume the study, write these notes, and die."""
    known = recall_runs(store, "one")
    runs = {record.key: record.run for record in as_records(known.in_order)}
    with MlflowWriter(store, "one", runs, account=known) as writer:
        for note in notes:
            writer.write(note)
        if remember:
            writer.flush(30)
            writer.renew_run_file()
        assert writer.flush(30)
        assert writer.refused == []
    return known


def agree(store: Store) -> None:
    """The recalled runs are the recorded runs."""
    assert list(as_records(recall_runs(store, "one").in_order)) == list(recorded_trials(store, "one"))


def asked(store: Store, monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The trials that `recall_runs` asks the store for."""
    answered: list[Run] = []
    page = TrackingStore._page

    def noted(
        self: TrackingStore, experiments: list[str], condition: str, view: str, token: str | None = None
    ):
        runs, token = page(self, experiments, condition, view, token)
        answered.extend(run for run in runs if view == ACTIVE)
        return runs, token

    monkeypatch.setattr(TrackingStore, "_page", noted)
    recall_runs(store, "one")
    monkeypatch.setattr(TrackingStore, "_page", page)
    return {run.tags["trial"] for run in answered} - {"study"}


def test_a_driver_that_resumes_asks_only_for_runs_that_may_have_changed(shared: Store, trials, monkeypatch):
    first = [note for key in "abcd" for note in trials.whole(key)]
    drive(
        shared, *(replace(note, at=note.at + number) for number, note in enumerate(first)), trials.begun("e")
    )
    agree(shared)
    assert asked(shared, monkeypatch) == {"d", "e"}  # d ended last
    drive(shared, trials.at("e", 10), trials.finished("e", 20), trials.begun("f"), trials.at("f", 10))
    agree(shared)
    assert asked(shared, monkeypatch) == {"e", "f"}
    assert {record.outcome for record in recorded_trials(shared, "one")} == {"finished", "running"}


def test_runs_that_ended_since_a_driver_began_are_found_in_whatever_order_they_end(shared: Store, trials):
    drive(shared, *trials.whole("a"), trials.begun("b"))
    latest = recall_runs(shared, "one").latest
    late = replace(trials.finished("b", 20), at=trials.finished("b", 20).at + 60_000)
    drive(shared, late, *trials.whole("c"))  # b, which is older, ends after c
    experiment = shared.require_experiment("one")
    found = {record.key: record.outcome for record in as_records(changed_since(shared, experiment, latest))}
    assert found == dict.fromkeys("abc", "finished")
    later = changed_since(shared, experiment, recall_runs(shared, "one").latest)
    assert {record.key for record in as_records(later)} == {"b"}


def test_the_file_stays_correct_after_every_change_that_a_driver_makes_to_an_ended_run(shared: Store, trials):
    drive(shared, *(note for key in "abc" for note in trials.whole(key)))
    again = Note("a", 20, {"evaluate/error": 0.125}, tags={"evaluation": "other"}, status="FINISHED")
    drive(shared, again)
    agree(shared)
    drive(shared, Note("b", status="RUNNING"))
    agree(shared)
    drive(shared, Note("c", 20, {"loss": float("nan")}, {}, {"weights": "kept"}), remember=True)
    agree(shared)
    assert next(recorded_trials(shared, "one")).metrics["evaluate/error"] == 0.125


def test_a_driver_with_a_slow_clock_loses_no_run(shared: Store, trials):
    drive(shared, *(note for key in "abc" for note in trials.whole(key)))
    slow = [replace(note, at=note.at - 3_600_000) for note in trials.whole("d")]
    drive(shared, *slow)
    agree(shared)
    assert {record.key for record in recorded_trials(shared, "one")} == set("abcd")


def test_deleted_restored_and_imported_runs_are_noticed(shared: Store, store: Store, tmp_path, trials):
    drive(shared, *(note for key in "abc" for note in trials.whole(key)))
    victim = next(record.run for record in recorded_trials(shared, "one") if record.key == "a")
    shared.client.delete_run(victim)
    agree(shared)
    drive(shared, *trials.whole("d"), *trials.whole("e"))
    agree(shared)
    shared.client.restore_run(victim)
    agree(shared)
    with MlflowWriter(store, "one", {}) as writer:
        for note in trials.whole("f"):
            writer.write(replace(note, at=note.at - 3_600_000))
    export_records(store, None, tmp_path / "out")
    assert import_records(shared, tmp_path / "out").new == 1
    agree(shared)
    assert {record.key for record in recorded_trials(shared, "one")} == set("abcdef")


DAMAGED = {
    "empty": b"",
    "no gzip": b"no gzip",
    "no runs": gzip.compress(b"{}"),
    "a run without its record": gzip.compress(b'{"runs": [{"id": 1}], "deleted": []}'),
    "a number for runs": gzip.compress(b'{"runs": 3, "deleted": null}'),
    "a million brackets": gzip.compress(b"[" * 10**6),
}


# With ids, because gzip writes the time into its header, and all test processes must collect the same names.
@pytest.mark.quick_cases(2)
@pytest.mark.parametrize("content", DAMAGED.values(), ids=DAMAGED)
def test_a_damaged_file_counts_as_no_file(shared: Store, trials, content: bytes):
    drive(shared, *(note for key in "abc" for note in trials.whole(key)))
    with MlflowWriter(shared, "one", {}) as writer:
        writer.write(Note("study", artifacts=((run_account.ACCOUNT_FILE, content),)))
    agree(shared)


def test_an_ended_run_takes_less_than_two_kibibytes():
    account = RunAccount()
    names = [f"evaluate/measure_{number}" for number in range(30)]

    def end(numbers: range) -> None:
        for number in numbers:
            run = f"{number:032x}"
            account.begin(
                run, number, {"trial": run, "point": f'{{"training.lr": {number / 7}}}', "host": "one"}
            )
            account.update(
                run, {name: number / (place + 3) for place, name in enumerate(names)}, {"seed": run}
            )
            account.set_status(run, "FINISHED", number + 1)

    end(range(100))  # the tables of the dictionary, and the first imports
    tracemalloc.start()
    end(range(100, 1_100))
    kept, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert kept < 1_000 * 2_048
    assert [run.end for run in account.in_order] == list(range(1, 1_101))
    assert account.latest == 1_100


def test_a_long_file_is_renewed_after_a_share_of_new_ends():
    account, renewed = RunAccount(), 0
    for number in range(6_000):
        account.begin(str(number), number, {})
        account.set_status(str(number), "FINISHED", number)
        if account.file_is_due:
            renewed += 1
            assert account.file_note()
    assert renewed == 10 + 1, "a file for each 500 of 5,000 runs, and one for the next thousand"


def test_a_study_without_records_has_no_runs(shared: Store):
    assert recall_runs(shared, "one") == RunAccount()
