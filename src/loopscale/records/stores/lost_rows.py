"""Lost rows of MLflow's tables in a folder's database: which rows are lost, and which rows the other tables prove.

A repair adds rows, and removes only rows without a value. All rows of a repair are one transaction.
"""

import sqlite3
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from loopscale.core.temporary import temporary_folder
from loopscale.records.model import STATUS, STUDY
from loopscale.records.stores.base import FORMAT_TAG, TrackingStore
from loopscale.records.stores.folder import (
    ARTIFACTS,
    DATABASE,
    LOCK_PATIENCE,
    SOUND,
    database_uri,
    naming_locks,
    reading,
)

VERSION_TABLE = "alembic_version"
"""MLflow's table with the version of all tables, in one row."""
DELETED = " (deleted "
"""Part of the name of a deleted study's experiment, after the name of the study."""
NO_RUN = "run_uuid NOT IN (SELECT run_uuid FROM runs)"
LOST_EXPERIMENTS = (
    "SELECT count(*) FROM runs WHERE experiment_id NOT IN (SELECT experiment_id FROM experiments)"
)
LOST_RUNS = (
    f"SELECT count(*) FROM (SELECT run_uuid FROM tags WHERE {NO_RUN}"
    f" UNION SELECT run_uuid FROM params WHERE {NO_RUN}"
    f" UNION SELECT run_uuid FROM latest_metrics WHERE {NO_RUN})"
)
UNMARKED = (
    "SELECT DISTINCT experiment_id FROM runs WHERE lifecycle_stage = 'active' AND run_uuid IN"
    " (SELECT run_uuid FROM tags WHERE key = 'mlflow.source.name' AND value = 'loopscale') AND experiment_id IN"
    " (SELECT experiment_id FROM experiments WHERE lifecycle_stage = 'active') AND experiment_id NOT IN"
    " (SELECT experiment_id FROM experiment_tags WHERE key = ? AND value GLOB '[0-9]*' AND value NOT GLOB '*[^0-9]*')"
)
"""SQL of the experiments with runs of loopscale that have lost the tag of the format, or its number."""
EXPERIMENTS_OF_RUNS = (
    "SELECT runs.experiment_id, coalesce(role.value = 'study', 0), study.value, lifecycle_stage, start_time"
    " FROM runs JOIN tags AS source ON source.run_uuid = runs.run_uuid AND source.key = 'mlflow.source.name'"
    " AND source.value = 'loopscale' JOIN tags AS study ON study.run_uuid = runs.run_uuid AND study.key = 'study'"
    " LEFT JOIN tags AS role ON role.run_uuid = runs.run_uuid AND role.key = 'role'"
    " WHERE runs.experiment_id NOT IN (SELECT experiment_id FROM experiments)"
)
TAGS_OF_LOST_RUNS = (
    f"SELECT run_uuid, key, value, rowid FROM tags WHERE {NO_RUN} AND run_uuid IN"
    " (SELECT run_uuid FROM tags WHERE key = 'mlflow.source.name' AND value = 'loopscale') ORDER BY rowid"
)
"""SQL of the tags of lost runs in the order of their writing, which is the order of the runs."""


def lost_experiments(root: Path) -> int:
    """The number of runs whose experiment is lost."""
    return _count(root, LOST_EXPERIMENTS)


def lost_runs(root: Path) -> int:
    """The number of lost runs that have left rows in other tables."""
    return _count(root, LOST_RUNS)


def _count(root: Path, sql: str) -> int:
    with reading(root) as database:
        [(number,)] = database.execute(sql).fetchall()
    return number


def unmarked_experiments(root: Path) -> list[str]:
    """The ids of experiments with runs of loopscale and without the tag of the format."""
    with reading(root) as database:
        return [str(experiment) for (experiment,) in database.execute(UNMARKED, (FORMAT_TAG,))]


def has_version(root: Path) -> bool:
    """False if the database has lost the version of its tables."""
    with reading(root) as database:
        try:
            return database.execute(f"SELECT 1 FROM {VERSION_TABLE}").fetchone() is not None
        except sqlite3.OperationalError as problem:
            if "no such table" not in str(problem):
                raise
            return False


