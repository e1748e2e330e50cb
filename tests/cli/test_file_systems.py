"""Readers and runs on unusual file systems: read only, without locks, full, or somebody else's."""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from loopscale.errors import StoreError
from loopscale.records.stores.opening import open_store
from tests.core.test_file_locks import without_flock as without_flock
from tests.disks import small_disk

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]
READERS = [["list"], ["best", "tiny"], ["query", "SELECT count(*) FROM trials"]]


def program(*words: str, before: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the program, after shell commands in a mount namespace of its own if there are any."""
    command = [sys.executable, "-m", "loopscale.cli.main", *words]
    if before:
        if os.getuid() != 0:
            pytest.skip("only root mounts")
        command = ["unshare", "-m", "sh", "-c", f'{before} && exec "$@"', "sh", *command]
    return subprocess.run(command, capture_output=True, text=True, env=os.environ | environment)


@pytest.fixture
def copy(store: Path, elsewhere: Path) -> Path:
    """A store that somebody has run: with the lock of the driver, and without a mirror."""
    shutil.copytree(store, elsewhere / "records", ignore=shutil.ignore_patterns("mirror", "reports"))
    (elsewhere / "records" / "locks").mkdir()
    (elsewhere / "records" / "locks" / "tiny.lock").write_text("process 1 on elsewhere\n")
    return elsewhere / "records"


def test_every_reader_answers_on_a_read_only_mount(copy: Path):
    mount = f"mount --bind {copy} {copy} && mount -o remount,bind,ro {copy}"
    for words in READERS:
        done = program(*words, "--store", str(copy), before=mount)
        assert (done.returncode, done.stderr) == (0, "")
    done = program("report", "tiny", "--store", str(copy), "--out", "page.html", before=mount)
    assert "Traceback" not in done.stderr
    assert (done.returncode, len(done.stderr.splitlines())) == (0, 1), "the page cannot be attached"
    assert "it cannot be written" in done.stderr, "a retry is useless"
    assert Path("page.html").exists()


def test_every_reader_answers_on_somebody_elses_store(copy: Path):
    if os.getuid() != 0:
        pytest.skip("only root becomes another user")
    for path in [copy, *copy.rglob("*")]:
        path.chmod(0o555 if path.is_dir() else 0o444)
    # Without its capabilities root has to keep the permissions, as every other user has to.
    drop = [*["setpriv", "--bounding-set=-all", "--inh-caps=-all", "--ambient-caps=-all"]]
    for words in READERS:
        command = [*drop, sys.executable, "-m", "loopscale.cli.main", *words, "--store", str(copy)]
        done = subprocess.run(command, capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("error", ["37", "38", "95"], ids=["ENOLCK", "ENOSYS", "EOPNOTSUPP"])
def test_every_reader_answers_without_locks_and_says_so_in_one_line(copy: Path, without_flock, error: str):
    for words in READERS:
        done = program(*words, "--store", str(copy), LD_PRELOAD=without_flock, FLOCK_ERROR=error)
        assert (done.returncode, len(done.stderr.splitlines())) == (0, 1), done.stderr
        assert "has no locks; a temporary folder has the tables" in done.stderr


def test_every_reader_answers_on_a_full_disk(store: Path, elsewhere: Path):
    with small_disk(elsewhere / "disk", "32m") as disk:
        shutil.copytree(store, disk / "records", ignore=shutil.ignore_patterns("mirror", "reports"))
        subprocess.run(["dd", "if=/dev/zero", f"of={disk}/ballast", "bs=4k"], capture_output=True)
        assert shutil.disk_usage(disk).free == 0
        for words in READERS:
            done = program(*words, "--store", str(disk / "records"))
            assert done.returncode == 0, done.stderr
            assert "Traceback" not in done.stderr
            assert len(done.stderr.splitlines()) <= 1
        answer = program("report", "tiny", "--store", str(disk / "records"))
        note, mistake = answer.stderr.splitlines()
        assert (answer.returncode, note[:6]) == (2, "note: ")
        assert "(No space left on device); give another file with --out" in mistake


def test_a_store_that_does_not_fit_on_its_disk_is_one_line(elsewhere: Path):
    with small_disk(elsewhere / "disk", "300k") as disk:
        with pytest.raises(StoreError) as caught:
            open_store(disk / "records", create=True)
        assert re.fullmatch(
            r"the disk of \S+ is full; make room there, or give another folder with --store or LOOPSCALE_STORE",
            str(caught.value),
        )
