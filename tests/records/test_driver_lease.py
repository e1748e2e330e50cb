"""One driver at a time for a study whose records many hosts share."""

import shutil
import threading
import time
from pathlib import Path

import pytest

from loopscale.records.stores.base import Store
from loopscale.records.stores.opening import open_store
from loopscale.records.trial_records import recorded_trials
from loopscale.records.writing.driver_lease import BEAT, SILENCE, DriverLease, LeaseTaken
from loopscale.records.writing.mlflow_writer import MlflowWriter

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]


@pytest.fixture
def database(pristine: Path, tmp_path: Path) -> str:
    """A database that hosts share."""
    shutil.copy(pristine / "mlflow.db", tmp_path / "shared.db")
    return f"sqlite:///{tmp_path}/shared.db"


def opened(uri: str, folder: Path) -> Store:
    """The store as a host with a storage of its own sees it."""
    return open_store(uri, storage=folder, create=True)


def claimed(store: Store, said: list[str] | None = None) -> DriverLease:
    mine = DriverLease(store, "one", (said if said is not None else []).append)
    mine.take(lambda _: None)
    return mine


def test_of_two_hosts_one_drives_and_the_other_hears_who_does(database: str, tmp_path: Path):
    here, there = opened(database, tmp_path / "a"), opened(database, tmp_path / "b")
    mine = claimed(here)
    began = time.monotonic()
    with pytest.raises(LeaseTaken, match="process"):
        claimed(there)
    assert time.monotonic() - began < 2 * BEAT + 5
    assert "process" in mine.holder
    mine.release()
    assert mine.holder == ""
    claimed(there).release()


def test_of_two_that_claim_in_the_same_moment_one_gets_it(database: str, tmp_path: Path):
    stores = [opened(database, tmp_path / name) for name in "abcd"]
    for store in stores:
        store.make_experiment("one")
    got: list[DriverLease] = []
    refused: list[LeaseTaken] = []

    def go(store: Store) -> None:
        try:
            got.append(claimed(store))
        except LeaseTaken as problem:
            refused.append(problem)

    threads = [threading.Thread(target=go, args=(store,)) for store in stores]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(got), len(refused)) == (1, 3)
    got[0].release()


def test_a_holder_that_was_cut_off_writes_nothing_after_another_has_taken_over(
    database: str, tmp_path: Path, trials
):
    here, there = opened(database, tmp_path / "a"), opened(database, tmp_path / "b")
    said: list[str] = []
    mine = claimed(here, said)
    mine._over.set()  # its link is cut: it is not heard any more, and works on
    mine._thread.join()
    with MlflowWriter(here, "one", {}, lease=mine) as writer:
        writer.write(trials.begun("k"))
        assert writer.flush(20)
        began = time.monotonic()
        theirs = claimed(there)
        assert time.monotonic() - began >= SILENCE - 2
        writer.write(trials.at("k", 1))
        assert writer.flush(20), "what it may not write does not wait for ever"
    assert said == [mine.overtaken] != [""]
    theirs.release()
    assert [record.step for record in recorded_trials(there, "one")] == [0]


def test_a_holder_outlives_a_server_that_is_away_longer_than_its_silence(server, tmp_path: Path):
    mine = claimed(opened(server.uri, tmp_path / "a"))
    server.kill()
    time.sleep(SILENCE + BEAT)
    server.start()
    mine.ensure_held()
    with pytest.raises(LeaseTaken):
        claimed(opened(server.uri, tmp_path / "b"))
    mine.release()
