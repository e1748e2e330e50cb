"""A store in a folder: `mlflow.db` (SQLite), `artifacts/`, `format.json`, and by default the storage.

Records are read by plain SELECTs on MLflow's tables, read only. SQL on MLflow's tables stands in this module and in
`lost_rows` alone. SQL answers without MLflow, and reads the histories of 1,000 runs in a second; MLflow's client asks
once per metric and run.
"""

import json
import os
import re
import shutil
import sqlite3
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from typing_extensions import override

import loopscale
from loopscale.core.files import open_regular, read_regular, replace_whole
from loopscale.records.deferred_imports import mlflow, mlflow_database, sqlalchemy, sqlalchemy_orm
from loopscale.records.model import CURVE, STUDY, NoRecords, Run, StoreError
from loopscale.records.stores.base import (
    FORMAT,
    FORMAT_TAG,
    LOCKED,
    Point,
    Store,
    StoreKind,
    TrackingStore,
    check_folders,
    file_lock,
    locked_database,
    unwritable,
)
from loopscale.training.storage import CheckpointStore

DATABASE, FORMAT_FILE, ARTIFACTS, REPORTS = "mlflow.db", "format.json", "artifacts", "reports"
MLFLOW_TABLES = ("experiments", "runs", "params", "metrics", "latest_metrics", "tags", "experiment_tags")
"""MLflow's tables that hold records."""
RUNS_PER_QUERY = 500
PARQUET = b"PAR1"
"""The first and the last bytes of a Parquet file."""
LOCK_PATIENCE = 20.0
"""Seconds to wait for another process that holds the database."""
OURS = "experiment_id IN (SELECT experiment_id FROM experiment_tags WHERE key = ?)"
"""SQL condition for experiments with the format tag."""

# SQLite takes any value for any column. A value of another type, or an infinite one, is no value: readers leave the row
# out, as if lost.
IS_POINT = "typeof(value) IN ('real', 'integer') AND value - value IS 0 AND typeof(step) = 'integer'"
"""SQL condition for a value of a metric that is a finite number at a step. MLflow stores no infinity."""
SOUND = {
    "tags": "typeof(value) = 'text'",
    "params": "typeof(value) = 'text'",
    "latest_metrics": IS_POINT,
    "metrics": IS_POINT,
}
"""SQL condition for the rows of a table whose values have the type of their column."""
TIMES = (
    "CASE typeof(start_time) WHEN 'integer' THEN start_time ELSE 0 END,"
    " CASE typeof(end_time) WHEN 'integer' THEN end_time ELSE 0 END"
)
POINT = "key, value, timestamp, step, is_nan, run_uuid"
"""The columns of a value of a metric. `metrics` has all values, and `latest_metrics` the last value of each metric."""
ENDS = (
    f"SELECT {POINT}, row_number() OVER"
    " (PARTITION BY run_uuid, key ORDER BY step DESC, timestamp DESC, value DESC) AS place FROM metrics"
    f" WHERE {IS_POINT}"
)
"""SQL of all values, with place 1 for the last value of a metric. The order is MLflow's."""
OF_LIVE_RUNS = f"run_uuid IN (SELECT run_uuid FROM runs WHERE lifecycle_stage = 'active' AND {OURS})"
LOST = (
    "NOT EXISTS (SELECT 1 FROM metrics WHERE metrics.run_uuid = last.run_uuid AND metrics.key = last.key"
    " AND metrics.step >= last.step AND typeof(metrics.value) IN ('real', 'integer')"
    " AND metrics.value - metrics.value IS 0 AND typeof(metrics.step) = 'integer')"
)
LAST = f"SELECT {POINT} FROM ({ENDS}) WHERE place = 1"
MISMATCHES = (
    f"SELECT run_uuid, key FROM ({LAST} EXCEPT SELECT {POINT} FROM latest_metrics) WHERE {OF_LIVE_RUNS}"
    f" UNION SELECT run_uuid, key FROM latest_metrics AS last WHERE {OF_LIVE_RUNS} AND {LOST} AND {IS_POINT}"
    " ORDER BY 1, 2"
)
LOST_ENDS = (
    f"INSERT OR IGNORE INTO metrics ({POINT}) SELECT {POINT} FROM latest_metrics AS last"
    f" WHERE run_uuid = ? AND {LOST} AND {IS_POINT}"
)
LAST_VALUES = f"INSERT OR REPLACE INTO latest_metrics ({POINT}) {LAST} AND run_uuid = ?"


