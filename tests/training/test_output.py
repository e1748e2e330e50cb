"""The output of a trial: which text is kept. A store that is away costs no trial."""

import fcntl
import os
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import pytest
from typing_extensions import override

from loopscale.training import output
from loopscale.training.checkpoint_stores import Folder, open_checkpoint_store
from loopscale.training.output import MOST_BYTES, NOT_KEPT, TrialOutput, kept_output, read_output
from loopscale.training.storage import StorageUnavailable

NEVER = 1e6
"""Seconds between two looks for new text: only the look at the end of the context counts."""
PROGRAM = """
import os, sys
from loopscale.training import output
from loopscale.training.checkpoint_stores import open_checkpoint_store

output.END_SECONDS = 60
print("before")
with output.kept_output(open_checkpoint_store(sys.argv[1], 0.0), "trial", float(sys.argv[2])):
    exec(sys.argv[3])
print("after")
"""


def attempt(folder: Path, code: str, pause: float = NEVER) -> str:
    """Run the code as a trial in a process of its own. Returns the text on the terminal."""
    words = [sys.executable, "-c", PROGRAM, str(folder), str(pause), code]
    return subprocess.run(words, capture_output=True, text=True, check=False).stdout


def kept(folder: Path) -> str:
    return read_output(open_checkpoint_store(folder), "trial")


@pytest.mark.timeout(120)
def test_all_that_an_attempt_prints_is_kept_and_later_attempts_follow(tmp_path: Path):
    assert (
        attempt(tmp_path, "print('one'); os.write(2, b'two\\n'); os.system('echo three')")
        == "before\nafter\n"
    )
    first = kept(tmp_path)
    heading, *lines = first.splitlines()
    assert heading.startswith("== process ")
    assert f" on {os.uname().nodename}, " in heading
    assert sorted(lines) == ["one", "three", "two"]
    assert attempt(tmp_path, "print('four')") == "before\nafter\n"
    assert kept(tmp_path).startswith(first)
    assert kept(tmp_path).splitlines()[-1] == "four"
    assert kept(tmp_path).count("== process ") == 2


def test_a_trial_that_prints_nothing_has_no_file(tmp_path: Path):
    attempt(tmp_path, "pass")
    assert kept(tmp_path) == ""
    assert list(tmp_path.iterdir()) == []


def test_text_is_kept_while_the_trial_runs_and_after_its_process_has_died(tmp_path: Path):
    code = """
import time
print("a line without an end", end="")
while not list(__import__("pathlib").Path(sys.argv[1]).glob("*.log")):
    time.sleep(0.01)
os.kill(os.getpid(), 9)
"""
    assert attempt(tmp_path, code, pause=0.01) == "before\n"
    assert kept(tmp_path).endswith("a line without an end")


def test_an_exception_passes_and_its_last_words_are_kept(tmp_path: Path):
    assert attempt(tmp_path, "print('last words'); 1 / 0") == "before\n"
    assert kept(tmp_path).endswith("last words\n")


def test_a_store_that_is_away_costs_no_trial(tmp_path: Path):
    assert attempt(tmp_path / "not mounted", "print('lost')") == "before\nafter\n"
    assert not (tmp_path / "not mounted").exists()


class Stuck(Folder):
    """A store whose writes never end."""

    @override
    def put(self, name: str, content: bytes) -> None:
        threading.Event().wait()


@pytest.mark.timeout(60)
def test_a_store_that_does_not_answer_holds_no_trial(tmp_path: Path):
    reached = False
    with kept_output(Stuck(tmp_path), "trial", NEVER):
        os.write(1, b"lost\n")
        reached = True
    assert reached
    assert kept(tmp_path) == ""


@pytest.mark.parametrize("times", [1, 20])
def test_of_long_output_the_last_whole_lines_are_kept(
    tmp_path: Path, times: int, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(output, "END_SECONDS", 60)
    store, lines = open_checkpoint_store(tmp_path), MOST_BYTES // 10
    for number in range(times):
        with kept_output(store, "trial", NEVER):
            os.write(1, b"".join(f"line {line:06}\n".encode() for line in range(lines)))
            os.write(2, f"end of {number}\n".encode())
    content = store.get("trial.log")
    assert len(content) <= MOST_BYTES + len(NOT_KEPT)
    notice, first, *_, end = content.decode().splitlines()
    assert (f"{notice}\n".encode(), first[:5], len(first)) == (NOT_KEPT, "line ", len("line 000000"))
    assert end == f"end of {times - 1}"


class Slow(Folder):
    """A store that is away at its first write; the trial prints during each write."""

    file = 0
    writes = 0

    @override
    def put(self, name: str, content: bytes) -> None:
        self.writes += 1
        os.write(self.file, f"during write {self.writes}\n".encode())
        if self.writes == 1:
            raise StorageUnavailable
        super().put(name, content)


def test_text_that_comes_while_a_long_file_is_cut_and_sent_is_kept(tmp_path: Path):
    store = Slow(tmp_path)
    with tempfile.TemporaryFile(buffering=0) as file:
        fcntl.fcntl(file, fcntl.F_SETFL, os.O_APPEND)
        store.file = file.fileno()
        trial = TrialOutput(store, "trial", file.fileno())
        file.write((b"x" * 99 + b"\n") * (MOST_BYTES // 10) + b"half a line")
        with pytest.raises(StorageUnavailable):
            trial.send()
        trial.send()
        trial.send()
    *_, cut, first, second = kept(tmp_path).splitlines()
    assert cut == "half a line == the rest of this line is not kept =="
    assert (first, second) == ("during write 1", "during write 2")


def test_output_without_an_end_does_not_fill_the_disk(tmp_path: Path):
    code = """
import time
block, reached = b"x" * 99 + b"\\n", 0
for _ in range(12):
    os.write(1, block * 10_000)
    size = os.fstat(1).st_size
    deadline = time.monotonic() + 20
    while size > 8 * 256 * 1024 and os.fstat(1).st_size >= size and time.monotonic() < deadline:
        time.sleep(0.01)
    reached = max(reached, size)
os.write(1, f"at most {reached}\\n".encode())
"""
    assert attempt(tmp_path, code, pause=0.01) == "before\nafter\n"
    *_, last = kept(tmp_path).splitlines()
    assert int(last.removeprefix("at most ")) < 20 * MOST_BYTES, "all 12 MB lay on the disk at once"
