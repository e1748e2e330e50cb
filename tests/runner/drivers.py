"""Real drivers in processes of their own, which tests kill, and the invariants of a store afterwards."""

import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from loopscale.training import checkpoint
from loopscale.training.checkpoint_stores import open_checkpoint_store
from loopscale.training.storage import CheckpointStore
from tests import processes
from tests.processes import wait_until

TRACING = Path(__file__).parent / "tracing"

SURVIVAL: dict[str, Any] = {
    "question": "Does a study survive?",
    "fixed": {
        "task": {"kind": "linear_regression", "dim": 2, "points": 5},
        "model": {"kind": "looped", "width": 16, "heads": 2},
        "training": {"steps": 120, "loops": 4, "window": 2, "batch_size": 16, "eval_every": 10},
    },
    "scientific": {"training.window": [1, 4]},
    "nuisance": {"training.lr": {"real": [1e-4, 1e-1], "scale": "log"}},
    "search": {"kind": "random", "trials": 3},
    "replicates": 2,
    "evaluate": {"loops": 6, "prompts": 128},
    "baselines": ["least_squares"],
}
"""A study that takes about fifteen seconds, for tests that kill parts of the system."""
TRIALS, BASELINES = 2 * (3 + 2), 1
"""Trials and baselines of SURVIVAL."""
SAVES = TRIALS * 120 // 10
"""Checkpoints that SURVIVAL saves."""
HELD = 1e6
"""Seconds of a save that waits for the end of `slow_saves`."""
SPARE_SAVES = 8
"""Saves between the event that a test waits for and the hold of all workers. The test acts within them, or later."""
RAY_SECONDS = 60.0
"""Seconds until a test itself ends the processes that a killed Ray has left."""


def python_path(folder: Path) -> str:
    """PYTHONPATH with this folder first."""
    return os.pathsep.join(filter(None, (str(folder), os.environ.get("PYTHONPATH"))))


