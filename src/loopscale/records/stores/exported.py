"""Exported records: a folder of Parquet that is asked as a store is, and that nothing is written to.

It holds `export.json` (format and maker), `studies`, `trials`, `history` and `curves` as Parquet, and `weights/` with a
file for every trial whose weights were wanted too. It may come from anybody: what is wrong with it is told in one line.
"""

import json
import re
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from typing_extensions import override

from loopscale.records.model import tables
from loopscale.records.model.errors import StoreError
from loopscale.records.model.note import STUDY, STUDY_FILE, STUDY_JSON, WEIGHTS
from loopscale.records.model.run import Run
from loopscale.records.stores.sources import Point, Source

if TYPE_CHECKING:
    import pyarrow as pa

FORMAT, ABOUT = 1, "export.json"
WEIGHTS_FOLDER = "weights"
"""Of an export: the weights of its trials, each under the trial's key."""
AGAIN = "export again"
_NAMED = {"study": "text", "tags": "text", "settings": "text", "start": "number"}
COLUMNS = {
    "studies": {**_NAMED, STUDY_JSON: "bytes", STUDY_FILE: "bytes"},
    "trials": {
        **_NAMED, "trial": "text", "run": "text", "status": "text", "end": "number", "metrics": "text",
    },
    "history": {"run": "text", "step": "integer", "metric": "text", "value": "number"},
    "curves": {
        "run": "text", "trial": "text", "loop": "integer", "point": "integer",
        "error": "number", "sem": "number", "raw": "number",
    },
}  # fmt: skip
"""What must be in each table of an export, and as what; a column that is all empty has no kind."""
MALFORMED = (ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError, OSError)
"""What reading somebody else's export raises."""


def is_export(folder: Path) -> bool:
    """Whether a folder says of itself that it is one."""
    try:
        return (folder / ABOUT).is_file()
    except (OSError, ValueError):
        return False


class Exported(Source):
    """The records of one export. Every method raises StoreError for what `export` has not written."""

    def __init__(self, folder: Path) -> None:
        check(folder)
        self.folder = folder

    @override
    def studies(self) -> dict[str, str]:
        with told(self.folder):
            return {str(row["study"]): str(row["study"]) for row in self.rows("studies")}

    @override
    def runs(self, experiment: str, params: bool = True) -> list[Run]:
        with told(self.folder):
            parents = [_parent(row) for row in self.rows("studies") if row["study"] == experiment]
            found = [_run(row) for row in self.rows("trials", [("study", "=", experiment)])]
            trials = {run.id: run for run in found}
            ordered = sorted(self._points(list(trials)), key=lambda point: point[1])
            for run, _, metric, value in ordered:  # the last one holds
                trials[run].metrics[metric] = value
        return parents + sorted(trials.values(), key=lambda run: (run.start, run.id))

    @override
    def histories(self, runs: Sequence[Run]) -> Iterator[Point]:
        with told(self.folder):
            yield from self._points([run.id for run in runs])

    def curves(self, runs: Sequence[Run]) -> "pa.Table":
        """The curves of the runs, as `tables.CURVES` has them."""
        shape = tables.schema(tables.CURVES)
        with told(self.folder):
            found = self._table("curves", [("run", "in", [run.id for run in runs])] if runs else None)
            if found is None or not runs:
                return shape.empty_table()
            return tables.completed(found).select(shape.names).cast(shape)

    def artifact(self, run: str, path: str, folder: Path | None = None) -> Path | None:
        """A study's file or description, or a trial's weights, as a local file (in `folder`, if it is not one)."""
        with told(self.folder):
            if path == WEIGHTS:
                rows = self.rows("trials", [("run", "=", run)])
                file = self.weights(rows[0]["trial"]) if rows else None
                return file if file and file.is_file() else None
            study = next((row for row in self.rows("studies") if _parent_id(row["study"]) == run), None)
            content = study.get(path) if study else None
            if content is None:
                return None
            file = (folder or Path(tempfile.mkdtemp(prefix="loopscale-"))) / path
            file.write_bytes(content)
            return file

    def weights(self, trial: str) -> Path:
        """Where a trial's weights would lie. Raises ValueError for what is no key."""
        if not re.fullmatch(r"[\w-]+", trial):  # a key is also the name of a file
            raise ValueError(f"{trial[:80]!r} is no trial's key")
        return self.folder / WEIGHTS_FOLDER / f"{trial}.safetensors"

    def rows(self, name: str, filters: list[Any] | None = None) -> list[dict[str, Any]]:
        """The rows of one table as they were exported; none where it was not."""
        found = self._table(name, filters)
        return found.to_pylist() if found is not None else []

    def _points(self, runs: list[str]) -> Iterator[Point]:
        found = self._table("history", [("run", "in", runs)]) if runs else None
        if found is not None:
            columns = (found[name].to_pylist() for name in ("run", "step", "metric", "value"))
            yield from zip(*columns, strict=True)

    def _table(self, name: str, filters: list[Any] | None = None) -> "pa.Table | None":
        from pyarrow import parquet

        file = self.folder / f"{name}.parquet"
        if not file.exists() or not parquet.read_schema(file).names:
            return None
        return parquet.read_table(file, filters=filters)