class FolderStore(TrackingStore):
    """A store in a folder of one user."""

    def __init__(self, root: Path, storage: Path, checkpoints: CheckpointStore | None = None) -> None:
        super().__init__(database_uri(root), storage, checkpoints)
        self.root, self.name = root, str(root)

    @staticmethod
    def lies_in(folder: Path) -> bool:
        """True if the folder has a database. Nothing else is checked."""
        return os.path.exists(folder / DATABASE)

    @staticmethod
    def check(root: Path, create: bool) -> None:
        """StoreError unless `root` holds a store that this version can use. With `create`, make the store."""
        check_folder(root)
        _check_format(root)
        if not os.path.lexists(root / DATABASE) and _has_runs(root):
            # A new database beside the files of earlier runs would hide that the records are lost.
            what = f"{root / DATABASE} is missing, and {root / ARTIFACTS} has files of earlier runs"
            raise StoreError(what, "restore the database from a copy, or move the folder away and start anew")
        if not create and not (root / DATABASE).exists():
            raise NoRecords(f"no records in {root} yet", "`loopscale run` makes them")
        _check_database(root)
        if create:
            check_folders(root)
            _create(root)

    @property
    @override
    def mirror_name(self) -> str:
        return "own" if self.storage == self.root else super().mirror_name  # also after the folder is moved

    @override
    def forbids_writing(self) -> bool:
        artifacts = self.root / ARTIFACTS
        misplaced = os.path.lexists(artifacts) and not artifacts.is_dir()
        return misplaced or not os.access(self.root / DATABASE, os.W_OK)

    @override
    def change_stamp(self) -> str:
        """Size and time of the database and its log, and SQLite's count of changes (bytes 24 to 28 of the file).

        The count is needed because two changes can happen within one tick of the clock.
        """
        database = self.root / DATABASE
        with open_regular(database, "rb") as file:
            count = file.read(28)[24:]
        stats = [path.stat() for path in (database, Path(f"{database}-wal")) if path.exists()]
        return " ".join([count.hex(), *(f"{stat.st_size} {stat.st_mtime_ns}" for stat in stats)])

    @override
    def _connect(self) -> "mlflow.MlflowClient":
        self._relocate_artifacts()
        return super()._connect()

    @override
    def transaction(self) -> AbstractContextManager[None]:
        return self._sessions.transaction()

    @cached_property
    def _sessions(self) -> "_Sessions":
        return _Sessions(self.client)

    @override
    def write_artifact(self, run: str, path: str, content: bytes | Path) -> None:
        # MLflow's client would first ask the database for the run: 5 ms.
        file = self._artifact_place(run, path)
        file.parent.mkdir(parents=True, exist_ok=True)
        if file.is_dir() and not file.is_symlink():
            file.rename(file.with_name(f"{file.name}.{time.time_ns()}.moved"))  # somebody's files stay
        part = file.with_name(f".{file.name}.part")
        if isinstance(content, bytes):
            part.write_bytes(content)
        else:
            shutil.copyfile(content, part)
        replace_whole(part, file)

    @override
    def _artifact_root(self) -> str:
        return (self.root / ARTIFACTS).as_uri()

    @override
    def ui_options(self) -> list[str]:
        self._relocate_artifacts()
        return super().ui_options()

    @override
    def experiments(self) -> dict[str, str]:
        rows = self._select(
            "SELECT name, experiment_id FROM experiments JOIN experiment_tags USING (experiment_id)"
            " WHERE lifecycle_stage = 'active' AND key = ? ORDER BY name",
            FORMAT_TAG,
        )
        return {name: str(experiment) for name, experiment in rows}

    @override
    def _experiment(self, name: str) -> tuple[str, str, str | None] | None:
        rows = self._select(
            "SELECT experiments.experiment_id, lifecycle_stage, value FROM experiments LEFT JOIN experiment_tags"
            " ON experiment_tags.experiment_id = experiments.experiment_id AND key = ? WHERE name = ?",
            FORMAT_TAG,
            name,
        )
        return next(((str(experiment), stage, made_in) for experiment, stage, made_in in rows), None)

    @override
    def runs(self, experiment: str, params: bool = True) -> list[Run]:
        return self._runs(experiment, params=params)

    def _runs(self, experiment: str, condition: str = "true", params: bool = True) -> list[Run]:
        active = f"experiment_id = ? AND lifecycle_stage = 'active' AND {condition}"
        rows = self._select(
            f"SELECT run_uuid, coalesce(status, 'FAILED'), {TIMES} FROM runs WHERE {active} ORDER BY 3, run_uuid",
            experiment,
        )
        if bad := next((row[0] for row in rows if not re.fullmatch(r"[\w-]+", str(row[0]))), None):
            # The id of a run is also the name of its folder.
            what = f"{self.root} has a run {str(bad)[:80]!r}, as MLflow names none"
            raise StoreError(what, "restore the store from a copy, or give another --store")
        runs = {row[0]: Run(*row, experiment=experiment) for row in rows}
        # SQLite makes a new text for every cell, and most texts repeat. With one object for equal texts, 100,000 runs
        # take half the memory.
        texts = dict[str, str]()
        for table in ("tags", "latest_metrics", *(["params"] if params else [])):
            query = (
                f"SELECT run_uuid, key, value FROM {table} JOIN runs USING (run_uuid)"
                f" WHERE {active} AND {SOUND[table]}"
            )
            name = table.removeprefix("latest_")
            with reading(self.root) as database:
                for run, key, value in database.execute(query, (experiment,)):
                    if run in runs:
                        if isinstance(value, str):
                            value = texts.setdefault(value, value)
                        getattr(runs[run], name)[texts.setdefault(key, key)] = value
        return list(runs.values())

    @override
    def parent_run(self, study: str) -> Run | None:
        experiment = self.find_experiment(study)
        role = f"run_uuid IN (SELECT run_uuid FROM tags WHERE key = 'role' AND value = '{STUDY}')"
        return next(reversed(self._runs(experiment, role)), None) if experiment else None

    @override
    def histories(self, runs: Sequence[Run]) -> Iterator[Point]:
        for first in range(0, len(runs), RUNS_PER_QUERY):
            curves = {run.id: set(run.curves) for run in runs[first : first + RUNS_PER_QUERY]}
            marks = ",".join("?" * len(curves))
            points = self._select(
                f"SELECT run_uuid, step, key, value FROM metrics WHERE run_uuid IN ({marks}) AND {IS_POINT}"
                " ORDER BY run_uuid, key, step",
                *curves,
            )
            yield from (point for point in points if point[2] in curves[point[0]])

    @override
    def metric_mismatches(self) -> dict[str, list[str]]:
        found: dict[str, list[str]] = {}
        for run, key in self._select(MISMATCHES, FORMAT_TAG, FORMAT_TAG):
            found.setdefault(run, []).append(key)
        return found

    @override
    def mend_metrics(self, run: str) -> None:
        with (
            naming_locks(self.root),
            closing(sqlite3.connect(self.root / DATABASE, timeout=LOCK_PATIENCE)) as database,
            database,
        ):
            database.execute(LOST_ENDS, (run,))
            database.execute(LAST_VALUES, (run,))

    @override
    def looks_damaged(self, run: Run) -> bool:
        try:
            with open_regular(self._artifact_place(run.id, CURVE), "rb") as file:
                begin, size = file.read(len(PARQUET)), file.seek(-len(PARQUET), os.SEEK_END)
                return size < len(PARQUET) or {begin, file.read()} != {PARQUET}
        except OSError:
            return True

    @override
    def artifact(self, run: str, path: str, folder: Path | None = None) -> Path | None:
        file = self._artifact_place(run, path)
        return file if file.is_file() else None

    def _artifact_place(self, run: str, path: str) -> Path:
        """By its place in the folder: MLflow's address is absolute, and the store may have been moved."""
        return self.root / ARTIFACTS / run / "artifacts" / path

    def _select(self, query: str, *values: str) -> list[Any]:
        with reading(self.root) as database:
            return database.execute(query, values).fetchall()

    def _relocate_artifacts(self) -> None:
        """Write this folder into MLflow's absolute addresses of artifacts, if the store was moved or copied.

        Otherwise a copy would write into the original, and somebody else's store into any folder that it names. A
        database that cannot be written stays as it is: readers find artifacts by their place in the folder.
        """
        place, run_place = self._artifact_root(), "? || '/' || run_uuid || '/artifacts'"
        strays = (
            f"SELECT 1 FROM experiments WHERE artifact_location != ? AND {OURS}"
            f" UNION ALL SELECT 1 FROM runs WHERE artifact_uri != {run_place} AND {OURS} LIMIT 1"
        )
        with (
            suppress(sqlite3.OperationalError),
            naming_locks(self.root),
            closing(sqlite3.connect(self.root / DATABASE, timeout=LOCK_PATIENCE)) as database,
        ):
            if not database.execute(strays, (place, FORMAT_TAG, place, FORMAT_TAG)).fetchone():
                return
            with database:
                database.execute(
                    f"UPDATE runs SET artifact_uri = {run_place} WHERE {OURS}", (place, FORMAT_TAG)
                )
                database.execute(
                    f"UPDATE experiments SET artifact_location = ? WHERE {OURS}", (place, FORMAT_TAG)
                )


