"""Real drivers, in processes of their own, to be killed; and what must be true of a store afterwards."""

import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

from loopscale.training import checkpoint
from loopscale.training.checkpoint_stores import open_checkpoint_store
from loopscale.training.storage import CheckpointStore

TRACING = Path(__file__).parent / "tracing"


@dataclass
class Driver:
    """`loopscale run` on a store of its own, started again as often as one likes."""

    study: Path
    folder: Path
    workers: int = 2
    overrides: tuple[str, ...] = ()
    storage: str = ""
    """What `--storage` is given; the store if empty."""
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

    def start(self, *more: str) -> subprocess.Popen[str]:
        words = [word for each in self.overrides for word in ("--set", each)]
        command = [
            sys.executable,
            "-m",
            "loopscale.cli.main",
            "run",
            str(self.study),
            "--store",
            str(self.store),
        ]
        command += ["--storage", self.storage] if self.storage else []
        environment = (
            os.environ
            | {
                "OMP_NUM_THREADS": "1",
                "TRACE_SAVES": str(self.folder / "saves"),
                "PYTHONPATH": str(TRACING),
            }
            | self.environment
        )
        return subprocess.Popen(
            [*command, "--workers", str(self.workers), *words, *more], env=environment, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
        )  # fmt: skip

    def finish(self, timeout: float = 600) -> tuple[int, str, str]:
        process = self.start()
        out, err = process.communicate(timeout=timeout)
        return process.returncode, out, err

    def killed_after(self, seconds: float) -> bool:
        """Kill driver and Ray together without warning; False if the study had ended by then."""
        process = self.start()
        try:
            process.wait(seconds)
            return False
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
            time.sleep(2)  # what is left of Ray notices
            return True

    def saves(self) -> Counter[tuple[str, int]]:
        """How often each step of each trial was checkpointed, by whichever process."""
        lines = (self.folder / "saves").read_text().split("\n")
        return Counter((line.split()[0], int(line.split()[1])) for line in lines if line)

    def query(self, sql: str) -> list[tuple]:
        with sqlite3.connect(f"file:{self.store / 'mlflow.db'}?mode=ro", uri=True) as database:
            return database.execute(sql).fetchall()

    def check(self, trials: int, baselines: int) -> None:
        """The invariants: nothing lost, nothing doubled, nothing left running."""
        keys = [key for (key,) in self.query("SELECT value FROM tags WHERE key = 'trial'") if key != "study"]
        assert len(keys) == len(set(keys)) == trials + baselines
        assert self.query("SELECT name FROM runs WHERE status = 'RUNNING'") == []
        assert (
            self.query("SELECT value FROM tags WHERE key = 'outcome' AND value IN ('running', 'interrupted')")
            == []
        )
        doubled = "SELECT run_uuid, key, step FROM metrics GROUP BY 1, 2, 3 HAVING count(*) > 1"
        assert self.query(doubled) == []
        assert checkpoint.keys(self.checkpoints) <= set(keys), "a checkpoint without a record"
        assert not list(self.store.glob("checkpoints/*.part"))
        assert not (self.store / "ray" / self.name).exists(), "Ray's notes of a study that has ended"

    def ends(self) -> set[tuple]:
        """Key, outcome and last step of every trial."""
        return set(
            self.query(
                "SELECT t.value, o.value, max(m.step) FROM tags t JOIN tags o ON t.run_uuid = o.run_uuid "
                "LEFT JOIN metrics m ON m.run_uuid = t.run_uuid AND m.key = 'step' "
                "WHERE t.key = 'trial' AND o.key = 'outcome' GROUP BY 1, 2"
            )
        )
