"""Locks of files, with flock and on file systems without flock, by a library that replaces flock."""

import errno
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from loopscale.core import file_locks

SOURCE = Path(__file__).parents[1] / "records" / "nolocks.c"
HOLDER = """
import sys
from pathlib import Path
from loopscale.core.file_locks import LockHeld, holder_of, locked, process_name
path = Path(sys.argv[1])
try:
    with path.open("a+") as file, locked(file, path, wait=False):
        file.truncate(0), file.write(process_name()), file.flush()
        print("held", flush=True)
        sys.stdin.read()
except LockHeld as holder:
    print(f"refused by {holder}", flush=True)
"""


@pytest.fixture(scope="module")
def without_flock(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The library that takes flock away from a program that preloads it."""
    library = tmp_path_factory.mktemp("library") / "nolocks.so"
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", library, SOURCE], check=True)
    return str(library)


@pytest.fixture(params=["flock", "none"])
def start(request: pytest.FixtureRequest, tmp_path: Path, without_flock: str) -> Iterator[Callable]:
    """Starts processes that try to hold the lock of one file, and ends them."""
    preload = (
        {"LD_PRELOAD": without_flock, "FLOCK_ERROR": str(errno.ENOSYS)} if request.param == "none" else {}
    )
    processes = list[subprocess.Popen[str]]()

    def begin() -> tuple[subprocess.Popen[str], str]:
        process = subprocess.Popen(
            [sys.executable, "-c", HOLDER, str(tmp_path / "lock")],
            env=os.environ | preload,
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        processes.append(process)
        assert process.stdout
        return process, process.stdout.readline().strip()

    yield begin
    for process in processes:
        process.kill()
        process.communicate()


def test_one_process_holds_a_lock_until_its_end_or_its_death(start):
    first, said = start()
    assert said == "held"
    assert start()[1].startswith(f"refused by process {first.pid} on ")
    first.kill()
    first.wait()
    second, said = start()
    assert said == "held", "a dead holder on this host is noticed at once"
    second.communicate()
    assert start()[1] == "held"


def test_a_holder_on_another_host_is_alive_while_it_changes_its_file(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(file_locks, "SILENCE_SECONDS", 1.0)
    monkeypatch.setattr(file_locks, "take", _no_locks)
    path = tmp_path / "lock"
    path.write_text("")
    held = tmp_path / "lock.held"
    held.write_text('{"who": "process 1 on elsewhere", "token": "t", "beats": 1}')
    with path.open("a") as file, file_locks.locked(file, path, wait=False):  # nobody changes the file
        assert file_locks.process_name() in held.read_text()
    assert not held.exists()


@pytest.mark.slow
def test_damage_to_the_file_of_a_lock_blocks_nobody(tmp_path: Path, monkeypatch):
    monkeypatch.setattr(file_locks, "SILENCE_SECONDS", 0.5)
    monkeypatch.setattr(file_locks, "take", _no_locks)
    path = tmp_path / "lock"
    path.write_text("")
    for damage in ("", "{", "[]", '{"who": 1}'):
        (tmp_path / "lock.held").write_text(damage)
        with path.open("a") as file, file_locks.locked(file, path):
            pass
    assert os.listdir(tmp_path) == ["lock"]


def test_a_reader_of_a_read_only_lock_needs_no_permission_to_write(tmp_path: Path):
    path = tmp_path / "lock"
    path.write_text("process 1 on elsewhere")
    path.chmod(0o444)
    assert file_locks.holder_of(path) is None
    assert file_locks.holder_of(tmp_path / "absent") is None
    with path.open() as file, file_locks.locked(file, path):
        assert file_locks.holder_of(path) == "process 1 on elsewhere"


def _no_locks(*_: object) -> None:
    raise file_locks.NoLocks(errno.ENOLCK, "no locks")