def check_folder(root: Path) -> None:
    """StoreError for a path that is no folder, and for a path that no folder can have. The folder may be absent."""
    if os.path.exists(root) and not os.path.isdir(root):
        raise StoreError(
            f"{root} is {'a file' if os.path.isfile(root) else 'no folder'}", "give --store a folder"
        )
    try:
        os.stat(root)
    except (FileNotFoundError, NotADirectoryError):
        pass
    except (OSError, ValueError) as problem:
        raise unwritable(root, problem) from problem


def require_outside_stores(path: Path, target: str, reports: bool = False) -> None:
    """StoreError for a path in a folder that is a store, because what a person writes there may replace records.

    The targets of links count too. A database without the file of the format is MLflow's own, say in a home folder.

    Parameters
    ----------
    target
        What to give in place of the path.
    reports
        Whether the folder of a store's reports is allowed.
    """
    try:
        places = [Path(os.path.abspath(path)), Path(os.path.realpath(path))]
    except FileNotFoundError:  # the current folder was deleted, and nothing can be written there
        return
    for place in places:
        if FolderStore.lies_in(place):
            raise StoreError(f"{path} is a store", f"give {target} of its own")
        for root in place.parents:
            if not (FolderStore.lies_in(root) and os.path.exists(root / FORMAT_FILE)):
                continue
            if not reports or not place.is_relative_to(root / REPORTS):
                also = f", or in {root / REPORTS}" if reports else ""
                raise StoreError(
                    f"{path} lies in the store {root}", f"give {target} outside of all stores{also}"
                )


