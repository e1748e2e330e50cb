"""One driver at a time for a study whose records many hosts share."""

import json
import shutil
import threading
import time
from pathlib import Path

import pytest

from loopscale.records.stores.base import Store
from loopscale.records.stores.opening import open_store
from loopscale.records.study_records import recorded_trials
from loopscale.records.writing.driver_lease import BEAT, SILENCE, TAG, DriverLease, LeaseTaken
from loopscale.records.writing.mlflow_writer import MlflowWriter

pytestmark = [pytest.mark.slow, pytest.mark.timeout(720)]


@pytest.fixture
def database(pristine: Path, tmp_path: Path) -> str:
    """A database that hosts share."""
    shutil.copy(pristine / "mlflow.db", tmp_path / "shared.db")
    return f"sqlite:///{tmp_path}/shared.db"


def opened(uri: str, folder: Path) -> Store:
    """The store as a host with a storage of its own sees it."""
    return open_store(uri, storage=folder, create=True)


def taken(store: Store, losses: list[str] | None = None) -> DriverLease:
    """A lease that is held. `losses` gets the name of a driver that takes the study over."""
    lease = DriverLease(store, "one", (losses if losses is not None else []).append)
    lease.take(lambda _: None)
    return lease


def claim_of(store: Store) -> str:
    """The claim of the study's driver, as the records hold it."""
    return store.client.get_experiment(store.require_experiment("one")).tags[TAG]


def test_only_one_of_two_hosts_gets_the_lease_and_the_other_learns_the_holder(database: str, tmp_path: Path):
    first, second = opened(database, tmp_path / "a"), opened(database, tmp_path / "b")
    lease = taken(first)
    # The holder renews its claim every 10 s, so the other host learns this within its 35 s. Only a machine that keeps
    # the holder's thread from running for 35 s changes the answer.
    with pytest.raises(LeaseTaken, match="process"):
        taken(second)
    assert "process" in json.loads(claim_of(second))["who"]
    lease.release()
    assert claim_of(second) == ""
    taken(second).release()


def test_one_renewal_is_enough_to_learn_that_the_holder_lives(database: str, tmp_path: Path):
    first, second = opened(database, tmp_path / "a"), opened(database, tmp_path / "b")
    lease = taken(first)
    lease._over.set()  # from here on the test renews the claim
    lease._thread.join()
    other, notices = DriverLease(second, "one", lambda _: None), list[str]()

    def renew(notice: str) -> None:
        notices.append(notice)
        lease._confirm()

    with pytest.raises(LeaseTaken, match="process"):
        other.take(renew)
    assert len(notices) == 1
    assert lease.count == 2
    lease.release()


def test_only_one_of_several_simultaneous_claims_gets_the_lease(database: str, tmp_path: Path):
    stores = [opened(database, tmp_path / name) for name in "abcd"]
    for store in stores:
        store.make_experiment("one")
    held: list[DriverLease] = []
    refused: list[LeaseTaken] = []
    together = threading.Barrier(len(stores), timeout=300)

    class Simultaneous(DriverLease):
        """Has read before any claim is written, and settles after the last claim is written."""

        def _write(self) -> None:
            if self.count:
                super()._write()
                return
            together.wait()
            try:
                super()._write()
            finally:
                together.wait()

    def go(store: Store) -> None:
        lease = Simultaneous(store, "one", lambda _: None)
        try:
            lease.take(lambda _: None)
            held.append(lease)
        except LeaseTaken as problem:
            refused.append(problem)

    threads = [threading.Thread(target=go, args=(store,)) for store in stores]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (len(held), len(refused)) == (1, 3)
    held[0].release()


def test_a_holder_that_was_cut_off_writes_nothing_after_a_takeover(database: str, tmp_path: Path, trials):
    first, second = opened(database, tmp_path / "a"), opened(database, tmp_path / "b")
    losses: list[str] = []
    lease = taken(first, losses)
    lease._over.set()  # its link is cut: it is not heard any more, and works on
    lease._thread.join()
    with MlflowWriter(first, "one", {}, lease=lease) as writer:
        writer.write(trials.begun("k"))
        assert writer.flush(60)
        began = time.monotonic()
        new_lease = taken(second)
        assert time.monotonic() - began >= SILENCE - 2
        writer.write(trials.at("k", 1))
        assert writer.flush(60), "what it may not write does not wait for ever"
    assert losses == [lease.overtaken] != [""]
    new_lease.release()
    assert [record.step for record in recorded_trials(second, "one")] == [0]


def test_a_holder_keeps_the_lease_while_the_server_is_away_for_long(server, tmp_path: Path):
    lease = taken(opened(server.uri, tmp_path / "a"))
    server.kill()
    time.sleep(SILENCE + BEAT)
    server.start()
    lease.ensure_held()
    with pytest.raises(LeaseTaken):
        taken(opened(server.uri, tmp_path / "b"))
    lease.release()
