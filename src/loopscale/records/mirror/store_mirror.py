"""A copy of a store's records in Parquet that answers SQL, kept up to date incrementally.

Readers use the copy, so that no query imports MLflow or torch. For a folder, a stamp of the database tells that nothing
has changed. For other stores one search per study tells which runs have changed, and only the histories and curves of
these runs are fetched.
"""

import atexit
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

from loopscale.records.deferred_imports import dataset, duckdb, pa
from loopscale.records.mirror.study_mirror import StudyMirror, load_json, save_json
from loopscale.records.model import tables
from loopscale.records.model.columns import TABLES
from loopscale.records.stores.base import Store
from loopscale.records.stores.local_folder import file_lock

STATE, LOCK, ALL = "state.json", "lock", "*"
LAYOUT = 2
"""Raised when the files change their shape. A mirror with an older layout is made anew."""


class QueryError(ValueError):
    """A query is wrong. The text is one line."""


class Mirror:
    """The tables trials, curves, history and studies of a store."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.folder = store.storage / "mirror" / store.mirror_name

    def sync(self, study: str | None = None) -> None:
        """Bring the copy of one study, or of all studies, up to date. Fast if nothing has changed."""
        stamp = self.store.change_stamp()
        if stamp and stamp in (self._stamps.get(study or ALL), self._stamps.get(ALL)) and self._untouched:
            return
        if self.store.read_only or not _writable(self.folder):
            self.folder = Path(tempfile.mkdtemp(prefix="loopscale-mirror-"))
            atexit.register(shutil.rmtree, self.folder, ignore_errors=True)
        with file_lock(self.folder, LOCK):
            known = load_json(self.folder / STATE).get("layout") == LAYOUT
            for mirrored in self._study_mirrors():
                if not (known and mirrored.sound):
                    shutil.rmtree(mirrored.folder)
            studies = self.store.studies()
            for name in studies if study is None else {study} & set(studies):
                StudyMirror(self.folder / _folder_name(name)).sync(self.store, name)
            folders = {_folder_name(name) for name in studies}
            for mirrored in self._study_mirrors():
                if mirrored.folder.name not in folders:
                    shutil.rmtree(mirrored.folder)
            stamps = {ALL: stamp} if study is None else self._stamps | {study: stamp}
            state = {"layout": LAYOUT, "stamps": stamps, "files": self._files()}
            save_json(self.folder / STATE, state)

    @contextmanager
    def database(self) -> "Iterator[duckdb.DuckDBPyConnection]":
        """A database in memory with the four tables. Its SQL reaches no file and no network.

        `sync` waits until the context ends, in every process: DuckDB opens a file several times to answer a query, and
        must find the same file each time.
        """
        with self._read_lock():
            connection = self._connect()
            try:
                yield connection
            finally:
                connection.close()

    def _connect(self) -> "duckdb.DuckDBPyConnection":
        connection = duckdb.connect(":memory:")
        mirrors = self._study_mirrors()
        trials = [row for mirrored in mirrors for row in mirrored.rows("trials")]
        studies = [row for mirrored in mirrors for row in mirrored.rows("study")]
        connection.register("trials", tables.typed_trials(trials))
        connection.register("studies", pa.Table.from_pylist(studies, tables.arrow_schema(tables.STUDIES)))
        # A trial of two studies has two runs with equal curves: only the run of the first study is used.
        first = {row["trial"]: row["run"] for row in reversed(trials)}
        connection.register("_runs", pa.table({"run": pa.array(list(first.values()), pa.string())}))
        for name, columns in (("history", tables.HISTORY), ("curves", tables.CURVES)):
            files = [file for mirrored in mirrors for file in mirrored.files(name)]
            schema = tables.arrow_schema(columns)
            connection.register(f"_{name}", dataset.dataset(files, schema) if files else schema.empty_table())
            connection.execute(
                f"CREATE VIEW {name} AS SELECT * EXCLUDE run FROM _{name} SEMI JOIN _runs USING (run)"
            )
        connection.execute("SET enable_external_access = false; SET lock_configuration = true")
        return connection

    def query(self, sql: str) -> "pa.Table":
        """The answer to one SELECT. Raises QueryError for any other statement and for mistakes."""
        with self.database() as connection:
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
        """Every column of every table, settings too, with DuckDB's name of its type."""
        with self.database() as connection:
            return {
                table: [(row[0], row[1]) for row in connection.execute(f"DESCRIBE {table}").fetchall()]
                for table in TABLES
            }

    @property
    def _stamps(self) -> dict[str, str | None]:
        """The store's stamp at the last sync, by study; `*` for a sync of all studies."""
        state = load_json(self.folder / STATE)
        stamps = state.get("stamps") if state.get("layout") == LAYOUT else None
        return stamps if isinstance(stamps, dict) else {}

    @property
    def _untouched(self) -> bool:
        """True if the files have the sizes and times of the last sync. Damage to a file changes its size or time."""
        return load_json(self.folder / STATE).get("files") == self._files()

    def _files(self) -> dict[str, str]:
        files = {file: file.stat() for file in sorted(self.folder.glob("*/*.parquet"))}
        return {
            str(file.relative_to(self.folder)): f"{s.st_size} {s.st_mtime_ns}" for file, s in files.items()
        }

    @contextmanager
    def _read_lock(self) -> Iterator[None]:
        """A lock against `sync`, unless the mirror's folder has none because it is read only."""
        try:
            handle = (self.folder / LOCK).open()
        except FileNotFoundError:
            yield
            return
        with handle:
            fcntl.flock(handle, fcntl.LOCK_SH)
            yield

    def _study_mirrors(self) -> list[StudyMirror]:
        folders = sorted(self.folder.glob("*/")) if self.folder.is_dir() else []
        return [StudyMirror(folder) for folder in folders]


def _folder_name(study: str) -> str:
    """The name of one folder for a study, whose name may hold slashes."""
    return quote(study, safe=" ").replace(".", "%2E")


def _writable(folder: Path) -> bool:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return False
    return os.access(folder, os.W_OK)