class _Sessions:
    """MLflow's sessions on a SQLite database, several in one transaction.

    For one trial MLflow 3.17 commits eight times, and SQLite waits for the disk each time. MLflow has no public way to
    write a run in one transaction. SQLAlchemy has one: sessions that join the transaction of their connection.
    """

    def __init__(self, client: "mlflow.MlflowClient") -> None:
        store: Any = client._tracking_client.store  # one object per address and process
        self.engine, self.kind, self.separate = store.engine, store.db_type, store.ManagedSessionMaker
        # SQLAlchemy makes a class for each maker. A class of its own for each transaction would be garbage in cycles.
        self.maker = sqlalchemy_orm.sessionmaker(join_transaction_mode="create_savepoint")
        self.thread = threading.local()
        store.ManagedSessionMaker = self._make

    def _make(self, read_only: bool = True) -> AbstractContextManager[Any]:
        """In the place of MLflow's maker of sessions."""
        return (getattr(self.thread, "joined", None) or self.separate)(read_only=read_only)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Let this thread's sessions join one transaction, which ends with the context. An error undoes all of it."""
        with self.engine.connect() as connection:
            driver = connection.connection.dbapi_connection
            before = driver.isolation_level
            driver.isolation_level = None  # otherwise sqlite3 begins transactions itself
            try:
                for command in ("PRAGMA foreign_keys = ON", "PRAGMA busy_timeout = 20000", "BEGIN IMMEDIATE"):
                    driver.execute(command)
                with connection.begin():
                    # Commit and rollback of a session end a savepoint.
                    maker = partial(self.maker, bind=connection)
                    self.thread.joined = mlflow_database._get_managed_session_maker(maker, self.kind)
                    yield
            finally:
                self.thread.joined = None
                driver.isolation_level = before


def database_uri(root: Path) -> str:
    """MLflow's address of the database. Paths with special characters need the long form."""
    database = root / DATABASE
    if re.fullmatch(r"[\w./ -]+", str(database)):
        return f"sqlite:///{database}"
    # With the driver named, MLflow leaves it to SQLAlchemy to read the path.
    return sqlalchemy.URL.create("sqlite+pysqlite", database=str(database)).render_as_string()


