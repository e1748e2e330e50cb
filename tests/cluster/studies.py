"""A small study on the cluster: its driver on a host, its traces on all hosts, and the invariants of its records."""

import json
import sys
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from loopscale.training.output import OUTPUT_SUFFIX
from tests.cluster.hosts import Host, Process, until
from tests.cluster.servers import Cluster

TREE: dict[str, Any] = {
    "question": "Does a study survive?",
    "fixed": {
        "task": {"kind": "linear_regression", "dim": 2, "points": 5},
        "model": {"kind": "looped", "width": 16, "heads": 2},
        "training": {"steps": 600, "loops": 4, "window": 2, "batch_size": 8, "eval_every": 60},
    },
    "scientific": {"training.window": [1, 4]},
    "nuisance": {"training.lr": {"real": [1e-4, 1e-1], "scale": "log"}},
    "search": {"kind": "random", "trials": 2},
    "replicates": 1,
    "evaluate": {"loops": 6, "prompts": 64},
    "baselines": ["least_squares"],
}
TRIALS, BASELINES = 2 * (2 + 1), 1
OVER = ("finished", "pruned", "diverged", "out_of_memory")
RUNS = (
    "SELECT t.value AS trial, r.run_uuid, r.status FROM runs r JOIN tags t ON t.run_uuid = r.run_uuid AND t.key = "
    "'trial' JOIN experiments e ON e.experiment_id = r.experiment_id WHERE e.name = '{name}' "
)


