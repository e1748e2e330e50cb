"""Permissions on a real tracking server with passwords, on SQLite."""

import contextlib
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from loopscale.cli.main import main
from loopscale.records.model import STUDY, STUDY_JSON, Note, StoreError
from loopscale.records.stores.base import Store
from loopscale.records.stores.opening import open_store
from loopscale.records.study_records import recorded_trials
from loopscale.records.writing import mlflow_writer
from loopscale.records.writing.driver_lease import TAG, DriverLease
from loopscale.records.writing.mlflow_writer import Delivery, Denied, MlflowWriter
from tests.records.conftest import Guarded, Login, until

STUDY_FILE = """\
question: Does it record?
source: nowhere
fixed:
  task: {kind: linear_regression, dim: 2, points: 4}
  model: {kind: looped, width: 8, heads: 1}
  training: {steps: 4, batch_size: 4, loops: 2, window: 1, eval_every: 2}
replicates: 1
evaluate: {loops: 4, prompts: 16}
"""


def write(store: Store, study: str, notes: list[Note]) -> str:
    """The study's experiment, with these notes in it."""
    about = b'{"question": "why?", "cells": [], "planned": 1}'
    with MlflowWriter(store, study, {}) as writer:
        for note in (Note(STUDY, artifacts=((STUDY_JSON, about),), status="FINISHED"), *notes):
            writer.write(note)
        assert writer.flush(120)
        assert not writer.refused
    return store.make_experiment(study)