def unsound_rows(root: Path) -> int:
    """The number of rows whose values have another type than their column, or are infinite. Readers leave them out."""
    return sum(
        _count(root, f"SELECT count(*) FROM {table} WHERE NOT ({sound})") for table, sound in SOUND.items()
    )


def remove_unsound_rows(root: Path) -> None:
    """Remove the rows of `unsound_rows`. Then the doctor can write their values again."""
    with _writing(root) as database:
        for table, sound in SOUND.items():
            database.execute(f"DELETE FROM {table} WHERE NOT ({sound})")


def restore_version(root: Path) -> str:
    """Write the version of the installed MLflow if the tables are those that this MLflow makes.

    Returns
    -------
    str
        The version; empty if the tables are different, so that nobody knows the version.
    """
    with temporary_folder("tables") as folder:
        TrackingStore.connect(database_uri(folder), (folder / ARTIFACTS).as_uri())
        with reading(folder) as made:
            [(version,)] = made.execute(f"SELECT version_num FROM {VERSION_TABLE}").fetchall()
            [(table,)] = made.execute("SELECT sql FROM sqlite_master WHERE name = ?", (VERSION_TABLE,))
            expected = _tables(made)
    with _writing(root) as database:
        if _tables(database) != expected:
            return ""
        if not database.execute("SELECT 1 FROM sqlite_master WHERE name = ?", (VERSION_TABLE,)).fetchone():
            database.execute(table)
        database.execute(f"INSERT INTO {VERSION_TABLE} (version_num) VALUES (?)", (version,))
    return version


def _tables(database: sqlite3.Connection) -> set[tuple[str, str]]:
    """The SQL of every table and index but that of the version, without the differences in white space."""
    rows = database.execute(
        "SELECT name, coalesce(sql, '') FROM sqlite_master WHERE tbl_name != ? AND name NOT LIKE 'sqlite_stat%'",
        (VERSION_TABLE,),
    )
    return {(name, " ".join(sql.split())) for name, sql in rows}


def restore_experiments(root: Path) -> list[str]:
    """Write the lost experiments that runs of loopscale name. Returns the names of their studies.

    An experiment whose runs are all deleted is deleted too, under a name that no study has.
    """
    restored: list[str] = []
    with _writing(root) as database:
        members: dict[int, list[tuple[int, str, str, int]]] = {}
        for experiment, *member in database.execute(EXPERIMENTS_OF_RUNS).fetchall():
            members.setdefault(experiment, []).append(tuple(member))
        taken = {name for (name,) in database.execute("SELECT name FROM experiments")}
        for experiment, rows in sorted(members.items()):
            # After a change of the study's name, the parent run alone has the former name.
            names = Counter(name for is_parent, name, *_ in rows if not is_parent)
            names = names or Counter(name for _, name, *_ in rows)
            name, stage = names.most_common(1)[0][0], "active"
            if all(row[2] == "deleted" for row in rows):
                stage, name = "deleted", f"{name}{DELETED}experiment {experiment})"
            if name in taken:
                continue
            taken.add(name)
            start = min(row[3] or 0 for row in rows)
            _insert(
                database,
                "experiments",
                {
                    "experiment_id": experiment,
                    "name": name,
                    "artifact_location": (root / ARTIFACTS).absolute().as_uri(),
                    "lifecycle_stage": stage,
                    "creation_time": start,
                    "last_update_time": start,
                },
            )
            restored += [name]
    return restored


@dataclass(frozen=True)
class LostRun:
    """A run of loopscale whose row is lost, as the other tables know it."""

    id: str
    tags: dict[str, str]
    first: int
    last: int
    """The times of its first and last metric, in ms since 1970; 0 without metrics."""


class Experiment(NamedTuple):
    """A row of the table of experiments."""

    id: int
    stage: str
    name: str
    created: int
    """In ms since 1970; 0 if unknown."""


