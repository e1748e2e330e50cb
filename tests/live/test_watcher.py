"""The thread that reads the records: a store that is away, what the driver says, and a driver that is killed."""

import json
from pathlib import Path
from typing import Any

import pytest

from loopscale.live.board import Board
from loopscale.live.watcher import Watcher
from loopscale.records.stores.opening import open_store
from loopscale.runner.lease import lease
from loopscale.studies.spec import Study
from tests.cli.conftest import TINY, record


@pytest.fixture
def store(tmp_path: Path) -> Path:
    with record(tmp_path / "store", Study.parse(TINY, "tiny")) as recording:
        recording.whole()
    return tmp_path / "store"


def header(board: Board) -> dict[str, Any]:
    return json.loads(board.since(0)[1])["header"]


def test_a_store_that_is_away_is_a_sentence_and_the_last_state_stays(store: Path):
    board = Board()
    watcher = Watcher(board, lambda: open_store(store), "tiny")
    watcher.look()
    assert header(board)["problem"] is None
    (store / "mlflow.db").rename(store / "away.db")
    watcher.look()
    problem = header(board)["problem"]
    assert problem[1]
    assert header(board)["over"] == 10
    watcher.look()
    assert header(board)["problem"][0] == problem[0], "the time of the first failure stays"
    (store / "away.db").rename(store / "mlflow.db")
    watcher.look()
    assert header(board)["problem"] is None


def test_a_store_that_cannot_be_opened_yet_is_opened_later(store: Path):
    board, elsewhere = Board(), store.with_name("elsewhere")
    watcher = Watcher(board, lambda: open_store(elsewhere), "tiny", driven=True)
    watcher.look()
    assert header(board)["problem"] is None, "the driver has no records yet"
    store.rename(elsewhere)
    watcher.look()
    assert header(board)["over"] == 10


def test_the_page_names_the_driver_that_holds_the_study(store: Path):
    board = Board()
    watcher = Watcher(board, lambda: open_store(store), "tiny")
    watcher.look()
    assert (header(board)["state"], header(board)["running"]) == ("over", False)
    with lease(store, "tiny"):
        watcher.look()
        assert header(board)["state"].startswith("runs, by process ")
        assert header(board)["running"]
    watcher.look()
    assert header(board)["state"] == "over"


def test_what_the_driver_says_comes_before_the_records(store: Path):
    board = Board()
    watcher = Watcher(board, lambda: open_store(store), driven=True)
    watcher.hear({"stage": "the start of Ray"})
    watcher.look()
    assert header(board)["stage"] == "the start of Ray"
    assert header(board)["study"] == ""
    workers = [{"id": "a", "does": "trains"}]
    watcher.hear({"study": "tiny", "stage": "", "work": 0.5, "over": 4, "workers": workers})
    watcher.look()
    assert (header(board)["work"], header(board)["over"], header(board)["planned"]) == (0.5, 4, 10)
    assert json.loads(board.since(0)[1])["workers"] == workers
    watcher.hear({"stopping": True})
    assert header(board)["state"] == "stops"
    watcher.hear_end()
    assert json.loads(board.since(0)[1])["workers"] == []


def test_a_driver_that_was_killed_is_said_so(tmp_path: Path):
    with record(tmp_path / "store", Study.parse(TINY, "tiny")) as recording:
        recording.parent("RUNNING")
    board = Board()
    watcher = Watcher(board, lambda: open_store(tmp_path / "store"), "tiny", driven=True)
    watcher.look()
    assert header(board)["state"] == "runs"
    watcher.hear_end()
    assert "ended without a word" in header(board)["state"]
    foreign = Watcher(Board(), lambda: open_store(tmp_path / "store"), "tiny")
    foreign.look()
    assert header(foreign.board)["state"].startswith("cut short")