@dataclass
class Study:
    """`loopscale run` on a host of the cluster, any number of times. Only the bucket holds checkpoints."""

    cluster: Cluster
    name: str
    tree: dict[str, Any] = field(default_factory=lambda: TREE)
    storage: str = ""
    trials: int = TRIALS
    baselines: int = BASELINES
    settled: dict[str, Counter[tuple[str, int]]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.storage = self.storage or f"s3://loopscale/{self.name}"
        self.file = self.cluster.network.root / "shared" / f"{self.name}.yaml"
        self.file.write_text(yaml.safe_dump(self.tree))

    @property
    def host(self) -> Host:
        return self.cluster.head.host

    def drive(self) -> Process:
        where = ("--store", "http://tracking:5000", "--storage", self.storage)
        how = ("--address", self.cluster.address, "--workers", str(len(self.cluster.workers)))
        command = (sys.executable, "-m", "loopscale.cli.main", "run", str(self.file), *where, *how)
        return self.host.start(f"driver-{self.name}", *command)

    def saves(self) -> Counter[tuple[str, int]]:
        """The number of checkpoints of each step of each trial, on all hosts."""
        keys = {key for key, _, _ in self.runs()}
        lines = [line.split(" ", 2) for file in self._traces() for line in file.read_text().splitlines()]
        return Counter(
            (key, int(step))
            for key, step, at in lines
            if key in keys and (at + "/").startswith(self.storage + "/")
        )

    def _traces(self) -> list[Path]:
        return list((self.cluster.network.root / "traces").iterdir())

    def query(self, sql: str) -> list[tuple]:
        return self.cluster.database.query(sql)

    def runs(self) -> list[tuple[str, str, str]]:
        """Key, run and status of every recorded trial, without the study's own run."""
        return [row for row in self.query(RUNS.format(name=self.name)) if row[0] != "study"]

    def tags(self, name: str) -> dict[str, str]:
        """The text of a tag, by the trial's key."""
        runs = RUNS.format(name=self.name)
        sql = f"SELECT w.trial, g.value FROM ({runs}) w JOIN tags g ON g.run_uuid = w.run_uuid AND g.key = '{name}'"
        return {key: text for key, text in self.query(sql) if key != "study"}

    def metrics(self, name: str) -> dict[str, float]:
        """The last value of a metric, by the trial's key."""
        runs = RUNS.format(name=self.name)
        sql = f"SELECT w.trial, m.value FROM ({runs}) w JOIN latest_metrics m ON m.run_uuid = w.run_uuid AND "
        return dict(self.query(f"{sql} m.key = '{name}'"))

    def over(self) -> set[str]:
        return {key for key, outcome in self.tags("outcome").items() if outcome in OVER}

    def until_saved(self, steps: int, process: Process, seconds: float = 300) -> None:
        """Wait for `steps` more checkpoints."""
        wanted = sum(self.saves().values()) + steps

        def saved() -> bool:
            assert process.running, f"the driver has ended:\n{process.output[-4000:]}"
            return sum(self.saves().values()) >= wanted

        until(
            saved, seconds, f"{steps} more checkpoints of {self.name}; the driver: {process.output[-2000:]}"
        )

    def settle(self) -> None:
        """Remember the ended trials: they must never be trained again."""
        saves = self.saves()
        for key in self.over():
            self.settled.setdefault(key, Counter({at: n for at, n in saves.items() if at[0] == key}))

    def ends(self) -> set[tuple[str, str, int, float]]:
        """Key, outcome, last step and error of every trial."""
        steps, errors = self.metrics("step"), self.metrics("error")
        outcomes = self.tags("outcome").items()
        return {
            (key, outcome, int(steps.get(key, 0)), round(errors.get(key, 0.0), 6))
            for key, outcome in outcomes
        }

    @property
    def intervals(self) -> int:
        """Checkpoint intervals of one trial."""
        training = self.tree["fixed"]["training"]
        return training["steps"] // training["eval_every"]

    def objects(self) -> list[str]:
        """The names of the study's checkpoints in the bucket, without the output of its trials."""
        prefix = self.storage.removeprefix("s3://loopscale/") + "/"
        names = [name for name in self.cluster.bucket.names() if name.startswith(prefix) and "." in name]
        return [name for name in names if not name.endswith(OUTPUT_SUFFIX)]

    def asked(self, sql: str) -> list[dict[str, Any]]:
        """The answer of `loopscale query` on the driver's host."""
        command = (sys.executable, "-m", "loopscale.cli.main", "query", sql, "--json")
        process = self.host.start(f"query-{self.name}", *command, "--store", "http://tracking:5000")
        self.finish(process, 120)
        lines = process.output.splitlines()
        return json.loads("\n".join(lines[next(n for n, line in enumerate(lines) if line.startswith("[")) :]))

    def check(self, repeatable: int) -> None:
        """Check the invariants: nothing is lost, doubled, left running or trained again, and `best` agrees.

        `repeatable` checkpoint intervals may have been trained twice.
        """
        runs = self.runs()
        keys = {key for key, _, _ in runs}
        assert len(runs) == len(keys) == self.trials + self.baselines
        assert [row for row in self.query(RUNS.format(name=self.name)) if row[2] == "RUNNING"] == []
        assert set(self.tags("outcome").values()) == {"finished"}
        doubled = self.query(
            f"SELECT m.run_uuid, m.key, m.step FROM metrics m JOIN ({RUNS.format(name=self.name)}) w "
            "ON w.run_uuid = m.run_uuid GROUP BY 1, 2, 3 HAVING count(*) > 1"
        )
        assert doubled == []
        saves = self.saves()
        steps, every = self.tree["fixed"]["training"]["steps"], self.tree["fixed"]["training"]["eval_every"]
        trained = keys - {key for key, role in self.tags("role").items() if role == "baseline"}
        assert set(saves) == {(key, step) for key in trained for step in range(every, steps + 1, every)}
        assert self.repeated() <= repeatable, saves
        for key, before in self.settled.items():
            assert {at: n for at, n in saves.items() if at[0] == key} == before, f"{key} was trained again"
        self._check_best()
        self._check_kept(trained)

    def repeated(self) -> int:
        """Checkpoint intervals that were trained more than once."""
        return sum(times - 1 for times in self.saves().values())

    def _check_best(self) -> None:
        """The point of the replicates is the best point of their cell, computed anew from the records."""
        roles, cells, points = self.tags("role"), self.tags("cell"), self.tags("point")
        errors = self.metrics("error")
        for cell in {cells[key] for key, role in roles.items() if role == "replicate"}:
            tuned = [key for key, role in roles.items() if role == "tuning" and cells[key] == cell]
            best = min(tuned, key=lambda key: errors[key])
            given = {points[key] for key, role in roles.items() if role == "replicate" and cells[key] == cell}
            assert {json.dumps(json.loads(point)) for point in given} == {points[best]}

    def _check_kept(self, trained: set[str]) -> None:
        """The bucket has exactly the checkpoints of the trials, and retention has decided about each."""
        assert set(self.tags("weights")) >= trained
        if self.storage.startswith("s3://loopscale/"):
            files = {Path(name).stem: _header(self.cluster.bucket.content(name)) for name in self.objects()}
            assert set(files) == trained, f"too many {set(files) - trained}, too few {trained - set(files)}"
            # A host that was cut off may send an older checkpoint when it is back.
            assert {header["step"] for header in files.values()} == {self.tree["fixed"]["training"]["steps"]}
            assert all(header["stripped"] for header in files.values())

    def halfway(self) -> list[str]:
        """The whole checkpoints in the bucket that are not of the last step, by the names of their objects.

        A checkpoint of the last step may belong to a trial whose outcome is on its way to the records.
        """
        found = list[str]()
        for name in self.objects():
            with suppress(ValueError):  # an earlier fault has cut the header
                if (
                    _header(self.cluster.bucket.content(name))["step"]
                    < self.tree["fixed"]["training"]["steps"]
                ):
                    found.append(name)
        return found

    def finish(self, process: Process, seconds: float = 500) -> float:
        """Wait until a driver ends with code 0. Returns the seconds."""
        began = time.monotonic()
        code = process.wait(seconds)
        assert code == 0, f"exit code {code}:\n{process.output[-4000:]}"
        return time.monotonic() - began


def _header(content: bytes) -> dict[str, Any]:
    """The metadata of a checkpoint."""
    size = int.from_bytes(content[:8], "little")
    return json.loads(json.loads(content[8 : 8 + size])["__metadata__"]["loopscale"])
