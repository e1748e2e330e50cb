"""The program without standard streams, as some schedulers of jobs start programs."""

import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("closed", ["<&- >&- 2>&-", "<&-", ">&-", "2>&-"])
def test_a_closed_stream_is_no_reason_to_fail(closed: str):
    command = f'"{sys.executable}" -m loopscale.cli.main show search {closed}'
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.slow
def test_a_message_for_a_closed_stderr_is_no_output():
    command = f'"{sys.executable}" -m loopscale.cli.main show absent 2>&-'
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (2, "", "")


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(
    "verb",
    [
        "best tiny",
        "list --json",
        "query 'SELECT trial FROM trials' --format csv",
        "query --tables",
        "show search",
        "--help",
    ],
)
def test_a_full_disk_of_standard_output_is_one_true_line(records: Path, study_file: Path, verb: str):
    environment = {name: text for name, text in os.environ.items() if not name.startswith("LOOPSCALE")}
    environment |= {"LOOPSCALE_STORE": str(records)}
    command = f'"{sys.executable}" -m loopscale.cli.main {verb} > /dev/full'
    done = subprocess.run(
        ["sh", "-c", command], capture_output=True, text=True, env=environment, cwd=study_file.parents[1]
    )
    *notes, line = done.stderr.splitlines()
    assert done.returncode == 1
    assert line == "cannot write standard output (No space left on device); send the output to another place"
    assert not [note for note in notes if "Traceback" in note or "--store" in note]


@pytest.mark.slow
def test_full_disks_of_both_streams_leave_the_exit_code():
    command = f'"{sys.executable}" -m loopscale.cli.main show search > /dev/full 2> /dev/full'
    assert subprocess.run(["sh", "-c", command]).returncode == 1
