"""A database that another process holds is locked and not damaged: the reader waits, and then names the holder."""

import contextlib
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from loopscale.cli.main import main
from loopscale.records.model import StoreError
from loopscale.records.stores import folder
from loopscale.records.stores.opening import open_store

HOLD = """\
import sqlite3, sys
database = sqlite3.connect(sys.argv[1], isolation_level=None)
database.execute("BEGIN EXCLUSIVE")
print("held", flush=True)
sys.stdin.read()
"""


@contextlib.contextmanager
def held(database: Path) -> Iterator[int]:
    """Another process holds the database."""
    command = [sys.executable, "-c", HOLD, str(database)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        assert process.stdout.readline() == "held\n"
        yield process.pid
        process.communicate("")


@pytest.fixture
def root(pristine: Path, tmp_path: Path, monkeypatch) -> Path:
    """A store whose readers wait for a moment only."""
    monkeypatch.setattr(folder, "LOCK_PATIENCE", 0.05)
    return Path(shutil.copytree(pristine, tmp_path / "store"))


def test_a_locked_database_is_called_locked_and_its_holder_is_named(root: Path):
    with held(root / "mlflow.db") as holder:
        for create in (False, True):
            with pytest.raises(StoreError, match=rf"is locked by process {holder} \(.+\); end it") as problem:
                open_store(root, create=create)
            assert "damaged" not in str(problem.value)
            assert "restore" not in str(problem.value)


def test_a_database_that_is_locked_after_the_store_was_opened_is_called_locked(root: Path):
    store = open_store(root)
    with held(root / "mlflow.db") as holder, pytest.raises(StoreError, match=f"locked by process {holder}"):
        store.experiments()


@pytest.mark.parametrize("words", [["list"], ["best", "tiny"], ["doctor"]])
def test_a_verb_says_in_one_line_that_the_database_is_locked(root: Path, capfd, words):
    with held(root / "mlflow.db"):
        code = main([*words, "--store", str(root)])
    out, err = capfd.readouterr()
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "is locked by process" in err


@pytest.mark.slow
def test_a_reader_waits_for_a_lock_that_ends(root: Path, monkeypatch):
    monkeypatch.setattr(folder, "LOCK_PATIENCE", 600.0)
    with contextlib.closing(sqlite3.connect(root / "mlflow.db", isolation_level=None)) as database:
        database.execute("BEGIN EXCLUSIVE")
        command = [sys.executable, "-m", "loopscale.cli.main", "list", "--store", str(root)]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as reader:
            with pytest.raises(subprocess.TimeoutExpired):
                reader.wait(3)
            database.execute("COMMIT")
            _, err = reader.communicate()
    assert "locked" not in err


def test_a_locked_database_without_a_server_is_called_locked(root: Path, tmp_path: Path):
    with held(root / "mlflow.db") as holder, pytest.raises(StoreError, match=f"locked by process {holder}"):
        open_store(f"sqlite:///{root}/mlflow.db?timeout=0.05", tmp_path / "storage")
