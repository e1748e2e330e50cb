"""A study's ended runs in one file beside its parent run: a driver that resumes asks a server for the others only.

A server takes 5.5 ms for each run that it is asked for (MLflow 3.17), the better part of a minute for 10,000. The file
is the driver's own account of what it has written. It holds for as long as whoever changes a run that has ended also
ends it anew, later than all that have: drivers do. Runs that were deleted or brought back are noticed; tags that a
person edits are not: to have a trial run again, delete its run.
"""

import gzip
import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from loopscale.records.model import run as runs
from loopscale.records.model.errors import StoreError
from loopscale.records.model.note import STUDY, Note
from loopscale.records.model.run import Run
from loopscale.records.stores.store import Store

FILE = "ended.json.gz"
"""Artifact of the parent run."""
OPEN = ("RUNNING", "SCHEDULED")
"""MLflow's statuses of runs that have not ended."""
FEW = 500
"""Of fewer ended runs no file is kept. It is renewed whenever so many have ended since."""
FORGET = Note(STUDY, artifacts=((FILE, b""),))
"""Makes the file void. To be written before anything that drivers would not write."""
MALFORMED = (OSError, EOFError, ValueError, TypeError, KeyError, RecursionError)


@dataclass
class Ended:
    """Runs by id as their driver knows them, whether they have ended or not, and those known to be deleted."""

    runs: dict[str, Run] = field(default_factory=dict)
    deleted: frozenset[str] = frozenset()
    fresh: int = 0
    """How many have ended since the file was last renewed."""

    @property
    def latest(self) -> int:
        """When the last of them ended, in ms since 1970; 0 if none has."""
        return max((run.end for run in self.runs.values() if run.status not in OPEN), default=0)

    @property
    def in_order(self) -> list[Run]:
        """The runs in the order in which they were begun."""
        return sorted(self.runs.values(), key=lambda run: (run.start, run.id))

    @property
    def due(self) -> bool:
        """Whether the file should be renewed."""
        return self.fresh >= FEW

    def begin(self, run: str, start: int, tags: dict[str, str]) -> None:
        """A run has been made; `start` is in ms since 1970."""
        self.runs[run] = Run(run, "RUNNING", start, 0, tags=dict(tags))

    def write(self, run: str, metrics: dict[str, float], tags: dict[str, str]) -> None:
        """What has been written to a run."""
        known = self.runs[run]
        known.metrics |= metrics
        known.tags |= tags

    def turn(self, run: str, status: str, end: int) -> None:
        """A run has another status."""
        known = self.runs[run]
        known.status, known.end = status, end
        self.fresh += status not in OPEN

    def pack(self) -> bytes:
        """The file."""
        self.fresh = 0
        ended = [asdict(run) for run in self.runs.values() if run.status not in OPEN]
        text = json.dumps({"runs": ended, "deleted": sorted(self.deleted)})
        return gzip.compress(text.encode(), 1, mtime=0)

    @classmethod
    def unpack(cls, content: bytes) -> "Ended":
        """What `pack` made. Raises one of MALFORMED."""
        said = json.loads(gzip.decompress(content))
        found = [_run(each) for each in said["runs"]]
        return cls({run.id: run for run in found}, frozenset(map(str, said["deleted"])))


def recall(store: Store, study: str) -> Ended:
    """All runs of a study that are not deleted, its parent too, as they are now. Raises what MLflow's client raises."""
    experiment = store.find(study)
    if not experiment:
        return Ended()
    deleted = frozenset(run.id for run in runs.search(store, [experiment], view=runs.DELETED))
    known = _kept(store, experiment)
    if not known.runs or known.deleted - deleted:
        known = Ended()
    changed = _since(store, experiment, known)
    left = {run: each for run, each in known.runs.items() if run not in deleted}
    return Ended(
        left | {run.id: run for run in changed}, deleted, sum(run.status not in OPEN for run in changed)
    )


def _since(store: Store, experiment: str, known: Ended) -> list[Run]:
    """The runs that are not as the file has them, or may not be."""
    if not known.runs:
        return runs.search(store, [experiment])
    under_way = [runs.search(store, [experiment], f"attributes.status = '{status}'") for status in OPEN]
    later = runs.search(store, [experiment], f"attributes.end_time >= {known.latest}")
    return [run for part in (later, *under_way) for run in part]


def _kept(store: Store, experiment: str) -> Ended:
    """What the file says; nothing where there is none, or none that can be read."""
    parents = runs.parents(store, experiment)
    with TemporaryDirectory(prefix="loopscale-") as folder:
        try:
            file = store.artifact(parents[0].id, FILE, Path(folder)) if parents else None
            return Ended.unpack(file.read_bytes()) if file else Ended()
        except (*MALFORMED, StoreError):
            return Ended()


def _run(said: dict[str, Any]) -> Run:
    texts = {name: str(said[name]) for name in ("id", "status", "experiment")}
    tags, params = ({str(k): str(v) for k, v in said[name].items()} for name in ("tags", "params"))
    metrics = {str(name): float(value) for name, value in said["metrics"].items()}
    return Run(
        start=int(said["start"]), end=int(said["end"]), tags=tags, params=params, metrics=metrics, **texts
    )
