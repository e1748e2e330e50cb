"""Recorded trials with their errors by step: from a store, or from what `loopscale export` wrote."""

import json
import math
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loopscale.records.mirror import Mirror
from loopscale.records.notes import decode
from loopscale.records.store import Store
from loopscale.records.transfer import ABOUT, check


@dataclass
class Recorded:
    """One trial of the records. `points` are (share of its steps, error), in order."""

    key: str
    cell: str
    outcome: str
    settings: dict[str, Any]
    points: list[tuple[float, float]]
    seconds: float
    """Of one step; nan if they are not known."""
    flops: float
    """Of one step; nan likewise."""


def read(source: str) -> list[Recorded]:
    """Every trial of the source that has a validation error. Raises StoreError.

    The source is a folder that `loopscale export` wrote, or a store: a folder, a server, a database.
    """
    return list(_exported(Path(source)) if (Path(source) / ABOUT).is_file() else _stored(Store.open(source)))


def _stored(store: Store) -> Iterator[Recorded]:
    mirror = Mirror(store)
    mirror.sync()
    trials = mirror.query("SELECT * FROM trials WHERE role IN ('tuning', 'replicate')").to_pylist()
    points = mirror.query(
        "SELECT trial, step, metric, value FROM history WHERE metric IN ('error', 'seconds')"
    )
    histories = _histories(points.to_pylist(), "trial")
    for row in trials:
        settings = {name: value for name, value in row.items() if "." in name and value is not None}
        yield from _recorded(row["trial"], row["cell"], row["outcome"], settings, row["flops"], histories)


def _exported(folder: Path) -> Iterator[Recorded]:
    from pyarrow import parquet

    check(folder)
    if not (folder / "history.parquet").exists():
        return
    rows = parquet.read_table(folder / "history.parquet", filters=[("metric", "in", ["error", "seconds"])])
    histories = _histories(rows.to_pylist(), "run")
    for row in parquet.read_table(folder / "trials.parquet").to_pylist():
        tags, metrics = json.loads(row["tags"]), json.loads(row["metrics"])
        settings = {name: decode(text) for name, text in json.loads(row["settings"]).items()}
        if tags.get("role") in ("tuning", "replicate"):
            histories[row["trial"]] = histories.pop(row["run"], {})
            yield from _recorded(
                row["trial"], tags.get("cell", ""), tags["outcome"], settings, metrics.get("flops"), histories
            )


History = dict[int, dict[str, float]]


def _histories(rows: Iterable[dict[str, Any]], who: str) -> dict[str, History]:
    found: dict[str, History] = defaultdict(lambda: defaultdict(dict))
    for row in rows:
        found[row[who]][row["step"]][row["metric"]] = row["value"]
    return found


def _recorded(
    key: str,
    cell: str,
    outcome: str,
    settings: dict[str, Any],
    flops: float | None,
    histories: dict[str, History],
) -> Iterator[Recorded]:
    history = histories.get(key, {})
    steps = float(settings["training.steps"])
    errors = [(step / steps, history[step]["error"]) for step in sorted(history) if "error" in history[step]]
    timed = [step for step in sorted(history) if step and "seconds" in history[step]]
    seconds = history[timed[-1]]["seconds"] / timed[-1] if timed else math.nan
    if errors:
        yield Recorded(key, cell, outcome, settings, errors, seconds, (flops or math.nan) / steps)
