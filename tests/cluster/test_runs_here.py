"""`status`, `logs` and `stop` know the studies that `loopscale run` started in a terminal of this machine."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from typer.testing import CliRunner

from loopscale.cli.main import app
from loopscale.core.file_locks import process_name
from loopscale.runner.lease import Driver, drivers, lease, lock_path

DRIVER = """
import signal, sys, time
from pathlib import Path
from loopscale.runner.lease import lease

# As `loopscale run`, which takes Ctrl-C also if the shell that started it ignores the signal.
signal.signal(signal.SIGINT, signal.default_int_handler)
with lease(Path(sys.argv[1]), "mine/heads"):
    print("ready", flush=True)
    try:
        time.sleep(600)
    except KeyboardInterrupt:
        print("interrupted", flush=True)
"""


@contextmanager
def driven(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that holds a study as a driver does, and ends at Ctrl-C."""
    process = subprocess.Popen(
        [sys.executable, "-P", "-c", DRIVER, str(folder)], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield process
    finally:
        process.kill()
        process.wait()


def call(*words: object) -> tuple[int, str, str]:
    done = CliRunner().invoke(app, [str(word) for word in words])
    return done.exit_code, done.output, str(done.exception or "")


def test_the_drivers_of_a_folder_are_those_that_live(tmp_path: Path):
    assert drivers(tmp_path) == []
    with lease(tmp_path, "mine/heads"), driven(tmp_path / "other"):
        (found,) = drivers(tmp_path)
        since = lock_path(tmp_path, "mine/heads").stat().st_mtime
        assert found == Driver("mine/heads", process_name(), since)
    assert drivers(tmp_path) == []


def test_status_lists_a_run_of_this_machine_and_stop_ends_it_as_ctrl_c_would(tmp_path: Path):
    assert f"no study in {tmp_path} runs on local" in call("status", "--store", tmp_path)[1]
    with driven(tmp_path) as process:
        code, listed, _ = call("status", "--store", tmp_path)
        assert (code, "running" in listed) == (0, True)
        assert f"process {process.pid} on " in listed
        assert "started by `loopscale run`" in call("status", "mine/heads", "--store", tmp_path)[1]
        assert "`loopscale watch mine/heads`" in call("logs", "mine/heads", "--store", tmp_path)[2]
        code, stopped, _ = call("stop", "mine/heads", "--store", tmp_path)
        assert code == 0
        assert f"has stopped; `loopscale run mine/heads --store {tmp_path}` resumes it" in stopped
        assert process.stdout is not None
        assert process.stdout.read() == "interrupted\n"
    assert f"no study in {tmp_path} runs on local" in call("status", "--store", tmp_path)[1]
    assert "does not run there" in call("stop", "mine/heads", "--store", tmp_path)[2]


def test_a_driver_on_another_host_is_named_and_not_stopped(tmp_path: Path):
    with driven(tmp_path) as process:
        path = lock_path(tmp_path, "mine/heads")
        path.write_text(path.read_text().replace(" on ", " on far-"))
        assert f"process {process.pid} on far-" in call("status", "--store", tmp_path)[1]
        refused = call("stop", "mine/heads", "--store", tmp_path)[2]
        assert "stop the process there" in refused
        assert process.poll() is None
