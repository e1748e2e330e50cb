"""Other people's commands (kubectl, sbatch): what they say, or one line on why they do not."""

import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator

from loopscale.cluster.base import ClusterError

PATIENCE = 60.0
"""Seconds for an answer."""


def _one_line(text: str) -> str:
    if not text or any(ord(each) < 32 or ord(each) == 127 for each in text):
        raise ValueError(f"{text!r:.80} is empty, or more than a line; write one line")
    return text


Line = Annotated[str, AfterValidator(_one_line)]
"""Text without line breaks and other control characters."""


def say(words: Sequence[str], stdin: str | None = None, remedy: str = "correct the cluster's file") -> str:
    """What a command prints. Raises ClusterError: it is not installed, does not end, or failed."""
    if shutil.which(words[0]) is None:
        raise ClusterError(f"there is no {words[0]} here", f"install it, or submit from where {words[0]} is")
    try:
        done = subprocess.run(words, input=stdin, capture_output=True, text=True, timeout=PATIENCE)
    except subprocess.TimeoutExpired as problem:
        raise ClusterError(f"{words[0]} has not answered within {PATIENCE:g} s", "try again") from problem
    if done.returncode:
        raise ClusterError(
            f"{words[0]} says: {said(done.stderr) or f'nothing, with code {done.returncode}'}", remedy
        )
    return done.stdout


def said(text: str) -> str:
    """The last line of an error message that says something, cut to a line's length."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1][:400].rstrip(".") if lines else ""


def stream(words: Sequence[str]) -> Iterator[str]:
    """What a command prints while it runs, in lines. Raises ClusterError at its end if it failed."""
    if shutil.which(words[0]) is None:
        raise ClusterError(f"there is no {words[0]} here", f"install it, or ask from where {words[0]} is")
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        yield from process.stdout
        if process.wait():
            raise ClusterError(f"{words[0]} says: {said(process.stderr.read())}", "see `loopscale status`")
    finally:
        process.terminate()
        process.wait()
        process.stdout.close()
        process.stderr.close()


def tail(path: Path, over: Callable[[], bool], follow: bool, pause: float = 0.5) -> Iterator[str]:
    """A file that grows, in pieces: what it has, and if `follow` what comes until it is `over`."""
    with path.open(errors="replace") as file:
        while True:
            last = not follow or over()
            if text := file.read():
                yield text
            if last:
                return
            time.sleep(pause)