@pytest.fixture
def call(tmp_path: Path, guarded: Guarded, monkeypatch: pytest.MonkeyPatch, capsys):
    """The program on the server: its code, and its lines on standard output and error."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "one.yaml").write_text(STUDY_FILE)

    def run(*words: str) -> tuple[int, list[str], list[str]]:
        code = main([*words, "--store", guarded.uri, "--storage", str(tmp_path / "storage")])
        out, err = capsys.readouterr()
        return code, out.splitlines(), err.splitlines()

    return run


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_user_without_permission_gets_one_line_and_nothing_is_trained(
    guarded: Guarded, login: Login, call, tmp_path: Path, trials
):
    login("anna")
    experiment = write(open_store(guarded.uri, storage=tmp_path / "a", create=True), "one", trials.whole("a"))
    guarded.grant("bob", experiment, "READ")

    def stays_out(user: str | None, word: str | None, expected: str, *verbs: str) -> None:
        login(user, word)
        for verb in verbs:
            code, out, err = call(verb, *(["one.yaml"] if verb != "list" else []))
            assert (code, out, len(err)) == (2, [], 1), (verb, out, err)
            assert expected in err[0]

    stays_out(
        "bob", "not the password", "does not let the user bob in; set MLFLOW_TRACKING_USERNAME", "run", "list"
    )
    stays_out(None, None, "does not let you in; set MLFLOW_TRACKING_USERNAME", "run", "best")
    stays_out("bob", None, "does not let the user bob write the records of one; ask whoever runs it", "run")
    stays_out("carl", None, "does not let the user carl do this; ask whoever runs it", "run", "best")
    assert not list((tmp_path / "storage").glob("checkpoints/*"))
    assert not (tmp_path / "storage/ray").exists()

    login("bob")
    assert call("list")[0] == 0
    assert call("query", "SELECT trial, outcome FROM trials", "--json")[1] == [
        "[",
        " {",
        '  "trial": "a",',
        '  "outcome": "finished"',
        " }",
        "]",
    ]
    assert call("best", "one.yaml")[0] == 0
    login("carl")
    assert call("query", "SELECT trial FROM trials", "--json")[1] == ["[]"]
    login("anna")
    tags = open_store(guarded.uri, storage=tmp_path / "a").client.get_experiment(experiment).tags
    assert TAG not in tags, "no user without permission has left a claim"


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_driver_without_permission_learns_so_before_it_watches_another_driver(
    guarded: Guarded, login: Login, tmp_path: Path
):
    login("anna")
    store = open_store(guarded.uri, storage=tmp_path / "a", create=True)
    first = DriverLease(store, "held", lambda _: None)
    first.take(lambda _: None)
    try:
        guarded.grant("bob", store.make_experiment("held"), "READ")
        login("bob")
        lease = DriverLease(
            open_store(guarded.uri, storage=tmp_path / "b", create=True), "held", lambda _: None
        )
        notices: list[str] = []
        with pytest.raises(StoreError, match="does not let the user bob write the records of held; ask"):
            lease.take(notices.append)
        assert notices == [], "it does not watch the other driver"
    finally:
        login("anna")
        first.release()


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_notes_without_permission_are_written_once_permission_is_back(
    guarded: Guarded, login: Login, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, trials
):
    monkeypatch.setattr(mlflow_writer, "TOLERANCE", 1.0)
    login("bob")
    store = open_store(guarded.uri, storage=tmp_path / "b", create=True)
    experiment = store.make_experiment("taken")
    lease, reasons = DriverLease(store, "taken", lambda _: None), list[str]()
    lease.take(lambda _: None)
    with MlflowWriter(store, "taken", {}, lease=lease, on_denied=reasons.append) as writer:
        for note in (trials.begun("a"), trials.at("a", 10)):
            writer.write(note)
        assert writer.flush(120)
        with _taken_away(guarded, "bob", experiment):
            for note in (trials.at("a", 20), trials.finished("a", 20), *trials.whole("b")):
                writer.write(note)
            assert until(lambda: writer.denied, 60)
            assert not writer.flush(1e6), "flush does not wait for a store that denies writing"
            assert "does not let the user bob record; ask whoever runs it for EDIT" in writer.denied
            assert writer.away_since
            assert writer.backlog == 6
            time.sleep(3)
            assert reasons == [reasons[0]], "told once, after many tries"
        assert until(lambda: not writer.denied, 60)
        assert writer.flush(120)
        assert writer.refused == []
        assert writer.away_since is None
    lease.release()
    records = {record.key: record for record in recorded_trials(store, "taken")}
    assert {key: record.outcome for key, record in records.items()} == {"a": "finished", "b": "finished"}
    history = store.client.get_metric_history(records["a"].run, "error")
    assert sorted(point.step for point in history) == [10, 20]


@contextlib.contextmanager
def _taken_away(guarded: Guarded, user: str, experiment: str) -> Iterator[None]:
    guarded.revoke(user, experiment)
    guarded.grant(user, experiment, "READ")
    yield
    guarded.revoke(user, experiment)
    guarded.grant(user, experiment, "EDIT")


@pytest.mark.slow
def test_a_short_denial_does_not_stop_the_driver():
    reasons, answers = list[str](), [Denied("no"), Denied("no"), None]

    def send(_: list[Note]) -> None:
        if problem := answers.pop(0):
            raise problem

    queue = Delivery(send, reasons.append)
    queue.write(Note("a"))
    assert queue.flush(20)
    assert (reasons, queue.denied, queue.away_since) == ([], "", None)
    queue.close(1)


@pytest.mark.slow
def test_after_a_long_denial_flush_waits_no_longer_and_no_note_is_lost(
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.setattr(mlflow_writer, "TOLERANCE", 0.2)
    reasons, closed, arrived = list[str](), [True], list[Note]()

    def send(notes: list[Note]) -> None:
        if closed:
            raise Denied("you may not")
        arrived.extend(notes)

    queue = Delivery(send, reasons.append)
    notes = [Note("a", step) for step in range(3)]
    for note in notes:
        queue.write(note)
    assert not queue.flush(1e6)
    assert (reasons, queue.denied, queue.backlog) == (["you may not"], "you may not", 3)
    closed.clear()
    assert until(lambda: arrived, 60)
    assert arrived == notes
    assert until(lambda: not queue.denied, 60)
    queue.close(1)
