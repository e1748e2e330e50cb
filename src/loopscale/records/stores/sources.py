"""A store's runs in bulk: by SQL from a store in a folder, by MLflow's client elsewhere.

SQL on MLflow's own tables is used here and nowhere else, read only and in plain SELECTs: it answers without
importing MLflow, and brings the histories of 1,000 runs in about a second, where the client asks for each
metric of each run by itself.
"""

import contextlib
import re
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import product
from typing import Any

from typing_extensions import override

from loopscale.records.model.errors import StoreError
from loopscale.records.model.run import Run, search
from loopscale.records.stores import folder as embedded
from loopscale.records.stores.store import FORMAT_TAG, Store

RESTORE = "restore the store from a copy, or give another --store"

Point = tuple[str, int, str, float]
"""Run, step, metric, value."""


class Source(ABC):
    """Bulk reading of one store."""

    @abstractmethod
    def studies(self) -> dict[str, str]:
        """The experiment of every study."""

    @abstractmethod
    def runs(self, experiment: str, params: bool = True) -> list[Run]:
        """All its runs that are not deleted, the parent run too, in the order in which they were begun.

        Without `params` settings are left out where that is faster.
        """

    @abstractmethod
    def histories(self, runs: Sequence[Run]) -> Iterator[Point]:
        """Every point of the metrics that have a history."""


def source(store: Store) -> Source:
    return store.exported or (Database(store) if store.root else Client(store))


class Database(Source):
    """A store in a folder, by SQL."""

    def __init__(self, store: Store) -> None:
        assert store.root
        self.root = store.root

    @override
    def studies(self) -> dict[str, str]:
        rows = self._select(
            "SELECT name, experiment_id FROM experiments JOIN experiment_tags USING (experiment_id)"
            " WHERE lifecycle_stage = 'active' AND key = ? ORDER BY name",
            FORMAT_TAG,
        )
        return {name: str(experiment) for name, experiment in rows}

    @override
    def runs(self, experiment: str, params: bool = True) -> list[Run]:
        active = "experiment_id = ? AND lifecycle_stage = 'active'"
        rows = self._select(
            f"SELECT run_uuid, status, start_time, coalesce(end_time, 0) FROM runs WHERE {active}"
            " ORDER BY start_time, run_uuid",
            experiment,
        )
        if bad := next((row[0] for row in rows if not re.fullmatch(r"[\w-]+", str(row[0]))), None):
            # A run's name is also that of its folder.
            raise StoreError(f"{self.root} has a run {str(bad)[:80]!r}, as MLflow names none", RESTORE)
        runs = {row[0]: Run(*row, experiment=experiment) for row in rows}
        for table in ("tags", "latest_metrics", *(["params"] if params else [])):
            query = f"SELECT run_uuid, key, value FROM {table} JOIN runs USING (run_uuid) WHERE {active}"
            name = table.removeprefix("latest_")
            for run, key, value in self._select(query, experiment):
                if run in runs:
                    getattr(runs[run], name)[key] = value
        return list(runs.values())

    @override
    def histories(self, runs: Sequence[Run]) -> Iterator[Point]:
        for first in range(0, len(runs), 500):
            wanted = {run.id: set(run.curves) for run in runs[first : first + 500]}
            marks = ",".join("?" * len(wanted))
            points = self._select(
                f"SELECT run_uuid, step, key, value FROM metrics WHERE run_uuid IN ({marks})"
                " ORDER BY run_uuid, key, step",
                *wanted,
            )
            yield from (point for point in points if point[2] in wanted[point[0]])

    def _select(self, query: str, *values: str) -> list[Any]:
        with contextlib.closing(embedded.connect(self.root)) as connection:
            return connection.execute(query, values).fetchall()


class Client(Source):
    """A server or a shared database, by MLflow's client."""

    def __init__(self, store: Store, threads: int = 8) -> None:
        self.store, self.threads = store, threads

    @override
    def studies(self) -> dict[str, str]:
        found = ((study, self.store.find(study)) for study in self.store.studies())
        return {study: experiment for study, experiment in found if experiment}

    @override
    def runs(self, experiment: str, params: bool = True) -> list[Run]:
        found = search(self.store, [experiment], threads=self.threads)
        return sorted(found, key=lambda run: (run.start, run.id))

    @override
    def histories(self, runs: Sequence[Run]) -> Iterator[Point]:
        wanted = [pair for run in runs for pair in product([run.id], run.curves)]
        with ThreadPoolExecutor(self.threads) as pool:
            asked = pool.map(lambda pair: self.store.client.get_metric_history(*pair), wanted)
            for (run, metric), history in zip(wanted, asked, strict=True):
                yield from ((run, point.step, metric, point.value) for point in history)
