"""Records in memory, as far as a conductor can tell: for simulations, where nothing is to be stored."""

import json
import math
from dataclasses import dataclass, field

from loopscale.records.model.note import Note, Record


@dataclass
class Ledger:
    """A writer's place, and what a driver would read back. Its tail may be lost, as a queue's is when a driver dies."""

    notes: list[Note] = field(default_factory=list)
    backlog: int = 0
    away_since: float | None = None

    def write(self, note: Note) -> None:
        self.notes.append(note)

    def flush(self, timeout: float) -> bool:
        return True

    def lose(self, count: int) -> None:
        """Forget the latest notes."""
        del self.notes[max(0, len(self.notes) - count) :]

    def records(self) -> list[Record]:
        rows: dict[str, dict] = {}
        for note in self.notes:
            row = rows.setdefault(note.key, {"metrics": {}, "tags": {}, "status": "RUNNING"})
            row["metrics"] |= note.metrics
            row["tags"] |= note.tags
            row["status"] = note.status or row["status"]
        return [_record(key, **row) for key, row in rows.items()]


def ending(records: list[Record]) -> dict[str, tuple]:
    """All that two studies must have in common to be called equal: by trial, what it was and how it ended."""
    return {
        r.key: (
            r.cell,
            r.role,
            r.number,
            json.dumps(r.point),
            r.outcome,
            r.status,
            r.step,
            tuple(r.rungs.items()),
        )
        for r in records
    }


def _record(key: str, metrics: dict, tags: dict, status: str) -> Record:
    rungs = {int(name[5:]): value for name, value in metrics.items() if name.startswith("rung/")}
    seed = int(tags["seed"]) if "seed" in tags else None
    return Record(
        key, key, tags["cell"], tags["role"], int(tags["number"]), json.loads(tags["point"]), seed, tags["outcome"],
        status, int(metrics.get("step", 0)), metrics.get("error", math.nan), metrics.get("error_last", math.nan),
        rungs, tags, metrics,
    )  # fmt: skip
