"""Recorded trials with their errors by step, from any store."""

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from loopscale.records.mirror.store_mirror import Mirror
from loopscale.records.stores.base import Store
from loopscale.records.stores.opening import open_store


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

    The source is a store: a folder, a server, a database, or what `loopscale export` wrote.
    """
    return list(_recorded_in(open_store(source)))


def _recorded_in(store: Store) -> Iterator[Recorded]:
    mirror = Mirror(store)
    mirror.sync()
    trials = mirror.query("SELECT * FROM trials WHERE role IN ('tuning', 'replicate')").to_pylist()
    points = mirror.query(
        "SELECT trial, step, metric, value FROM history WHERE metric IN ('error', 'seconds')"
    )
    histories = _histories(points.to_pylist())
    for row in trials:
        settings = {name: value for name, value in row.items() if "." in name and value is not None}
        yield from _recorded(row["trial"], row["cell"], row["outcome"], settings, row["flops"], histories)


History = dict[int, dict[str, float]]


def _histories(rows: Iterable[dict[str, Any]]) -> dict[str, History]:
    found: dict[str, History] = defaultdict(lambda: defaultdict(dict))
    for row in rows:
        found[row["trial"]][row["step"]][row["metric"]] = row["value"]
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