def restore_runs(root: Path) -> int:
    """Write the lost runs that tags of loopscale name. Returns their number.

    The times are those of the metrics, and the order is that of the tags. If a trial has several lost runs, the latest
    one is active, because a trial has one run that is not deleted.
    """
    with _writing(root) as database:
        lost = _lost_runs(database)
        homes = _experiments_of(database, lost)
        latest = {(homes[run.id], run.tags.get("trial")): run.id for run in lost if run.id in homes}
        end = 0
        for run in lost:
            if run.id not in homes:
                continue
            home = homes[run.id]
            active = home.stage == "active" and latest[home, run.tags.get("trial")] == run.id
            outcome = run.tags.get("outcome", "")
            under_way = run.tags.get("role") == STUDY or outcome in ("", "running")
            # Start times are a millisecond apart, as the writer makes them. A parent run has no metrics.
            start = end = max(run.first, home.created, end + 1)
            _insert(
                database,
                "runs",
                {
                    "run_uuid": run.id,
                    "name": run.tags.get("mlflow.runName", ""),
                    "source_type": "UNKNOWN",
                    "source_name": "",
                    "entry_point_name": "",
                    "user_id": run.tags.get("mlflow.user", ""),
                    "status": "RUNNING" if under_way else STATUS.get(outcome, "FAILED"),
                    "start_time": start,
                    "end_time": None if under_way else max(run.last, start),
                    "source_version": "",
                    "lifecycle_stage": "active" if active else "deleted",
                    "artifact_uri": f"{(root / ARTIFACTS).absolute().as_uri()}/{run.id}/artifacts",
                    "experiment_id": home.id,
                },
            )
    return len(homes)


def _lost_runs(database: sqlite3.Connection) -> list[LostRun]:
    """The lost runs in the order of their first tags."""
    tags: dict[str, dict[str, str]] = {}
    for run, key, value, _ in database.execute(TAGS_OF_LOST_RUNS):
        tags.setdefault(run, {})[key] = value
    times = {
        run: (first, last)
        for run, first, last in database.execute(
            f"SELECT run_uuid, min(timestamp), max(timestamp) FROM metrics WHERE {NO_RUN} GROUP BY run_uuid"
        )
    }
    return [LostRun(run, of_run, *times.get(run, (0, 0))) for run, of_run in tags.items()]


def _experiments_of(database: sqlite3.Connection, lost: Sequence[LostRun]) -> dict[str, Experiment]:
    """The experiment of every lost run whose experiment is known, by the id of the run.

    A deleted study leaves an experiment with a longer name. Then the latest experiment that is older than the runs of
    one parent run is theirs.
    """
    query = (
        "SELECT experiment_id, lifecycle_stage, name, coalesce(creation_time, 0) FROM experiments ORDER BY 4"
    )
    experiments = [Experiment(*row) for row in database.execute(query)]
    families: dict[str, list[LostRun]] = {}
    for run in lost:
        families.setdefault(run.tags.get("mlflow.parentRunId", run.id), []).append(run)
    homes: dict[str, Experiment] = {}
    for family in families.values():
        named = [run.tags["study"] for run in family if run.tags.get("role") != STUDY and "study" in run.tags]
        study = (named or [run.tags.get("study", "") for run in family])[-1]
        begin = min((run.first for run in family if run.first), default=0)
        possible = [
            each for each in experiments if each.name == study or each.name.startswith(study + DELETED)
        ]
        older = [each for each in possible if each.created <= begin or not begin]
        if chosen := (older[-1:] or possible[:1]):
            homes |= dict.fromkeys((run.id for run in family), chosen[0])
    return homes


def tags_in_rows(root: Path) -> dict[str, dict[str, str]]:
    """The tags that MLflow keeps in the table of runs too, by the id of the run: the name and the user of the run."""
    with reading(root) as database:
        rows = database.execute("SELECT run_uuid, name, user_id FROM runs").fetchall()
    tags = ((run, {"mlflow.runName": name, "mlflow.user": user}) for run, name, user in rows)
    return {run: {key: text for key, text in of_run.items() if text} for run, of_run in tags}


def _insert(database: sqlite3.Connection, table: str, row: Mapping[str, Any]) -> None:
    marks = ", ".join("?" * len(row))
    database.execute(f"INSERT INTO {table} ({', '.join(row)}) VALUES ({marks})", tuple(row.values()))


@contextmanager
def _writing(root: Path) -> Iterator[sqlite3.Connection]:
    """One transaction on the database. An error undoes all of it. Raises StoreError if the database is locked."""
    with (
        naming_locks(root),
        closing(sqlite3.connect(root / DATABASE, timeout=LOCK_PATIENCE)) as database,
        database,
    ):
        database.execute("BEGIN IMMEDIATE")
        yield database
