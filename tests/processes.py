"""Programs that tests start, each in a session of its own, and their end with all their children.

A program that a failed test leaves behind would run beside every later test. `end_all` runs after each test, see
conftest.py.
"""

import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

PATIENCE = 1800.0
"""Longest wait in seconds for the end of a program. Only a program that hangs takes so long."""
DEFAULT_SIGNALS = ("env", "--default-signal=HUP,INT,QUIT")
"""A prefix of commands. Without it a program under `nohup`, or in a shell's background, would ignore these signals."""
_STARTED: list[subprocess.Popen[str]] = []


def start(command: Sequence[str], environment: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
    """Start a program, with pipes for its output."""
    process = subprocess.Popen(
        [*DEFAULT_SIGNALS, *command],
        env=environment,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    keep(process)
    return process


def keep(process: subprocess.Popen[str]) -> None:
    """End this program too after the test. The program leads a session, or takes one at its start."""
    _STARTED.append(process)


def outcome(process: subprocess.Popen[str], seconds: float = PATIENCE) -> tuple[int, str, str]:
    """Wait for the end of a program. Returns exit code, standard output and standard error.

    Fails after so many seconds, with the output until then. The program is ended then.
    """
    try:
        out, err = process.communicate(timeout=seconds)
    except BaseException:
        out, err = end(process)
        print(f"killed:\n{out[-5000:]}\n{err[-5000:]}")
        raise
    return process.returncode, out, err


def wait_until(
    condition: Callable[[], object], process: subprocess.Popen[str], seconds: float = PATIENCE / 2
) -> None:
    """Wait until the condition holds. Fails if the program ends, or after so many seconds. Ends the program then."""
    until = time.monotonic() + seconds
    try:
        while not condition():
            assert process.poll() is None, "the program has ended"
            assert time.monotonic() < until, f"not within {seconds:g} s"
            time.sleep(0.05)
    except BaseException:
        out, err = end(process)
        print(f"killed:\n{out[-5000:]}\n{err[-5000:]}")
        raise


def end(process: subprocess.Popen[str]) -> tuple[str, str]:
    """Kill a program and its session. Returns what the program has printed."""
    process.kill()  # also before the program has got its session
    process.wait()
    while members := session_of(process):
        for pid in members:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        time.sleep(0.05)
    if process in _STARTED:
        _STARTED.remove(process)
    try:
        return process.communicate(timeout=10)
    except (ValueError, subprocess.TimeoutExpired):  # somebody has closed the pipes, or a stranger holds them
        return "", ""
    finally:
        for pipe in filter(None, (process.stdout, process.stderr)):
            pipe.close()


def end_all() -> None:
    """End all programs that tests have started."""
    for process in list(_STARTED):
        end(process)


def session_of(process: subprocess.Popen[str]) -> list[int]:
    """The live processes of the program's session."""
    members = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):  # the process has just ended
            state, _, _, session, *_ = (
                (folder / "stat").read_text(errors="replace").rpartition(")")[2].split()
            )
            if int(session) == process.pid and state not in ("Z", "X"):
                members.append(int(folder.name))
    # The number of an ended program may belong to a stranger. While the session has members, the system keeps it free.
    return [] if process.returncode is not None and process.pid in members else members
