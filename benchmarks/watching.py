"""Seconds of a small study with and without a live page that a browser's stream of events follows.

    python benchmarks/watching.py --turns 3

Both sides run `loopscale run` on a new store, by turns, and the side that begins alternates. On the watched side,
`--watch` starts the page, and a thread reads its events from the start to the end, as an open page does.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from dataclasses import dataclass
from pathlib import Path

from machine import describe

STUDY = """
question: Does a page slow a study down?
fixed:
  task: {kind: linear_regression, dim: 2, points: 8}
  model: {kind: looped, width: 32, heads: 2}
  training: {steps: STEPS, batch_size: 32, loops: 4, window: 2, eval_every: 10}
scientific:
  training.window: [1, 4]
nuisance:
  training.lr: {real: [1e-3, 1e-2], scale: log}
search: {kind: random, trials: 3}
replicates: 3
evaluate: {loops: 8, prompts: 256}
"""
TRIALS = 12
WORKERS = 2


@dataclass(frozen=True)
class Run:
    """One run of the study."""

    seconds: float
    """From the start of the command to its end."""
    events: int
    """Messages that the page has sent."""
    kib: float
    """Size of these messages."""


class Reader(threading.Thread):
    """Reads the events of a page until the page ends, as an open browser does."""

    def __init__(self, url: str) -> None:
        super().__init__(daemon=True)
        self.url, self.events, self.bytes = url, 0, 0
        self.start()

    def run(self) -> None:
        with urllib.request.urlopen(f"{self.url}events") as stream:
            for line in stream:
                self.events += line.startswith(b"data: ")
                self.bytes += len(line)


def run(steps: int, watched: bool) -> Run:
    """Run the study once on a new store. Raises RuntimeError if the run fails."""
    with tempfile.TemporaryDirectory() as folder:
        study = Path(folder) / "watching.yaml"
        study.write_text(STUDY.replace("STEPS", str(steps)))
        command = [sys.executable, "-m", "loopscale.cli.main", "run", str(study)]
        command += ["--store", f"{folder}/store", "--workers", str(WORKERS), *["--watch"] * watched]
        began, reader = time.monotonic(), None
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        assert process.stderr
        lines = list[str]()
        for line in process.stderr:
            lines.append(line)
            if watched and reader is None and "http://127.0.0.1" in line:
                reader = Reader(line.rpartition(" ")[2].strip())
        code, seconds = process.wait(), time.monotonic() - began
    if code or (watched and reader is None):
        raise RuntimeError("".join(lines[-20:]))
    if reader is None:
        return Run(seconds, 0, 0)
    reader.join()
    return Run(seconds, reader.events, reader.bytes / 1024)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--turns", type=int, default=3, help="runs of each side")
    parser.add_argument("--steps", type=int, default=1000, help="training steps of a trial")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    machine = describe()
    print(machine, file=sys.stderr, flush=True)
    runs: dict[str, list[Run]] = {"alone": [], "watched": []}
    for turn in range(options.turns):
        for side in ("alone", "watched") if turn % 2 == 0 else ("watched", "alone"):
            runs[side].append(run(options.steps, side == "watched"))
            print(f"{side}: {runs[side][-1].seconds:.1f} s", file=sys.stderr, flush=True)
    seconds = {side: [each.seconds for each in of_side] for side, of_side in runs.items()}
    median = {side: statistics.median(of_side) for side, of_side in seconds.items()}
    last = runs["watched"][-1]
    result = {"machine": machine.to_dict(), "seconds": seconds, "ratio": median["watched"] / median["alone"]}
    result |= {"events": last.events, "KiB": last.kib}
    if options.json:
        json.dump(result, sys.stdout, indent=1)
        return
    print(f"{TRIALS} trials of {options.steps} steps, {WORKERS} at a time; {options.turns} runs of each side")
    for side, of_side in seconds.items():
        print(f"{side:8} {median[side]:6.1f} s (median; {min(of_side):.1f} to {max(of_side):.1f})")
    print(f"watched / alone: {result['ratio']:.3f}; the page sent {last.events} messages, {last.kib:.0f} KiB")


if __name__ == "__main__":
    main()
