"""A copy of a store's records in Parquet that answers SQL, kept up to date incrementally.

Readers use the copy, so that no query imports MLflow or torch. For a folder, a stamp of the database tells that nothing
has changed. For other stores one search per study tells which runs have changed, and only the histories and curves of
these runs are fetched.
"""

import errno
import fcntl
import json
import os
import re
import shutil
import zlib
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

from loopscale.core.file_locks import NoLocks, take
from loopscale.core.files import (
    bounded_name,
    make_private,
    open_regular,
    read_regular,
    replace_whole,
    write_whole,
)
from loopscale.core.temporary import lasting_folder
from loopscale.core.visible import tell
from loopscale.errors import QueryError as QueryError
from loopscale.records.deferred_imports import duckdb, pa, parquet
from loopscale.records.model import STUDY_JSON, Run, StoreError, parent_among
from loopscale.records.query_limits import (
    ROWS_AT_ONCE,
    TOO_LARGE,
    bounded_answer,
    has_stuck_query,
    run_query,
    spilling,
)
from loopscale.records.stores.base import Store, file_lock
from loopscale.records.tables import (
    HIDDEN,
    LATER_COLUMNS,
    MALFORMED,
    MIRRORED,
    TABLES,
    merged_trials,
    study_row,
    trial_row,
)