@contextmanager
def reading(root: Path) -> Iterator[sqlite3.Connection]:
    """Connect for reading. SQLite then also rolls back the half-written transaction of a killed writer.

    Raises StoreError if another process holds the database for longer than `LOCK_PATIENCE`.
    """
    address = (root / DATABASE).as_uri() + "?mode=rw"
    with naming_locks(root), closing(sqlite3.connect(address, uri=True, timeout=LOCK_PATIENCE)) as connection:
        connection.execute("PRAGMA query_only = ON")
        connection.text_factory = _text
        yield connection


def _text(content: bytes) -> str:
    """A text of the database. Bytes of a damaged text that are no UTF-8 become replacement characters."""
    return content.decode(errors="replace")


@contextmanager
def naming_locks(root: Path) -> Iterator[None]:
    """Raise StoreError with the holder's name if the database of a store is locked. The database is not damaged."""
    try:
        yield
    except sqlite3.OperationalError as problem:
        if LOCKED not in str(problem):
            raise
        raise locked_database(str(root / DATABASE), root / DATABASE) from problem


def _create(root: Path) -> None:
    """Make the store whole or not at all: a process that is killed here leaves a folder that can be opened."""
    with file_lock(root):
        try:
            if not (root / FORMAT_FILE).exists():
                part = root / f"{FORMAT_FILE}.part"
                part.write_text(json.dumps({"format": FORMAT, "made_by": loopscale.__version__}) + "\n")
                replace_whole(part, root / FORMAT_FILE)
            if not (root / DATABASE).exists():
                _make_tables(root)
        except OSError as problem:
            raise unwritable(root, problem) from problem
    if not os.access(root / DATABASE, os.W_OK):
        what = f"{root / DATABASE} cannot be written"
        raise StoreError(what, "give another --store, or change its permissions")


def _make_tables(root: Path) -> None:
    """Make MLflow's tables in a file that gets its name only when it is complete."""
    part = root / "new"
    part.mkdir(exist_ok=True)
    for leftover in part.iterdir():
        leftover.unlink()
    TrackingStore.connect(database_uri(part), (root / ARTIFACTS).absolute().as_uri())
    replace_whole(part / DATABASE, root / DATABASE)
    part.rmdir()


def _has_runs(root: Path) -> bool:
    """Whether the folder has artifacts of runs."""
    try:
        return any((root / ARTIFACTS).iterdir())
    except OSError:
        return False


def _check_format(root: Path) -> None:
    try:
        about = json.loads(read_regular(root / FORMAT_FILE))
        version, made_by = int(about["format"]), about["made_by"]
    except (FileNotFoundError, NotADirectoryError):
        if (root / DATABASE).exists():
            what = f"{root / DATABASE} was not made by loopscale, or the file {FORMAT_FILE} beside it is lost"
            raise StoreError(
                what, "give another --store, or `loopscale doctor --repair` restores the file"
            ) from None
        return
    except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError) as problem:
        what = f"{root / FORMAT_FILE} is damaged ({problem})"
        raise StoreError(
            what, "`loopscale doctor --repair` restores it, or give another --store"
        ) from problem
    if version > FORMAT:
        raise StoreError(
            f"{root} was made by loopscale {made_by} in format {version}, this version reads up to {FORMAT}",
            "install a newer loopscale, or give another --store",
        )


def _check_database(root: Path) -> None:
    database = root / DATABASE
    if not database.exists():
        return
    try:
        with reading(root) as connection:
            for table in MLFLOW_TABLES:
                connection.execute(f"SELECT 1 FROM {table} LIMIT 1").fetchone()
    except sqlite3.Error as problem:
        what = f"{database} is no database of MLflow's, or damaged ({problem})"
        raise StoreError(what, "restore it from a copy, or move it away and start anew") from problem


class FolderKind(StoreKind, kind="folder"):
    """A folder of one user."""

    marker = DATABASE
    is_storage = True

    @override
    def check(self, place: Path | str, create: bool) -> None:
        """All is checked when the folder is opened, after the storage: no store is made in vain."""

    @override
    def open(
        self, place: Path | str, storage: Path, checkpoints: CheckpointStore | None, create: bool
    ) -> Store:
        FolderStore.check(Path(place), create)
        return FolderStore(Path(place), storage, checkpoints)

    @override
    def example(self, folder: Path, exported: Path) -> str:
        return str(folder / "store")
