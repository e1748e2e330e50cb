"""The pages and the indexes of a folder's database."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from typing_extensions import override

from loopscale.doctor.check import CannotMend, Check, Finding, Patient
from loopscale.records.stores.folder import DATABASE, LOCK_PATIENCE, naming_locks, reading

OF_AN_INDEX = ("missing from index", "entries in index")
"""Texts of SQLite for a damaged index, which the table can make anew."""
MOST_FAULTS = 100
"""Faults that SQLite lists."""


class Database(Check):
    """SQLite finds every page and every index of the database whole."""

    name = "database"
    stage = "records"

    @override
    def find(self, patient: Patient) -> Iterator[Finding]:
        if patient.folder is None:
            return
        file = patient.folder / DATABASE
        faults = _faults(file)
        if not faults:
            return
        indexes = all(any(text in fault for text in OF_AN_INDEX) for fault in faults)
        yield Finding(
            "error",
            str(file),
            f"the database is damaged ({faults[0]})",
            "restore the file from a copy, or write what SQLite can read with `sqlite3 mlflow.db .recover`",
            (lambda: _reindex(file)) if indexes else None,
        )


def _faults(file: Path) -> list[str]:
    try:
        with reading(file.parent) as database:
            rows = database.execute(f"PRAGMA integrity_check({MOST_FAULTS})").fetchall()
    except sqlite3.DatabaseError as problem:
        return [str(problem)]
    return [str(row[0]) for row in rows if row[0] != "ok"]


def _reindex(file: Path) -> str:
    with (
        naming_locks(file.parent),
        closing(sqlite3.connect(file, timeout=LOCK_PATIENCE)) as database,
        database,
    ):
        database.execute("REINDEX")
    if faults := _faults(file):
        raise CannotMend(faults[0])
    return "the indexes were made anew"