LONE_SURROGATE = re.compile("[\ud800-\udfff]")
DISK_ERRORS = {errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EPERM, errno.EFBIG}
STATE, LOCK, ALL = "state.json", "lock", "*"
MERGED = "merged.parquet"
"""The trials of all studies with one column per setting. The types of the columns depend on all studies."""
LAYOUT = 5
"""Raised when the files or their values change. A mirror with an older layout is made anew."""
DAMAGED = ""
"""In the place of a run's fingerprint: an artifact of the run is damaged."""
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
        if os.path.lexists(self.folder) and not self.folder.is_dir():
            self.folder.unlink()  # a mirror can be made anew
        self.folder.mkdir(parents=True, exist_ok=True)
        changed, damaged = {run for run, entry in state.items() if known.get(run) != entry}, dict[str, str]()
        touched = {state[run][1] for run in changed} | {known[run][1] for run in known.keys() - state.keys()}
        trials = [run for run in runs if run.is_trial]
        for file in sorted(touched - {None}):
            members = [run for run in trials if state[run.id][1] == file]
            fresh = [run for run in members if run.id in changed]
            kept = [run.id for run in members if run.id not in changed]
            self._merge(f"history-{file:04}", kept, store.history_table(fresh))
            curves = store.read_curves(fresh)
            damaged |= curves.damaged
            self._merge(f"curves-{file:04}", kept, curves.table)
        blocks = [trials[start : start + RUNS_PER_TABLE] for start in range(0, len(trials), RUNS_PER_TABLE)]
        tables = [self._table("trials", [trial_row(run, study) for run in block]) for block in blocks]
        self._replace("trials", pa.concat_tables([self._table("trials", []), *tables]))
        parent = parent_among(runs)
        if damaged:
            store.warn(
                _damage_line(study, [run.tags["trial"] for run in trials if run.id in damaged], damaged)
            )
        try:
            description = study_description(store, study, parent, expected=bool(self.description))
        except StoreError as problem:
            store.warn(str(problem))
            description = self.description
            damaged |= {parent.id: ""} if parent else {}
        self._replace("study", self._table("study", [study_row(study, parent, description)]))
        # The next reader looks at a damaged artifact again, because somebody may have mended the artifact.
        sound = {run: entry if run not in damaged else [DAMAGED, entry[1]] for run, entry in state.items()}
        _save_json(self.folder / "state.json", sound)
        return True

    @property
    def damaged(self) -> set[str]:
        """The ids of the runs with a damaged artifact, as the last reader saw the artifacts."""
        known = _sound_state(_load_json(self.folder / "state.json"))
        return {run for run, (fingerprint, _) in known.items() if fingerprint == DAMAGED}

    def curve(self, run: Run) -> "pa.Table | None":
        """The curve of a run without its keys; None unless the mirror holds the curve of the run's present record."""
        fingerprint, file = _sound_state(_load_json(self.folder / "state.json")).get(run.id, (DAMAGED, None))
        if fingerprint != run.fingerprint or file is None:
            return None
        path, schema = self.folder / f"curves-{file:04}.parquet", _schema("curves")
        table = parquet.read_table(path, filters=[("run", "==", run.id)], schema=schema)
        empty = [name for name in LATER_COLUMNS if table[name].null_count == len(table)]
        return table.drop_columns(["run", "trial", *empty]) if len(table) else None

    def history(self, run: str) -> dict[tuple[str, int], float]:
        """The points of a run, by metric and step."""
        _, file = _sound_state(_load_json(self.folder / "state.json")).get(run, (DAMAGED, None))
        if file is None:
            return {}
        path = self.folder / f"history-{file:04}.parquet"
        rows = parquet.read_table(path, filters=[("run", "==", run)]).to_pylist()
        return {(row["metric"], row["step"]): row["value"] for row in rows}

    @property
    def description(self) -> str:
        """The description of the study at the last update; empty if there is none."""
        try:
            [row] = parquet.read_table(self.folder / "study.parquet", columns=["json"]).to_pylist()
        except (pa.ArrowException, *MALFORMED):
            return ""
        return row["json"] or ""

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
        except (pa.ArrowException, *MALFORMED):
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
        if (
            stamp
            and stamp in (stamps.get(study or ALL), stamps.get(ALL))
            and state.get("files") == self._files()
        ):
            return
        if not self.store.read_only and not self._link and _writable(self.folder):
            try:
                self._sync(study, stamp)
                return
            except (OSError, StoreError) as problem:
                if not _blames_disk(problem):
                    raise
                tell(
                    f"note: {self.folder} takes no files ({_reason(problem)}); a temporary folder has the tables"
                )
        self.folder = lasting_folder("mirror")
        self._sync(study, stamp)

    def _sync(self, study: str | None, stamp: str | None) -> None:
        """Bring the files in the folder up to date. Raises OSError or StoreError if the folder takes no files."""
        with file_lock(self.folder, LOCK):
            state, studies = self._state, {_folder_name(name): name for name in self.store.studies()}
            files, known = self._files(), state.get("files", {})
            spoilt = {name for name, text in known.items() if files.get(name) != text}
            changed = MERGED in spoilt or MERGED not in known
            for mirrored in self._study_mirrors():
                whole = mirrored.sound and not any(f"{mirrored.folder.name}/" in name for name in spoilt)
                if not (state and mirrored.folder.name in studies and whole):
                    _remove(mirrored.folder)
                    changed = True
            damaged = False
            wanted = {folder: name for folder, name in studies.items() if study in (None, name)}
            unreadable = dict[str, StoreError]()
            for folder, name in wanted.items():
                mirrored = StudyMirror(self.folder / folder)
                try:
                    changed |= mirrored.sync(self.store, name)
                except StoreError as problem:  # the records of one study, which hide no other study
                    if _blames_disk(problem):
                        raise
                    unreadable[name] = problem
                damaged |= bool(mirrored.damaged)
            if unreadable and len(unreadable) == len(wanted):
                raise next(iter(unreadable.values()))
            for name, problem in unreadable.items():
                self.store.warn(f"{name} is left out: {problem}")
                damaged = True
            if changed or not (self.folder / MERGED).exists():
                tables = [mirrored.trials for mirrored in self._study_mirrors()]
                _write_parquet(merged_trials(tables), self.folder / MERGED)
            stamps = {ALL: stamp} if study is None else state.get("stamps", {}) | {study: stamp}
            if damaged:
                stamps = {name: text for name, text in stamps.items() if name not in (ALL, study)}
            _save_json(self.folder / STATE, {"layout": LAYOUT, "stamps": stamps, "files": self._files()})

    @contextmanager
    def database(
        self, limits: "Callable[[duckdb.DuckDBPyConnection], AbstractContextManager[None]] | None" = None
    ) -> "Iterator[duckdb.DuckDBPyConnection]":
        """A database in memory with the four tables. Its SQL reaches no file but the mirror's, and no network.

        `limits` holds for a query that somebody else has written.

        `sync` waits until the context ends, in every process: DuckDB opens a file several times to answer a query, and
        must find the same file each time.
        """
        with self._read_lock():
            connection = duckdb.connect(":memory:")
            try:
                with limits(connection) if limits else nullcontext():
                    self._make_views(connection)
                    yield connection
            except BaseException:
                if not has_stuck_query():  # DuckDB closes a connection after its query
                    connection.close()
                raise
            connection.close()

    def _make_views(self, connection: "duckdb.DuckDBPyConnection") -> None:
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

    def query(self, sql: str, timeout: float | None = None) -> "pa.Table":
        """The answer to one SELECT. Raises QueryError for any other statement, for mistakes, and after a timeout.

        Parameters
        ----------
        timeout
            Seconds for the query. None for no limit.
        """
        if lone := LONE_SURROGATE.search(sql):  # a byte of the command line that is not UTF-8
            byte = f"\\x{ord(lone[0]) & 0xFF:02x}"
            raise QueryError(f"the query holds {byte}, which is not UTF-8; type the query again as UTF-8")
        with self.database(spilling) as connection:

            def ask() -> "pa.Table":
                statements = connection.extract_statements(sql)
                if len(statements) != 1 or statements[0].type != duckdb.StatementType.SELECT:
                    raise QueryError(
                        "a query is one SELECT; write one over trials, curves, history and studies"
                    )
                return bounded_answer(connection.sql(statements[0].query).to_arrow_reader(ROWS_AT_ONCE))

            try:
                return run_query(ask, connection, timeout)
            except duckdb.OutOfMemoryException as problem:
                raise QueryError(TOO_LARGE) from problem
            except OSError as problem:
                if problem.errno is not None:
                    raise
                if "Out of Memory" in str(problem):  # Arrow's error for an error of DuckDB in a later batch
                    raise QueryError(TOO_LARGE) from problem
                raise QueryError(_query_message(" ".join(str(problem).split()))) from problem
            except duckdb.Error as problem:
                raise QueryError(_query_message(" ".join(str(problem).split()))) from problem

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
        """The checksum of every file. After a power cut a damaged file may have its size and time."""
        found = sorted([*self.folder.glob("*.parquet"), *self.folder.glob("*/*.parquet")])
        return {str(file.relative_to(self.folder)): _checksum(file) for file in found}

    @property
    def _link(self) -> Path | None:
        """The first link on the way to the folder. Files behind a link may be no files of the mirror."""
        return next((each for each in (self.folder.parent, self.folder) if each.is_symlink()), None)

    @property
    def damage(self) -> list[str]:
        """The files that differ from the files of the last reader, and files that nobody can write."""
        if not self.folder.exists() and not self._link:
            return []
        if self._link or not self.folder.is_dir() or not self._state:
            return [STATE]
        found, known = self._files(), self._state.get("files", {})
        return sorted(name for name in found.keys() | known.keys() if found.get(name) != known.get(name))

    def remove(self) -> None:
        """Remove the mirror. The next reader makes the mirror anew."""
        if link := self._link:
            link.unlink()
        elif self.folder.is_dir():
            shutil.rmtree(self.folder)
        else:
            self.folder.unlink(missing_ok=True)

    def kept_curve(self, study: str, run: Run) -> "pa.Table | None":
        """The curve of a run as the mirror holds the curve of the run's present record; None if there is none."""
        mirrored = StudyMirror(self.folder / _folder_name(study))
        return None if self.damage else mirrored.curve(run)

    def kept_history(self, study: str, run: str) -> dict[tuple[str, int], float]:
        """The points of a run that the mirror holds, by metric and step. Newer records may have more points."""
        return {} if self.damage else StudyMirror(self.folder / _folder_name(study)).history(run)

    def kept_rows(self, study: str) -> dict[str, dict[str, Any]]:
        """The rows of a study in the table of trials as the last reader has seen them, by the id of the run."""
        if self.damage or not self.folder.is_dir():
            return {}
        rows = StudyMirror(self.folder / _folder_name(study)).trials.to_pylist()
        return {row["run"]: row for row in rows}

    def kept_description(self, study: str) -> str:
        """The description of a study as the mirror holds the description; empty if there is none."""
        described = "" if self.damage else StudyMirror(self.folder / _folder_name(study)).description
        content = json.loads(described or "{}")
        own = {name: part for name, part in content.items() if name not in ("predictions", "decisions")}
        return json.dumps(own, indent=1) if own else ""

    def damaged_runs(self, study: str) -> set[str]:
        """The ids of the study's runs with a damaged artifact, as the last reader saw the artifacts."""
        return StudyMirror(self.folder / _folder_name(study)).damaged

    @contextmanager
    def _read_lock(self) -> Iterator[None]:
        """A lock against `sync`, unless the mirror's folder has none because it is read only."""
        if not os.path.isfile(self.folder / LOCK):  # also a folder or a pipe, which the doctor moves away
            yield
            return
        handle = open_regular(self.folder / LOCK, "r")
        with handle:
            with suppress(NoLocks):  # then `sync` has made the copy for this process alone
                take(handle, fcntl.LOCK_SH)
            yield

    def _study_mirrors(self) -> list[StudyMirror]:
        folders = sorted(self.folder.glob("*/")) if self.folder.is_dir() else []
        return [StudyMirror(folder) for folder in folders]


