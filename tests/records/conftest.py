"""Real stores for tests: a folder, a tracking server that can be killed, a PostgreSQL database."""

import os
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from loopscale.records.model import Note
from loopscale.records.stores.folder import FolderStore
from loopscale.records.stores.opening import open_store
from loopscale.records.tables import encode_curve
from tests.ports import free_port
from tests.postgres import running_postgres


@pytest.fixture(scope="session")
def pristine(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A new store. Tests copy the folder or its database."""
    folder = tmp_path_factory.mktemp("pristine") / "store"
    open_store(folder, create=True)
    return folder


@pytest.fixture
def store(tmp_path: Path) -> FolderStore:
    store = open_store(tmp_path / "store", create=True)
    assert isinstance(store, FolderStore)
    return store


class Trials:
    """The notes that a driver writes."""

    curve = encode_curve(*(np.arange(6.0).reshape(2, 3) + offset for offset in (0, 10, 20)))

    def begun(self, key: str, role: str = "replicate", seed: int = 1, **settings: object) -> Note:
        params = {"model.kind": "looped", "model.width": 8, "training.lr": 1e-3, "training.truncate": True}
        tags = {
            "cell": "c1",
            "label": "width 8",
            "role": role,
            "number": "3",
            "seed": str(seed),
            "point": "{}",
        }
        return Note(key, params=params | settings, tags=tags | {"outcome": "running"}, status="RUNNING")

    def at(self, key: str, step: int, error: float = 0.5) -> Note:
        metrics = {"loss": error, "error": error, "error_last": error, "step": step, "seconds": step / 10}
        return Note(key, step, metrics)

    def finished(self, key: str, step: int, error: float = 0.25) -> Note:
        metrics = {"evaluate/error": error, "evaluate/error_last": error / 2, "evaluate/raw_error": 2 * error}
        files = (("curve.parquet", self.curve),)
        return Note(key, step, metrics, tags={"outcome": "finished"}, status="FINISHED", artifacts=files)

    def whole(self, key: str, error: float = 0.25, **settings: object) -> list[Note]:
        return [
            self.begun(key, **settings),
            self.at(key, 10),
            self.at(key, 20),
            self.finished(key, 20, error),
        ]


@pytest.fixture
def trials() -> Trials:
    return Trials()


def until(done: Callable[[], object], seconds: float) -> bool:
    """Wait at most so many seconds until `done` is true. Returns the last answer of `done`."""
    end = time.monotonic() + seconds
    while not done() and time.monotonic() < end:
        time.sleep(0.1)
    return bool(done())


class Server:
    """A tracking server with one worker, as a process that can be killed and started again."""

    options: tuple[str, ...] = ()

    def __init__(self, folder: Path) -> None:
        self.folder, self.port = folder, free_port()
        self.database = f"sqlite:///{folder}/server.db"
        self.uri = f"http://127.0.0.1:{self.port}"
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        place = ["--backend-store-uri", self.database]
        place += ["--artifacts-destination", str(self.folder / "artifacts"), "--port", str(self.port)]
        command = [sys.executable, "-m", "mlflow", "server", "--workers", "1", *place, *self.options]
        with (self.folder / "server.log").open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
        until = time.monotonic() + 540
        while time.monotonic() < until:
            try:
                urllib.request.urlopen(f"{self.uri}/health", timeout=5).close()
            except OSError:
                assert self.process.poll() is None, (self.folder / "server.log").read_text()
                time.sleep(0.1)
            else:
                return
        self.kill()
        raise AssertionError((self.folder / "server.log").read_text())

    def hang(self) -> None:
        """Accept connections without answers, until `go_on`."""
        assert self.process
        os.killpg(self.process.pid, signal.SIGSTOP)

    def go_on(self) -> None:
        assert self.process
        os.killpg(self.process.pid, signal.SIGCONT)

    def kill(self) -> None:
        if self.process:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()
            self.process = None


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    server = Server(tmp_path)
    server.start()
    yield server
    server.kill()


@pytest.fixture(scope="session")
def postgres() -> Iterator[str]:
    """The address of an empty database on a PostgreSQL server that runs during the tests."""
    with running_postgres() as address:
        yield address