@dataclass(eq=False)
class Driver:
    """`loopscale run` on a store of its own. The driver can be started repeatedly."""

    study: Path
    folder: Path
    workers: int | None = 2
    """Value of `--workers`; None to fill the machine or the cluster."""
    overrides: tuple[str, ...] = ()
    storage: str = ""
    """Value of `--storage`. Empty for the store."""
    environment: dict[str, str] = field(default_factory=dict)

    @property
    def checkpoints(self) -> CheckpointStore:
        return open_checkpoint_store(self.storage or self.store / "checkpoints")

    @property
    def store(self) -> Path:
        return self.folder / "store"

    @property
    def name(self) -> str:
        return self.study.stem

    def start(self, *options: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "loopscale.cli.main", "run", str(self.study)]
        command += ["--store", str(self.store)]
        command += ["--workers", str(self.workers)] if self.workers else []
        command += ["--storage", self.storage] if self.storage else []
        command += [word for override in self.overrides for word in ("--set", override)]
        environment = {
            "OMP_NUM_THREADS": "1",
            "TRACE_SAVES": str(self.folder / "saves"),
            "SAVE_SECONDS": str(self._save_seconds),
            "MOST_SAVES": str(self._most_saves),
            "PYTHONPATH": python_path(TRACING),
        }
        return processes.start([*command, *options], os.environ | environment | self.environment)

    def finish(self, *options: str) -> tuple[int, str, str]:
        """Run to the end. Returns exit code, standard output and standard error."""
        return processes.outcome(self.start(*options))

    @contextmanager
    def slow_saves(self, seconds: float = HELD) -> Iterator[None]:
        """Each save takes so many seconds more, or until the end of the context. By default saves wait for the end."""
        with _written(self._save_seconds, seconds):
            yield

    @contextmanager
    def held_after(self, saves: int) -> Iterator[None]:
        """Hold the workers after this number of saves by all drivers, until the end of the context.

        A study thereby does not end before the test acts, on a machine of any speed.
        """
        with _written(self._most_saves, saves):
            yield

    @property
    def _save_seconds(self) -> Path:
        return self.folder / "save-seconds"

    @property
    def _most_saves(self) -> Path:
        return self.folder / "most-saves"

    def kill_when(self, condition: Callable[[], bool], pause: float = 0.0, *options: str) -> None:
        """Start, and kill driver and Ray together without warning, `pause` seconds after the condition holds.

        Fails if the study ends before. Returns after the last process of Ray has noticed, because a worker that still
        saves would disturb the next driver.
        """
        process = self.start(*options)
        wait_until(condition, process)
        with suppress(subprocess.TimeoutExpired):
            process.wait(pause)
        assert process.poll() is None, "the study ended before the kill"
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        until = time.monotonic() + RAY_SECONDS
        while processes.session_of(process) and time.monotonic() < until:
            time.sleep(0.1)
        processes.end(process)

    def kill_after_saves(self, number: int, pause: float = 0.0, *options: str) -> None:
        """Start, and kill as `kill_when` does after `number` new checkpoints.

        The workers go on after the last of them. If the kill is late, the workers wait for the kill.
        """
        enough = self.saves().total() + number
        with self.held_after(enough + SPARE_SAVES):
            self.kill_when(lambda: self.saves().total() >= enough, pause, *options)

    def saves(self) -> Counter[tuple[str, int]]:
        """Number of saves of each (trial, step), by all processes."""
        file = self.folder / "saves"
        lines = file.read_text().split("\n")[:-1] if file.exists() else []
        return Counter((line.split()[0], int(line.split()[1])) for line in lines)

    def query(self, sql: str) -> list[tuple]:
        with sqlite3.connect(f"file:{self.store / 'mlflow.db'}?mode=ro", uri=True, timeout=60) as database:
            return database.execute(sql).fetchall()

    def check(self, trials: int, baselines: int) -> None:
        """Assert the invariants: no trial is lost, recorded twice, or left running."""
        keys = [key for (key,) in self.query("SELECT value FROM tags WHERE key = 'trial'") if key != "study"]
        assert len(keys) == len(set(keys)) == trials + baselines
        assert self.query("SELECT name FROM runs WHERE status = 'RUNNING'") == []
        assert (
            self.query("SELECT value FROM tags WHERE key = 'outcome' AND value IN ('running', 'interrupted')")
            == []
        )
        doubled = "SELECT run_uuid, key, step FROM metrics GROUP BY 1, 2, 3 HAVING count(*) > 1"
        assert self.query(doubled) == []
        assert checkpoint.keys(self.checkpoints) <= set(keys), "a checkpoint has no record"
        assert not list(self.store.glob("checkpoints/*.part"))
        assert not (self.store / "ray" / self.name).exists(), "Ray's folder of a finished study remains"

    def ends(self) -> set[tuple]:
        """Key, outcome and last step of every trial."""
        return set(
            self.query(
                "SELECT t.value, o.value, max(m.step) FROM tags t JOIN tags o ON t.run_uuid = o.run_uuid "
                "LEFT JOIN metrics m ON m.run_uuid = t.run_uuid AND m.key = 'step' "
                "WHERE t.key = 'trial' AND o.key = 'outcome' GROUP BY 1, 2"
            )
        )


@contextmanager
def _written(file: Path, number: float) -> Iterator[None]:
    """The file holds the number in the context. The file appears as a whole."""
    (whole := file.with_suffix(".new")).write_text(str(number))
    whole.replace(file)
    try:
        yield
    finally:
        file.unlink()


def survival_driver(folder: Path, storage: str = "", **changes: object) -> Driver:
    """A driver of the study SURVIVAL with changes."""
    folder.mkdir(exist_ok=True)
    study = folder / "survival.yaml"
    study.write_text(yaml.safe_dump(SURVIVAL | changes))
    return Driver(study, folder, storage=storage)


def worker_processes(process: subprocess.Popen[str]) -> list[int]:
    """Processes of the driver's session that train. Ray sets their titles."""
    found = []
    for pid in processes.session_of(process):
        with suppress(OSError):  # the process has just ended
            title = Path(f"/proc/{pid}/cmdline").read_text(errors="replace")
            if "ImplicitFunc" in title or "trainable" in title:
                found.append(pid)
    return found


def kill_worker(process: subprocess.Popen[str]) -> None:
    """Kill a process that trains. A process that ends just before the kill does not count."""

    def killed() -> bool:
        for pid in worker_processes(process):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
                return True
        return False

    wait_until(killed, process)