def damaged_curves(store: Store, study: str, runs: Iterable[Run]) -> dict[str, Run]:
    """The runs whose curve is damaged or missing, by the key of the trial.

    A folder is looked through quickly. On a server a look takes a request for each run, so only the runs count whose
    damage a reader of the records has met.
    """
    met = Mirror(store).damaged_runs(study)
    suspects = [
        run
        for run in runs
        if run.is_trial and (run.id in met or (run.has_curve and store.looks_damaged(run)))
    ]
    damaged = store.read_curves(suspects).damaged if suspects else {}
    return {run.tags["trial"]: run for run in suspects if run.id in damaged}


def _schema(file: str) -> "pa.Schema":
    """The schema of a study's file, by the file's name without suffix."""
    return pa.schema(MIRRORED[file.partition("-")[0]])


def _write_parquet(table: "pa.Table", file: Path) -> None:
    """Replace the file as a whole."""
    part = _part_of(file)
    try:
        parquet.write_table(table, part, compression="zstd")
        replace_whole(part, file)
    finally:
        part.unlink(missing_ok=True)


def _part_of(file: Path) -> Path:
    """The partial file of a file. A folder in the place of either is removed, because a mirror can be made anew."""
    part = file.with_suffix(".part")
    for place in (part, file):
        if place.is_symlink():
            place.unlink()
        elif place.is_dir():
            _remove(place)
    return part


