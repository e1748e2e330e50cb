"""Faults of every kind at random moments, one after another, on studies that survive them all."""

import random
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.cluster.faults import FAULTS, Stage
from tests.cluster.servers import Cluster
from tests.cluster.studies import TREE, Study

FIXED = TREE["fixed"] | {"task": {"kind": "linear_regression", "dim": 2, "points": 6}}
LONG = TREE | {"fixed": FIXED, "search": {"kind": "random", "trials": 8}, "replicates": 3}
"""The disturbed study. After its end it starts anew, with another name and an empty bucket.

It shares no trial with other tests, because their retention would decide about the shared checkpoints.
"""
TRIALS = 2 * (8 + 3)


@dataclass(frozen=True)
class Struck:
    """One fault: the seconds until all hosts saved again, and the checkpoint intervals that were trained twice."""

    kind: str
    seconds: float
    repeated: int


class Soak:
    """Strikes faults, checks every study that ends, and compares it with the first study."""

    def __init__(
        self, cluster: Cluster, seed: int, say: Callable[[str], None] = print, kinds: Collection[str] = FAULTS
    ) -> None:
        self.cluster, self.rng, self.say, self.kinds = cluster, random.Random(seed), say, kinds
        self.struck: list[Struck] = []
        self.studies: list[Study] = []
        self._first: set[tuple[str, str, int, float]] = set()

    def run(self, faults: int, seconds: float = float("inf")) -> None:
        """Strike `faults` times, or until the time is up. The running study is then completed."""
        until, kinds = time.monotonic() + seconds, self._kinds()
        while len(self.struck) < faults and time.monotonic() < until:
            stage = self._begin()
            while len(self.struck) < faults and time.monotonic() < until and self._waited(stage):
                self._strike(stage, next(kinds))
            self._end(stage)

    def _kinds(self) -> Iterator[str]:
        """All kinds equally often, in random order."""
        while True:
            yield from self.rng.sample(sorted(self.kinds), len(self.kinds))

    def _begin(self) -> Stage:
        study = Study(self.cluster, f"soak{len(self.studies) + 1}", LONG, trials=TRIALS)
        self.studies.append(study)
        return Stage(study, study.drive(), self.rng)

    def _waited(self, stage: Stage) -> bool:
        """Wait for some checkpoints and a random while. False if the study is almost at its end."""
        wanted = sum(stage.study.saves().values()) + self.rng.randint(1, 4)
        while stage.driver.running and sum(stage.study.saves().values()) < wanted:
            time.sleep(0.2)
        time.sleep(self.rng.uniform(0, 2))
        return stage.driver.running and len(stage.study.over()) < TRIALS - 2

    def _strike(self, stage: Stage, kind: str) -> None:
        saves = stage.study.repeated()
        began = time.monotonic()
        stage.strike(FAULTS[kind])
        self._await_saves(stage)
        struck = Struck(kind, time.monotonic() - began, stage.study.repeated() - saves)
        self.struck.append(struck)
        self.say(f"{len(self.struck):4} {kind:22} {struck.seconds:6.1f} s {struck.repeated:3} repeated")

    def _await_saves(self, stage: Stage, seconds: float = 600) -> None:
        """Wait until every training host has saved a checkpoint, or the study is at its end."""
        before, end = self._saved(), time.monotonic() + seconds
        while stage.driver.running and any(size <= before[host] for host, size in self._saved().items()):
            assert time.monotonic() < end, (
                f"the study does not go on; its driver:\n{stage.driver.output[-3000:]}"
            )
            if len(stage.study.over()) >= TRIALS - 2:
                return  # too little work is left for every host
            time.sleep(0.2)

    def _saved(self) -> dict[str, int]:
        files = {
            ray.host.name: self.cluster.network.root / "traces" / ray.host.name
            for ray in self.cluster.workers
        }
        return {name: _size(file) for name, file in files.items()}

    def _end(self, stage: Stage) -> None:
        took = stage.study.finish(stage.driver, 1800)
        stage.study.check(stage.repeatable)
        self._first = self._first or stage.study.ends()
        assert stage.study.ends() == self._first, "two runs of one study differ"
        self.say(
            f"     {stage.study.name} is complete, {took:.0f} s after its last fault; all invariants hold"
        )

    def table(self) -> str:
        """Markdown: kind, number, median and longest time until the study went on, intervals trained twice."""
        rows = [
            "| fault | times | until it went on: median, longest (s) | intervals repeated |",
            "|---|---|---|---|",
        ]
        for kind in sorted({each.kind for each in self.struck}):
            these = [each for each in self.struck if each.kind == kind]
            times = sorted(each.seconds for each in these)
            middle, repeated = times[len(times) // 2], sum(each.repeated for each in these)
            name = kind.replace("_", " ")
            rows.append(f"| {name} | {len(these)} | {middle:.0f}, {times[-1]:.0f} | {repeated} |")
        return "\n".join(rows)


def _size(file: Path) -> int:
    return file.stat().st_size if file.exists() else 0
