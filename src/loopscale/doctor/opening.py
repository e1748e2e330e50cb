"""Open a store whose folder lacks a sound `format.json`."""

import json
import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import loopscale
from loopscale.core.files import read_regular, write_whole
from loopscale.doctor.check import Finding
from loopscale.doctor.examination import Examined
from loopscale.records.model import StoreError
from loopscale.records.stores.base import FORMAT, FORMAT_TAG, Store
from loopscale.records.stores.folder import DATABASE, FORMAT_FILE
from loopscale.records.stores.opening import place_of_store

CHECK = "format"


def open_damaged(
    open_store: Callable[[], Store], where: str | None, repair: bool, tell: Callable[[Examined], None]
) -> Store:
    """The open store, after a repair of its format file on request. Raises StoreError."""
    try:
        return open_store()
    except StoreError as problem:
        folder = place_of_store(where)
        if not (repair and isinstance(folder, Path) and _lacks_only_the_format(folder)):
            raise
        what, _, remedy = str(problem).partition("; ")
        text = json.dumps({"format": FORMAT, "made_by": loopscale.__version__}) + "\n"
        try:
            write_whole(folder / FORMAT_FILE, text.encode())
        except OSError as denied:
            raise StoreError(
                f"{folder / FORMAT_FILE} cannot be written ({denied.strerror})", "remove it"
            ) from denied
        finding = Finding("error", str(folder / FORMAT_FILE), what, remedy)
        tell(Examined(CHECK, finding, mended="written again from the tags of the studies"))
        return open_store()


def _lacks_only_the_format(folder: Path) -> bool:
    """True for a database whose studies all have the present format, beside a damaged or missing format file."""
    if not os.path.isfile(folder / DATABASE):
        return False
    try:
        if int(json.loads(read_regular(folder / FORMAT_FILE))["format"]) > FORMAT:
            return False  # a newer version has made the store
    except (OSError, ValueError, KeyError, TypeError, OverflowError, RecursionError):
        pass
    try:
        with closing(
            sqlite3.connect((folder / DATABASE).absolute().as_uri() + "?mode=ro", uri=True)
        ) as database:
            rows = database.execute(
                "SELECT value FROM experiment_tags WHERE key = ?", (FORMAT_TAG,)
            ).fetchall()
    except (sqlite3.Error, ValueError):
        return False
    return bool(rows) and all(row[0] == str(FORMAT) for row in rows)