def _remove(folder: Path) -> None:
    if folder.is_symlink():
        folder.unlink()
    else:
        shutil.rmtree(folder)


def _checksum(file: Path) -> str:
    try:
        return f"{zlib.crc32(read_regular(file)):08x}"
    except OSError as problem:
        return str(problem)


def _sql_list(texts: Iterable[str]) -> str:
    quoted = ("'" + text.replace("'", "''") + "'" for text in texts)
    return f"[{', '.join(quoted)}]"


def _as_pattern(file: Path) -> str:
    """The pattern that DuckDB matches with this file alone."""
    return re.sub(r"([*?\[])", r"[\1]", str(file))


def _folder_name(study: str) -> str:
    """The name of one folder for a study, whose name may hold slashes."""
    return bounded_name(quote(study, safe=" ").replace(".", "%2E"))


def _writable(folder: Path) -> bool:
    """True if the mirror can lie in the folder, which also needs locks: readers and writers share the files."""
    try:
        make_private(folder)
        if not os.access(folder, os.W_OK):
            return False
        with open_regular(folder / LOCK, "a") as handle, suppress(BlockingIOError):
            take(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except NoLocks:
        tell(f"note: the file system of {folder} has no locks; a temporary folder has the tables")
        return False
    except OSError:
        return False
    return True


def _blames_disk(problem: OSError | StoreError) -> bool:
    """True if the folder of the mirror cannot be written: its disk is full, read only, or has no locks."""
    cause = problem.__cause__ if isinstance(problem, StoreError) else problem
    return isinstance(cause, OSError) and cause.errno in DISK_ERRORS


def _reason(problem: OSError | StoreError) -> str:
    cause = problem.__cause__ if isinstance(problem, StoreError) else problem
    number = getattr(cause, "errno", None)
    return os.strerror(number).lower() if number else str(cause)


def _load_json(path: Path) -> dict[str, Any]:
    """The saved object; empty if the file is absent or damaged, because a mirror can be made anew."""
    try:
        content = json.loads(read_regular(path))
    except (OSError, ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


def _save_json(path: Path, content: dict[str, Any]) -> None:
    write_whole(path, json.dumps(content).encode(), _part_of(path))


def _sound_state(state: dict[str, Any]) -> dict[str, list[Any]]:
    """Fingerprint and file of every run, as saved; empty if the state is malformed."""
    entries = state.values()
    sound = all(isinstance(e, list) and len(e) == 2 and isinstance(e[1], int | None) for e in entries)
    return state if sound else {}


def _damage_line(study: str, trials: Sequence[str], damage: Mapping[str, str]) -> str:
    """The warning about the damaged curves of trials."""
    more = f" and {len(trials) - 1:,} more" if len(trials) > 1 else ""
    reason = next(iter(damage.values()))[:200]
    remedy = f"`loopscale doctor --repair` or `loopscale run {study}` makes the missing curves again"
    return f"the curve of trial {trials[0]}{more} of {study} cannot be read ({reason}); {remedy}"


def study_description(store: Store, study: str, parent: Run | None, expected: bool = False) -> str:
    """The text of the study's description (study.json), or an empty text.

    Raises StoreError for damage, and for an absent description that is `expected`.
    """
    try:
        content = store.read_artifact(parent.id, STUDY_JSON) if parent else None
        if content is None and expected:
            raise FileNotFoundError("it is missing")
        if content is None:
            return ""
        text = content.decode()
        if not isinstance(json.loads(text), dict):
            raise ValueError("it is no JSON object")
    except (OSError, ValueError, RecursionError) as problem:
        what = f"the description {STUDY_JSON} of {study} in {store.name} is damaged ({str(problem)[:200]})"
        remedy = f"`loopscale doctor --repair` or `loopscale run {study}` writes it again"
        raise StoreError(what, remedy) from problem
    return text


def _query_message(text: str) -> str:
    """DuckDB's message with a remedy. DuckDB takes an unquoted `model.kind` for column `kind` of a table `model`."""
    if "Referenced table" in text and "not found" in text:
        return f'{text}; a setting is written in double quotes, as in "model.kind"'
    if "Referenced column" in text and "not found" in text:
        return (
            f"{text}; text is written in single quotes, and `loopscale query 'DESCRIBE trials'` lists columns"
        )
    if "Table with name" in text:
        return f"{text}; there are trials, curves, history and studies"
    return f"{text}; `loopscale query --help` has an example"
