"""Exported records: a folder of Parquet files that can be read like a store, and never written to.

The folder holds `export.json` (format and maker), the tables `studies`, `trials`, `history` and `curves` as Parquet,
and optionally `weights/` with one file per trial. Anybody may have made the folder, so damage is reported in one line.
"""

import json
import os
import re
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from typing_extensions import override

from loopscale.core.temporary import lasting_folder
from loopscale.records.deferred_imports import pa, parquet
from loopscale.records.model import STUDY, STUDY_FILE, STUDY_JSON, WEIGHTS, Run, StoreError
from loopscale.records.stores.base import Curves, Point, Store, StoreKind
from loopscale.records.tables import CURVES, with_later_columns
from loopscale.training.checkpoint_stores import open_checkpoint_store
from loopscale.training.storage import CheckpointStore

FORMAT = 1
ABOUT = "export.json"
"""The file that marks an export."""
WEIGHTS_FOLDER = "weights"
"""Folder of an export with the weights of its trials, each in a file with the trial's key as name."""
AGAIN = "export again"
EXPORTED_COLUMNS = {
    "studies": {"text": "study tags settings", "number": "start", "bytes": f"{STUDY_JSON} {STUDY_FILE}"},
    "trials": {"text": "study tags settings trial run status metrics", "number": "start end"},
    "history": {"text": "run metric", "integer": "step", "number": "value"},
    "curves": {"text": "run trial", "integer": "loop point", "number": "error sem raw"},
}
"""The required columns of every table, by the kind of their values. A column without any value has no kind."""
MALFORMED_EXPORT = (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError, OSError)
"""Exceptions from reading damaged files. A damaged Parquet file raises a ValueError or an OSError."""


class ExportedStore(Store):
    """The records of one export."""

    read_only = True

    def __init__(self, folder: Path, storage: Path, checkpoints: CheckpointStore | None = None) -> None:
        check_export(folder)
        super().__init__(str(folder), storage, checkpoints or open_checkpoint_store(folder / WEIGHTS_FOLDER))
        self.folder = folder

    @override
    def missing_weights(self, trial: str, study: str) -> StoreError:
        remedy = f"`loopscale export {study} --weights` takes those that were kept along"
        return StoreError(f"the weights of trial {trial} are not in {self.name}", remedy)

    @override
    def experiments(self) -> dict[str, str]:
        with damage_as_error(self.folder):
            return {str(row["study"]): str(row["study"]) for row in self.rows("studies")}

    @override
    def runs(self, experiment: str, params: bool = True) -> list[Run]:
        with damage_as_error(self.folder):
            parents = [_parent(row) for row in self.rows("studies") if row["study"] == experiment]
            trials = [_trial(row) for row in self.rows("trials", [("study", "=", experiment)])]
            by_id = {run.id: run for run in trials}
            in_order = sorted(self._points(list(by_id)), key=lambda point: point[1])
            for run, _, metric, value in in_order:  # the last value remains
                by_id[run].metrics[metric] = value
        return parents + sorted(by_id.values(), key=lambda run: (run.start, run.id))

    @override
    def histories(self, runs: Sequence[Run]) -> Iterator[Point]:
        with damage_as_error(self.folder):
            yield from self._points([run.id for run in runs])

    @override
    def read_curves(self, runs: Sequence[Run]) -> Curves:
        """The curves of all runs. A damaged file of an export is an error: the export can be made again."""
        return Curves(self._curves(runs), {})

    def _curves(self, runs: Sequence[Run]) -> "pa.Table":
        schema = pa.schema(CURVES)
        with damage_as_error(self.folder):
            curves = self.table("curves", [("run", "in", [run.id for run in runs])]) if runs else None
            if curves is None:
                return schema.empty_table()
            return with_later_columns(curves).select(schema.names).cast(schema)

    @override
    def artifact(self, run: str, path: str, folder: Path | None = None) -> Path | None:
        """A study's file or description, written into `folder`; or a trial's weights."""
        with damage_as_error(self.folder):
            if path == WEIGHTS:
                rows = self.rows("trials", [("run", "=", run)])
                file = self.weights(rows[0]["trial"]) if rows else None
                return file if file and file.is_file() else None
            study = next((row for row in self.rows("studies") if _parent_id(row["study"]) == run), None)
            content = study.get(path) if study else None
            if content is None:
                return None
            file = (folder or lasting_folder("export")) / path
            file.write_bytes(content)
            return file

    def weights(self, trial: str) -> Path:
        """The path for a trial's weights, whether they exist or not. Raises ValueError for a malformed key."""
        if not re.fullmatch(r"[\w-]+", trial):  # a key is also the name of a file
            raise ValueError(f"{trial[:80]!r} is no trial's key")
        file = self.folder / WEIGHTS_FOLDER / f"{trial}.safetensors"
        require_file(file)
        if file.parent.is_symlink():
            raise StoreError(f"{file.parent} is a link", "put the folder itself there, or export again")
        return file

    def rows(self, name: str, filters: list[Any] | None = None) -> list[dict[str, Any]]:
        """The rows of one table as they were exported; none if the table was not exported."""
        table = self.table(name, filters)
        return table.to_pylist() if table is not None else []

    def _points(self, runs: list[str]) -> Iterator[Point]:
        history = self.table("history", [("run", "in", runs)]) if runs else None
        if history is not None:
            columns = (history[name].to_pylist() for name in ("run", "step", "metric", "value"))
            yield from zip(*columns, strict=True)

    def table(self, name: str, filters: list[Any] | None = None) -> "pa.Table | None":
        """One table as the table was exported; None if the table was not exported or has no columns."""
        file = self.folder / f"{name}.parquet"
        if not file.exists() or not parquet.read_schema(file).names:
            return None
        return parquet.read_table(file, filters=filters)