@contextmanager
def told(folder: Path) -> Iterator[None]:
    """Whatever reading a stranger's files raises, as one line. A bad Parquet file raises a ValueError or an OSError."""
    try:
        yield
    except MALFORMED as problem:
        what = f"{folder} holds something else than exported records ({type(problem).__name__}: {str(problem)[:200]})"
        raise StoreError(what, AGAIN) from problem


def check(folder: Path) -> None:
    """StoreError unless `folder` holds what `export` wrote, whole, in a format that this version reads."""
    try:
        about = json.loads((folder / ABOUT).read_text())
        version, made_by = int(about["format"]), about.get("made_by", "of some version")
        trials = int(about["trials"]) if version <= FORMAT else 0
    except MALFORMED:
        raise StoreError(f"{folder} holds no exported records", "`loopscale export` makes them") from None
    if version > FORMAT:
        what = f"{folder} was exported by loopscale {made_by} in format {version}"
        raise StoreError(f"{what}, this version reads up to {FORMAT}", "install a newer loopscale")
    for name, columns in COLUMNS.items():
        needed = name in ("studies", "trials") and trials > 0
        _check_table(folder / f"{name}.parquet", columns, needed)


def _check_table(file: Path, columns: dict[str, str], needed: bool) -> None:
    import pyarrow as pa
    from pyarrow import parquet

    if not file.exists() and not needed:
        return
    try:
        shape = parquet.read_schema(file)
    except (OSError, pa.ArrowException) as problem:
        raise StoreError(f"{file} is missing or damaged ({problem})", AGAIN) from problem
    if not shape.names and not needed:  # a table without rows has no columns either
        return
    if missing := columns.keys() - set(shape.names):
        raise StoreError(f"{file} has no {', '.join(sorted(missing))}", AGAIN)
    for name, kind in columns.items():
        found = shape.field(name).type
        if not pa.types.is_null(found) and kind not in _kinds(found):
            raise StoreError(f"{file} holds {found} where {name} should be {kind}", AGAIN)


def _kinds(found: "pa.DataType") -> set[str]:
    import pyarrow as pa

    kinds = {
        "text": pa.types.is_string(found) or pa.types.is_large_string(found),
        "bytes": pa.types.is_binary(found) or pa.types.is_large_binary(found),
        "integer": pa.types.is_integer(found),
        "number": pa.types.is_integer(found) or pa.types.is_floating(found),
    }
    return {kind for kind, is_one in kinds.items() if is_one}


def _run(row: dict[str, Any]) -> Run:
    tags, settings = _texts(row["tags"]), _texts(row["settings"])
    once = {str(name): float(value) for name, value in json.loads(row["metrics"]).items()}
    return Run(
        row["run"], row["status"], int(row["start"]), int(row["end"]), tags | {"trial": str(row["trial"])},
        settings, once, str(row["study"]),
    )  # fmt: skip


def _parent(row: dict[str, Any]) -> Run:
    """The study's own run. What was exported counts as having ended."""
    tags = _texts(row["tags"]) | {"trial": STUDY, "role": STUDY}
    return Run(
        _parent_id(row["study"]), row.get("status") or "FINISHED", int(row["start"]), int(row.get("end") or 0),
        tags, _texts(row["settings"]), {}, str(row["study"]),
    )  # fmt: skip


def _parent_id(study: str) -> str:
    return f"study {study}"


def _texts(said: str) -> dict[str, str]:
    return {str(name): str(text) for name, text in json.loads(said).items()}
