"""The page of a study on a tracking server: its driver, its growth, and the time while the server is away."""

import json
from pathlib import Path
from typing import Any

import pytest

from loopscale.live.board import Board
from loopscale.live.watcher import Watcher
from loopscale.records.stores.opening import open_store
from loopscale.records.writing.driver_lease import DriverLease
from loopscale.records.writing.mlflow_writer import MlflowWriter
from loopscale.studies.spec import Study
from tests.cli.conftest import TINY, Recording
from tests.live.test_recorded_study import begin, validate
from tests.records.conftest import Server, server  # noqa: F401

pytestmark = pytest.mark.slow


def test_a_study_on_a_server_is_followed_and_an_outage_is_a_sentence(server: Server, tmp_path: Path):  # noqa: F811
    study = Study.parse(TINY, "tiny")
    store = open_store(server.uri, storage=tmp_path / "driver", create=True)
    board = Board()
    watcher = Watcher(board, lambda: open_store(server.uri, storage=tmp_path / "page"), "tiny")

    def look() -> dict[str, Any]:
        watcher.look()
        return json.loads(board.since(0)[1])

    lease = DriverLease(store, "tiny", lambda _: None)
    lease.take(lambda _: None)
    with MlflowWriter(store, "tiny", {}) as writer:
        recording = Recording(study, writer)
        recording.parent("RUNNING")
        key = begin(recording, study.cells()[0], 0, 2e-3, {2: 0.5})
        assert writer.flush(300)
        state = look()
        assert state["header"]["state"].startswith("runs, by process ")
        assert state[f"curve {key}"]["x"] == [2]
        validate(recording, key, {4: 0.25})
        recording.trial(study.cells()[1], "tuning", 0, 0, {"training.lr": 2e-3}, 0.125)
        assert writer.flush(300)
        state = look()
        assert state[f"curve {key}"]["y"] == [0.5, 0.25]
        assert state["header"]["over"] == 1
        server.kill()
        state = look()
        assert state["header"]["problem"][1]
        assert state["header"]["over"] == 1
        server.start()
        assert look()["header"]["problem"] is None
        recording.parent("FINISHED")
        assert writer.flush(300)
    lease.release()
    state = look()
    assert (state["header"]["state"], state["header"]["running"]) == ("over", False)
