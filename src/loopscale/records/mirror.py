"""A copy of a store's records in Parquet that answers SQL, kept up to date incrementally.

Readers use the copy, so that no query imports MLflow or torch. For a folder, a stamp of the database tells that nothing
has changed. For other stores one search per study tells which runs have changed, and only the histories and curves of
these runs are fetched.
"""

import atexit
import fcntl
import json
import os
import re
import shutil
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import quote

from loopscale.records.deferred_imports import duckdb, pa, parquet
from loopscale.records.model import STUDY_JSON, Run, StoreError, parent_among
from loopscale.records.stores.base import Store, file_lock
from loopscale.records.tables import HIDDEN, MIRRORED, TABLES, merged_trials, study_row, trial_row

STATE, LOCK, ALL = "state.json", "lock", "*"
MERGED = "merged.parquet"
"""The trials of all studies with one column per setting. The types of the columns depend on all studies."""
LAYOUT = 4
"""Raised when the files change their shape. A mirror with an older layout is made anew."""
RUNS_PER_FILE = 64
RUNS_PER_TABLE = 5000
"""Rows that exist as Python objects at a time."""
VIEWS = {
    "trials": f"SELECT * EXCLUDE ({', '.join(HIDDEN)}) FROM _merged",
    # A Parquet file gives times in microseconds.
    "studies": "SELECT * REPLACE (started::TIMESTAMP_MS AS started) FROM _study",
    # A trial of two studies has two runs with equal curves: only the run of the first study is used.
    "_runs": "SELECT _run AS run FROM _merged WHERE _first",
    "history": "SELECT * EXCLUDE run FROM _history SEMI JOIN _runs USING (run)",
    "curves": "SELECT * EXCLUDE run FROM _curves SEMI JOIN _runs USING (run)",
}
"""SQL of the tables over the mirror's files."""


class QueryError(ValueError):
    """A query is wrong. The text is one line."""


class StudyMirror:
    """One study's records as Parquet files: `trials`, `study`, and `history-<n>`, `curves-<n>` of up to 64 runs each.

    A run stays in its first file, and a file is written anew only if one of its runs has changed. So a study under way
    changes only its last files. Every file is replaced as a whole, and readers need no lock. A writer holds the
    mirror's lock.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def sync(self, store: Store, study: str) -> bool:
        """Bring the files up to date. Returns whether a file has changed."""
        runs = store.runs(store.require_experiment(study))
        known = _sound_state(_load_json(self.folder / "state.json"))
        state = {run.id: [run.fingerprint, file] for run, file in self._assign_files(runs, known)}
        if state == known:
            return False
        self.folder.mkdir(parents=True, exist_ok=True)
        changed = {run for run, entry in state.items() if known.get(run) != entry}
        touched = {state[run][1] for run in changed} | {known[run][1] for run in known.keys() - state.keys()}
        trials = [run for run in runs if run.is_trial]
        for file in sorted(touched - {None}):
            members = [run for run in trials if state[run.id][1] == file]
            fresh = [run for run in members if run.id in changed]
            kept = [run.id for run in members if run.id not in changed]
            self._merge(f"history-{file:04}", kept, store.history_table(fresh))
            self._merge(f"curves-{file:04}", kept, store.curve_table(fresh))
        blocks = [trials[start : start + RUNS_PER_TABLE] for start in range(0, len(trials), RUNS_PER_TABLE)]
        tables = [self._table("trials", [trial_row(run, study) for run in block]) for block in blocks]
        self._replace("trials", pa.concat_tables([self._table("trials", []), *tables]))
        parent = parent_among(runs)
        rows = [study_row(study, parent, study_description(store, study, parent))]
        self._replace("study", self._table("study", rows))
        _save_json(self.folder / "state.json", state)
        return True

    @property
    def trials(self) -> "pa.Table":
        """The table of trials, with the settings as JSON."""
        try:
            return parquet.read_table(self.folder / "trials.parquet")
        except FileNotFoundError:
            return _schema("trials").empty_table()

    @property
    def sound(self) -> bool:
        """True if every file has the columns of this version. Otherwise the mirror is made anew."""
        try:
            return all(
                parquet.read_schema(file).equals(_schema(file.stem)) for file in self.folder.glob("*.parquet")
            )
        except (pa.ArrowException, OSError, KeyError):
            return False

    def _assign_files(self, runs: Sequence[Run], known: dict[str, list[Any]]) -> list[tuple[Run, int | None]]:
        """The number of every run's file; None for the parent run."""
        filled = Counter(file for _, file in known.values() if file is not None)
        last = max(filled, default=0)
        assigned: list[tuple[Run, int | None]] = []
        for run in runs:
            file = known[run.id][1] if run.id in known else None
            if file is None and run.is_trial:
                last += filled[last] >= RUNS_PER_FILE
                filled[last] += 1
                file = last
            assigned.append((run, file))
        return assigned

    def _merge(self, name: str, kept: list[str], fresh: "pa.Table") -> None:
        file = self.folder / f"{name}.parquet"
        if kept and file.exists():
            old = parquet.read_table(file, filters=[("run", "in", kept)], schema=_schema(name))
            fresh = pa.concat_tables([old, fresh])
        self._replace(name, fresh)

    def _table(self, name: str, rows: list[dict[str, Any]]) -> "pa.Table":
        return pa.Table.from_pylist(rows, _schema(name))

    def _replace(self, name: str, table: "pa.Table") -> None:
        _write_parquet(table, self.folder / f"{name}.parquet")