@contextmanager
def damage_as_error(folder: Path) -> Iterator[None]:
    """Raise StoreError for every exception that damaged files cause."""
    try:
        yield
    except MALFORMED_EXPORT as problem:
        what = f"{folder} holds something else than exported records ({type(problem).__name__}: {str(problem)[:200]})"
        raise StoreError(what, AGAIN) from problem


def require_file(file: Path) -> None:
    """StoreError for anything at this path but a regular file. An absent file is none.

    A link may name any file of this machine, and a pipe has no end.
    """
    if os.path.lexists(file) and not stat.S_ISREG(file.lstat().st_mode):
        raise StoreError(
            f"{file} is a link, a folder, a pipe or a device", "put the file itself there, or export again"
        )


def check_export(folder: Path) -> None:
    """StoreError unless `folder` holds a complete export in a format that this version reads."""
    for name in (ABOUT, *(f"{table}.parquet" for table in EXPORTED_COLUMNS)):
        require_file(folder / name)
    try:
        about = json.loads((folder / ABOUT).read_text())
        version, made_by = int(about["format"]), about.get("made_by", "of some version")
        trials = int(about["trials"]) if version <= FORMAT else 0
    except (FileNotFoundError, NotADirectoryError):
        raise StoreError(f"{folder} holds no exported records", "`loopscale export` makes them") from None
    except MALFORMED_EXPORT as problem:
        raise StoreError(f"{folder / ABOUT} is damaged or unreadable", AGAIN) from problem
    if version > FORMAT:
        what = f"{folder} was exported by loopscale {made_by} in format {version}"
        raise StoreError(f"{what}, this version reads up to {FORMAT}", "install a newer loopscale")
    for name, columns in EXPORTED_COLUMNS.items():
        filled = name in ("studies", "trials") and trials > 0
        _check_table(folder / f"{name}.parquet", columns, expected=trials > 0, filled=filled)


def _check_table(file: Path, columns: dict[str, str], expected: bool, filled: bool) -> None:
    """StoreError unless the file has the columns, which are given by the kind of their values.

    An export without trials may lack the file. A table that is not `filled` may have no rows, and then no columns.
    """
    if not file.exists() and not expected:
        return
    try:
        schema = parquet.read_schema(file)
    except (OSError, pa.ArrowException) as problem:
        raise StoreError(f"{file} is missing or damaged ({problem})", AGAIN) from problem
    if not schema.names and not filled:
        return
    kinds = {name: kind for kind, names in columns.items() for name in names.split()}
    if missing := kinds.keys() - set(schema.names):
        raise StoreError(f"{file} has no {', '.join(sorted(missing))}", AGAIN)
    for name, kind in kinds.items():
        actual = schema.field(name).type
        if not pa.types.is_null(actual) and not _is_kind(actual, kind):
            raise StoreError(f"{file} holds {actual} where {name} should be {kind}", AGAIN)


def _is_kind(column: "pa.DataType", kind: str) -> bool:
    types = pa.types
    allowed = {
        "text": (types.is_string, types.is_large_string),
        "bytes": (types.is_binary, types.is_large_binary),
        "integer": (types.is_integer,),
        "number": (types.is_integer, types.is_floating),
    }
    return any(is_type(column) for is_type in allowed[kind])


def _trial(row: dict[str, Any]) -> Run:
    tags = _texts(row["tags"]) | {"trial": str(row["trial"])}
    metrics = {str(name): float(value) for name, value in json.loads(row["metrics"]).items()}
    run, status, start, end = row["run"], row["status"], int(row["start"]), int(row["end"])
    return Run(run, status, start, end, tags, _texts(row["settings"]), metrics, str(row["study"]))


def _parent(row: dict[str, Any]) -> Run:
    """The parent run. An exported study counts as finished."""
    study, tags = str(row["study"]), _texts(row["tags"]) | {"trial": STUDY, "role": STUDY}
    status, start, end = row.get("status") or "FINISHED", int(row["start"]), int(row.get("end") or 0)
    return Run(_parent_id(study), status, start, end, tags, _texts(row["settings"]), experiment=study)


def _parent_id(study: str) -> str:
    return f"study {study}"


def _texts(document: str) -> dict[str, str]:
    return {str(name): str(text) for name, text in json.loads(document).items()}


class ExportKind(StoreKind, kind="exported"):
    """A folder that `loopscale export` wrote."""

    marker = ABOUT

    @override
    def check(self, place: Path | str, create: bool) -> None:
        if create:
            remedy = f"give another --store; `loopscale import {place}` takes them into it"
            raise StoreError(f"{place} holds exported records, which are only read", remedy)

    @override
    def open(
        self, place: Path | str, storage: Path, checkpoints: CheckpointStore | None, create: bool
    ) -> Store:
        return ExportedStore(Path(place), storage, checkpoints)

    @override
    def example(self, folder: Path, exported: Path) -> str:
        return str(exported)
