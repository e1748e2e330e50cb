"""Commands of other programs (kubectl, sbatch): their output, or a one-line error."""

import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from loopscale.cluster.base import ClusterError
from loopscale.core import visible

ANSWER_SECONDS = 60.0


def run_command(
    words: Sequence[str],
    stdin: str | None = None,
    remedy: str = "correct the cluster's file",
    environment: Mapping[str, str] = {},
) -> str:
    """The output of a command. Raises ClusterError if the command is not installed, hangs or fails."""
    _check_installed(words[0])
    try:
        done = subprocess.run(
            words,
            input=stdin,
            env=os.environ | dict(environment),
            capture_output=True,
            text=True,
            timeout=ANSWER_SECONDS,
        )
    except subprocess.TimeoutExpired as problem:
        raise ClusterError(
            f"{words[0]} has not answered within {ANSWER_SECONDS:g} s", "try again"
        ) from problem
    if done.returncode:
        reason = last_line(done.stderr).rstrip(".") or f"nothing, with exit code {done.returncode}"
        raise ClusterError(f"{words[0]} says: {reason}", remedy)
    return done.stdout


def stream_command(words: Sequence[str]) -> Iterator[str]:
    """The output of a command in lines, while it runs. Raises ClusterError at the end if the command failed."""
    _check_installed(words[0])
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        yield from process.stdout
        if process.wait():
            reason = last_line(process.stderr.read()).rstrip(".")
            raise ClusterError(f"{words[0]} says: {reason}", "see `loopscale status`")
    finally:
        process.terminate()
        process.wait()
        process.stdout.close()
        process.stderr.close()


def follow_file(path: Path, has_ended: Callable[[], bool], follow: bool, pause: float = 0.5) -> Iterator[str]:
    """The content of a growing file in pieces; if `follow`, until `has_ended`."""
    with path.open(errors="replace") as file:
        while True:
            last = not follow or has_ended()
            if text := file.read():
                yield text
            if last:
                return
            time.sleep(pause)


def last_line(text: str) -> str:
    """The last line that is not empty, cut to 400 characters: in an error message, usually the reason."""
    return visible.last_line(text)[:400]


def _check_installed(program: str) -> None:
    if shutil.which(program) is None:
        raise ClusterError(f"there is no {program} here", f"install it, or use a machine that has {program}")