class Mirror:
    """The tables trials, curves, history and studies of a store."""

    def __init__(self, store: Store) -> None:
        self.store = store
        self.folder = store.storage / "mirror" / store.mirror_name

    def sync(self, study: str | None = None) -> None:
        """Bring the copy of one study, or of all studies, up to date. Fast if nothing has changed."""
        stamp, state = self.store.change_stamp(), self._state
        stamps = state.get("stamps", {})
        # Damage to a file of the mirror changes the file's size or time.
        if (
            stamp
            and stamp in (stamps.get(study or ALL), stamps.get(ALL))
            and state.get("files") == self._files()
        ):
            return
        if self.store.read_only or not _writable(self.folder):
            self.folder = Path(tempfile.mkdtemp(prefix="loopscale-mirror-"))
            atexit.register(shutil.rmtree, self.folder, ignore_errors=True)
        with file_lock(self.folder, LOCK):
            state, studies = self._state, {_folder_name(name): name for name in self.store.studies()}
            changed = state.get("files", {}).get(MERGED) != self._files().get(MERGED)
            for mirrored in self._study_mirrors():
                if not (state and mirrored.folder.name in studies and mirrored.sound):
                    shutil.rmtree(mirrored.folder)
                    changed = True
            for folder, name in studies.items():
                if study in (None, name):
                    changed |= StudyMirror(self.folder / folder).sync(self.store, name)
            if changed or not (self.folder / MERGED).exists():
                tables = [mirrored.trials for mirrored in self._study_mirrors()]
                _write_parquet(merged_trials(tables), self.folder / MERGED)
            stamps = {ALL: stamp} if study is None else state.get("stamps", {}) | {study: stamp}
            _save_json(self.folder / STATE, {"layout": LAYOUT, "stamps": stamps, "files": self._files()})

    @contextmanager
    def database(self) -> "Iterator[duckdb.DuckDBPyConnection]":
        """A database in memory with the four tables. Its SQL reaches no file but the mirror's, and no network.

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
        patterns = {"merged": MERGED, "study": "*/study.parquet"}
        patterns |= {"history": "*/history-*.parquet", "curves": "*/curves-*.parquet"}
        files = {name: sorted(self.folder.glob(pattern)) for name, pattern in patterns.items()}
        # DuckDB opens these files itself, and reads the columns that a query needs. It asks also for the patterns.
        allowed = {
            text for found in files.values() for file in found for text in (str(file), _as_pattern(file))
        }
        connection.execute(f"SET allowed_paths = {_sql_list(allowed)}")
        for name, found in files.items():
            if found:
                paths = _sql_list(map(_as_pattern, found))
                connection.execute(f"CREATE VIEW _{name} AS SELECT * FROM read_parquet({paths})")
            else:
                connection.register(f"_{name}", _schema(name).empty_table())
        for view, query in VIEWS.items():
            connection.execute(f"CREATE VIEW {view} AS {query}")
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
            sql = "SELECT column_name, column_type FROM (DESCRIBE {})"
            return {table: connection.execute(sql.format(table)).fetchall() for table in TABLES}

    @property
    def _state(self) -> dict[str, Any]:
        """The layout, the store's stamp by study (`*`: all studies), and the files, as the last sync left them."""
        state = _load_json(self.folder / STATE)
        return state if state.get("layout") == LAYOUT and isinstance(state.get("stamps"), dict) else {}

    def _files(self) -> dict[str, str]:
        found = [*self.folder.glob("*.parquet"), *self.folder.glob("*/*.parquet")]
        files = {file: file.stat() for file in sorted(found)}
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


def _schema(file: str) -> "pa.Schema":
    """The schema of a study's file, by the file's name without suffix."""
    return pa.schema(MIRRORED[file.partition("-")[0]])


def _write_parquet(table: "pa.Table", file: Path) -> None:
    """Replace the file as a whole."""
    part = file.with_suffix(".part")
    parquet.write_table(table, part, compression="zstd")
    os.replace(part, file)


def _sql_list(texts: Iterable[str]) -> str:
    quoted = ("'" + text.replace("'", "''") + "'" for text in texts)
    return f"[{', '.join(quoted)}]"


def _as_pattern(file: Path) -> str:
    """The pattern that DuckDB matches with this file alone."""
    return re.sub(r"([*?\[])", r"[\1]", str(file))


def _folder_name(study: str) -> str:
    """The name of one folder for a study, whose name may hold slashes."""
    return quote(study, safe=" ").replace(".", "%2E")


def _writable(folder: Path) -> bool:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError:
        return False
    return os.access(folder, os.W_OK)


def _load_json(path: Path) -> dict[str, Any]:
    """The saved object; empty if the file is absent or damaged, because a mirror can be made anew."""
    try:
        content = json.loads(path.read_text())
    except (OSError, ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


def _save_json(path: Path, content: dict[str, Any]) -> None:
    part = path.with_suffix(".part")
    part.write_text(json.dumps(content))
    os.replace(part, path)


def _sound_state(state: dict[str, Any]) -> dict[str, list[Any]]:
    """Fingerprint and file of every run, as saved; empty if the state is malformed."""
    entries = state.values()
    sound = all(isinstance(e, list) and len(e) == 2 and isinstance(e[1], int | None) for e in entries)
    return state if sound else {}


def study_description(store: Store, study: str, parent: Run | None) -> str:
    """The text of the study's description (study.json), or an empty text. Raises StoreError for damage."""
    try:
        content = store.read_artifact(parent.id, STUDY_JSON) if parent else None
        if content is None:
            return ""
        text = content.decode()
        if not isinstance(json.loads(text), dict):
            raise ValueError("it is no JSON object")
    except (OSError, ValueError, RecursionError) as problem:
        what = f"the description {STUDY_JSON} of {study} in {store.name} is damaged ({str(problem)[:200]})"
        raise StoreError(what, "`loopscale run` of the study writes it again") from problem
    return text
