"""A store in a folder: what must be true of it, and how it comes to be, whole or not at all."""

import contextlib
import fcntl
import json
import os
import re
import sqlite3
from collections.abc import Iterator
from pathlib import Path

import loopscale
from loopscale.records.model.errors import NoRecords, StoreError

FORMAT = 1
"""The format of records that this version writes: raised when older versions could not read it."""
FORMAT_TAG = "loopscale.format"
"""Tag of an experiment that holds a study: the format of its records."""
TABLES = ("experiments", "runs", "params", "metrics", "latest_metrics", "tags", "experiment_tags")
"""Of MLflow's, those that records are in."""
DATABASE, FORMAT_FILE = "mlflow.db", "format.json"


def uri(root: Path) -> str:
    """MLflow's address of the store's database. The long form is for paths that an address would misread."""
    database = root / DATABASE
    if re.fullmatch(r"[\w./ -]+", str(database)):
        return f"sqlite:///{database}"
    import sqlalchemy

    # With the driver named, MLflow leaves it to SQLAlchemy to read the path.
    return sqlalchemy.URL.create("sqlite+pysqlite", database=str(database)).render_as_string()


def check(root: Path, create: bool) -> None:
    """StoreError unless `root` holds a store that this version can use; made first where `create`."""
    if os.path.exists(root) and not os.path.isdir(root):
        raise StoreError(f"{root} is a file", "give --store a folder")
    try:
        os.stat(root)
    except (FileNotFoundError, NotADirectoryError):
        pass
    except (OSError, ValueError) as problem:
        raise _unwritable(root, problem) from problem
    if create:
        _check_format(root)
        _check_database(root)
        _create(root)
        return
    if not (root / FORMAT_FILE).exists() and not (root / DATABASE).exists():
        raise NoRecords(f"no records in {root} yet", "`loopscale run` makes them")
    _check_format(root)
    if not (root / DATABASE).exists():
        raise NoRecords(f"no records in {root} yet", "`loopscale run` makes them")
    _check_database(root)


def settle(root: Path) -> None:
    """Where the folder was moved or copied, let MLflow look for artifacts here and put new ones here.

    It keeps absolute addresses, so that a copy would write into the original, and a store of somebody else's wherever
    it says. A folder that cannot be written is left as it is: whoever only reads finds artifacts by their place in it.
    """
    here = (root / "artifacts").as_uri()
    with (
        contextlib.suppress(sqlite3.OperationalError),
        contextlib.closing(sqlite3.connect(root / DATABASE)) as database,
    ):
        ours = "experiment_id IN (SELECT experiment_id FROM experiment_tags WHERE key = ?)"
        stray = database.execute(
            f"SELECT 1 FROM experiments WHERE artifact_location != ? AND {ours} UNION ALL"
            f" SELECT 1 FROM runs WHERE artifact_uri != ? || '/' || run_uuid || '/artifacts' AND {ours} LIMIT 1",
            (here, FORMAT_TAG, here, FORMAT_TAG),
        )
        if not stray.fetchone():
            return
        with database:
            database.execute(
                f"UPDATE runs SET artifact_uri = ? || '/' || run_uuid || '/artifacts' WHERE {ours}",
                (here, FORMAT_TAG),
            )
            database.execute(f"UPDATE experiments SET artifact_location = ? WHERE {ours}", (here, FORMAT_TAG))


@contextlib.contextmanager
def lock(folder: Path, name: str = "open.lock") -> Iterator[None]:
    """Hold a file of `folder` against other processes of this machine; waits for them."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle = (folder / name).open("a")
    except OSError as problem:
        raise _unwritable(folder, problem) from problem
    with handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def make_folder(folder: Path) -> None:
    """StoreError unless files can be written in `folder`, which is made."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as problem:
        reason = problem.strerror or str(problem)
        raise StoreError(
            f"cannot write to {folder} ({reason})", "give another folder with --storage"
        ) from problem
    if not os.access(folder, os.W_OK):
        raise StoreError(f"cannot write to {folder}", "give another folder with --storage")


def _create(root: Path) -> None:
    """Make the store whole or not at all: a process killed here leaves nothing to trip over."""
    with lock(root):
        try:
            if not (root / FORMAT_FILE).exists():
                part = root / f"{FORMAT_FILE}.part"
                part.write_text(json.dumps({"format": FORMAT, "made_by": loopscale.__version__}) + "\n")
                os.replace(part, root / FORMAT_FILE)
            if not (root / DATABASE).exists():
                _migrate(root)
        except OSError as problem:
            raise _unwritable(root, problem) from problem
    if not os.access(root / DATABASE, os.W_OK):
        raise StoreError(
            f"{root / DATABASE} cannot be written", "give another --store, or change its permissions"
        )


def _migrate(root: Path) -> None:
    """MLflow's tables, in a file that takes its name only when it is complete."""
    from loopscale.records.stores import client

    part = root / "new"
    part.mkdir(exist_ok=True)
    for left in part.iterdir():
        left.unlink()
    client.connect(uri(part), (root / "artifacts").absolute().as_uri())
    os.replace(part / DATABASE, root / DATABASE)
    part.rmdir()


def _check_format(root: Path) -> None:
    try:
        found = json.loads((root / FORMAT_FILE).read_text())
        version, made_by = int(found["format"]), found["made_by"]
    except (FileNotFoundError, NotADirectoryError):
        if (root / DATABASE).exists():
            raise StoreError(f"{root / DATABASE} was not made by loopscale", "give another --store") from None
        return
    except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError) as problem:
        raise StoreError(
            f"{root / FORMAT_FILE} is damaged ({problem})", "restore it, or give another --store"
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
        with contextlib.closing(connect(root)) as connection:
            for table in TABLES:
                connection.execute(f"SELECT 1 FROM {table} LIMIT 1").fetchone()
    except sqlite3.Error as problem:
        raise StoreError(
            f"{database} is no database of MLflow's, or damaged ({problem})",
            "restore it from a copy, or move it away and start anew",
        ) from problem


def connect(root: Path) -> sqlite3.Connection:
    """A connection that changes nothing, but rolls back what a killed writer left half done."""
    address = (root / DATABASE).as_uri() + "?mode=rw"
    connection = sqlite3.connect(address, uri=True, timeout=20)
    connection.execute("PRAGMA query_only = ON")
    return connection


def _unwritable(folder: Path, problem: OSError | ValueError) -> StoreError:
    reason = getattr(problem, "strerror", None) or str(problem)
    return StoreError(
        f"cannot write to {folder} ({reason})", "give another folder with --store or LOOPSCALE_STORE"
    )
