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
import requests

from loopscale.cli.ui import SERVER_ENVIRONMENT
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


ADMIN = ("admin", "a long one for the tests")


class Guarded(Server):
    """A server with passwords. A user sees only his own experiments."""

    options = ("--app-name", "basic-auth")

    def start(self) -> None:
        settings = {
            "default_permission": "NO_PERMISSIONS",
            "database_uri": f"sqlite:///{self.folder}/users.db",
            "admin_username": ADMIN[0],
            "authorization_function": "mlflow.server.auth:authenticate_request_basic_auth",
        }
        (self.folder / "auth.ini").write_text(
            "\n".join(["[mlflow]", *(f"{name} = {value}" for name, value in settings.items())])
        )
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("MLFLOW_AUTH_CONFIG_PATH", str(self.folder / "auth.ini"))
            patch.setenv("MLFLOW_AUTH_ADMIN_PASSWORD", ADMIN[1])
            patch.setenv("MLFLOW_FLASK_SERVER_SECRET_KEY", "x" * 40)
            for name, text in SERVER_ENVIRONMENT.items():  # as `loopscale ui` serves a store
                patch.setenv(name, text)
            super().start()

    def ask(self, path: str, **what: str) -> None:
        done = requests.post(f"{self.uri}/api/{path}", json=what, auth=ADMIN, timeout=60)
        assert done.status_code == 200, done.text

    def grant(self, user: str, experiment: str, permission: str) -> None:
        """Set a permission. For the maker of an experiment it replaces MANAGE."""
        about = {"username": user, "resource_type": "experiment", "resource_id": experiment}
        self.ask("3.0/mlflow/users/permissions/grant", **about, permission=permission)

    def revoke(self, user: str, experiment: str) -> None:
        about = {"username": user, "resource_type": "experiment", "resource_id": experiment}
        self.ask("3.0/mlflow/users/permissions/revoke", **about)


Login = Callable[..., None]


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    server = Guarded(tmp_path_factory.mktemp("guarded"))
    server.start()
    try:
        for user in ("anna", "bob", "carl"):
            server.ask("2.0/mlflow/users/create", username=user, password=password(user))
        yield server
    finally:
        server.kill()


def password(user: str) -> str:
    return f"{user}'s long passphrase"


@pytest.fixture
def login(monkeypatch: pytest.MonkeyPatch) -> Login:
    def as_user(name: str | None, word: str | None = None) -> None:
        for variable, value in (("USERNAME", name), ("PASSWORD", word or (name and password(name)))):
            if value:
                monkeypatch.setenv(f"MLFLOW_TRACKING_{variable}", value)
            else:
                monkeypatch.delenv(f"MLFLOW_TRACKING_{variable}", raising=False)

    return as_user
