"""Records as tables that SQL can be asked of: a copy of the store in Parquet, kept up to date bit by bit.

Whoever asks reads the copy: neither MLflow nor torch is imported. A store in a folder is known to be
unchanged by its database's stamp; else one search a study says which runs have changed, and only their
histories and curves are fetched.
"""

import atexit
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from loopscale.records.mirror.replica import Replica, load_json, save_json
from loopscale.records.model import tables
from loopscale.records.model.columns import TABLES
from loopscale.records.stores import folder as embedded
from loopscale.records.stores.sources import source
from loopscale.records.stores.store import Store

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

STATE, LOCK, ALL = "state.json", "lock", "*"
LAYOUT = 2
"""Raised when the files change their shape: an older mirror is then made anew."""


class QueryError(ValueError):
    """What is wrong with a query, in one line."""


class Mirror:
    """The tables trials, curves, history and studies of a store."""

    def __init__(self, store: Store) -> None:
        self.store = store
        name = "own" if store.storage == store.root else sha256(store.uri.encode()).hexdigest()[:12]
        self.folder = store.storage / "mirror" / name

    def sync(self, study: str | None = None) -> None:
        """Bring the copy of one study, or of all, up to date; next to nothing if nothing has changed."""
        stamp = _stamp(self.store)
        if stamp and stamp in (self._stamps.get(study or ALL), self._stamps.get(ALL)) and self._untouched:
            return
        if self.store.exported or not _writable(self.folder):  # somebody else's store
            self.folder = Path(tempfile.mkdtemp(prefix="loopscale-mirror-"))
            atexit.register(shutil.rmtree, self.folder, ignore_errors=True)
        with embedded.lock(self.folder, LOCK):
            known = load_json(self.folder / STATE).get("layout") == LAYOUT
            for replica in self._replicas():
                if not (known and replica.sound):
                    shutil.rmtree(replica.folder)
            found = source(self.store)
            studies = found.studies()
            for name in studies if study is None else {study} & studies.keys():
                Replica(self.folder / _slug(name)).sync(self.store, found, name, studies[name])
            for replica in self._replicas():
                if replica.folder.name not in map(_slug, studies):
                    shutil.rmtree(replica.folder)
            stamps = {ALL: stamp} if study is None else self._stamps | {study: stamp}
            state = {"layout": LAYOUT, "stamps": stamps, "files": self._files()}
            save_json(self.folder / STATE, state)

    @contextmanager
    def connect(self) -> "Iterator[duckdb.DuckDBPyConnection]":
        """A database in memory with the four tables, which reaches nothing else: no file, no network.

        While it lasts `sync` waits, whoever calls it: a file is opened more than once to answer a query, and
        has to be the same file each time.
        """
        with self._read_lock():
            connection = self._database()
            try:
                yield connection
            finally:
                connection.close()

    def _database(self) -> "duckdb.DuckDBPyConnection":
        import duckdb
        import pyarrow as pa
        from pyarrow import dataset

        connection = duckdb.connect(":memory:")
        replicas = self._replicas()
        rows = [row for replica in replicas for row in replica.rows("trials")]
        studies = [row for replica in replicas for row in replica.rows("study")]
        connection.register("trials", tables.typed_trials(rows))
        connection.register("studies", pa.Table.from_pylist(studies, tables.schema(tables.STUDIES)))
        # A trial that two studies share is one trial here: its curve is taken from the first.
        first = {row["trial"]: row["run"] for row in reversed(rows)}
        connection.register("_runs", pa.table({"run": pa.array(list(first.values()), pa.string())}))
        for name, columns in (("history", tables.HISTORY), ("curves", tables.CURVES)):
            files = [file for replica in replicas for file in replica.files(name)]
            shape = tables.schema(columns)
            connection.register(f"_{name}", dataset.dataset(files, shape) if files else shape.empty_table())
            connection.execute(
                f"CREATE VIEW {name} AS SELECT * EXCLUDE run FROM _{name} SEMI JOIN _runs USING (run)"
            )
        connection.execute("SET enable_external_access = false; SET lock_configuration = true")
        return connection

    def query(self, sql: str) -> "pa.Table":
        """The answer to one SELECT; QueryError, one line, if it is none or is wrong."""
        import duckdb

        with self.connect() as connection:
            try:
                statements = connection.extract_statements(sql)
                if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
                    raise QueryError(
                        "a query is one SELECT; write one over trials, curves, history and studies"
                    )
                return connection.sql(statements[0].query).to_arrow_table()
            except duckdb.Error as problem:
                raise QueryError(" ".join(str(problem).split())) from problem

    def columns(self) -> dict[str, list[tuple[str, str]]]:
        """Every column of every table with DuckDB's name of its type, settings and all."""
        with self.connect() as connection:
            return {
                table: [(row[0], row[1]) for row in connection.execute(f"DESCRIBE {table}").fetchall()]
                for table in TABLES
            }

    @property
    def _stamps(self) -> dict[str, str | None]:
        """What the store's stamp was when all studies (`*`) or one were last brought up to date."""
        state = load_json(self.folder / STATE)
        stamps = state.get("stamps") if state.get("layout") == LAYOUT else None
        return stamps if isinstance(stamps, dict) else {}

    @property
    def _untouched(self) -> bool:
        """Whether the files are those that were written last: whoever damages one changes its time or size."""
        return load_json(self.folder / STATE).get("files") == self._files()

    def _files(self) -> dict[str, str]:
        found = sorted(self.folder.glob("*/*.parquet"))
        return {str(file.relative_to(self.folder)): _moment(file.stat()) for file in found}

    @contextmanager
    def _read_lock(self) -> Iterator[None]:
        """Against whoever brings the copy up to date; none where the copy may not be written to at all."""
        try:
            handle = (self.folder / LOCK).open()
        except FileNotFoundError:
            yield
            return
        with handle:
            fcntl.flock(handle, fcntl.LOCK_SH)
            yield

    def _replicas(self) -> list[Replica]:
        folders = sorted(self.folder.glob("*/")) if self.folder.is_dir() else []
        return [Replica(folder) for folder in folders]


def _slug(study: str) -> str:
    """A study's name as that of one folder."""
    return quote(study, safe=" ").replace(".", "%2E")


def _writable(folder: Path) -> bool:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return False
    return os.access(folder, os.W_OK)


def _stamp(store: Store) -> str | None:
    """Changes with every transaction of a store in a folder; `None` where only asking can tell.

    Time and size of the database and its log, and SQLite's own count of changes (bytes 24 to 28 of the file),
    since two changes can fall into one tick of the clock.
    """
    if not store.root:
        return None
    database = store.root / embedded.DATABASE
    with database.open("rb") as file:
        count = file.read(28)[24:]
    stats = [path.stat() for path in (database, Path(f"{database}-wal")) if path.exists()]
    return " ".join([count.hex(), *map(_moment, stats)])


def _moment(stat: os.stat_result) -> str:
    return f"{stat.st_size} {stat.st_mtime_ns}"
