"""Finished records as Parquet, to carry from one store to another: all but weights, which stay at home.

A folder holds `export.json` (format and maker), `studies`, `trials`, `history` and `curves` as Parquet. What
is brought in twice is there once; a trial that was brought in counts as finished and is not trained again.
"""

import datetime
import io
import json
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import loopscale
from loopscale.records import read
from loopscale.records.ended import FORGET
from loopscale.records.errors import StoreError
from loopscale.records.exported import ABOUT, FORMAT, Exported, told
from loopscale.records.notes import CURVE, OVER, STUDY, STUDY_FILE, STUDY_JSON, Note, decode
from loopscale.records.replica import curves_table, history_table
from loopscale.records.runs import Run
from loopscale.records.sources import source
from loopscale.records.store import Store
from loopscale.records.tables import is_trial
from loopscale.records.write import Writer

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class Imported:
    """How many trials were new, and how many were there already."""

    new: int
    present: int


def export(store: Store, study: str | None, folder: str | Path) -> int:
    """Write what is finished of one study, or of all, into a folder; how many trials that was."""
    import pyarrow as pa

    found, folder = source(store), Path(folder)
    studies = found.studies()
    if study is not None and study not in studies:
        known = ", ".join(studies) or "nothing"
        raise StoreError(f"no records of {study} in {store.name}", f"there are records of {known}")
    described, trials, histories, curves = [], [], [], []
    for name in [study] if study else studies:
        runs = found.runs(studies[name])
        over = [run for run in runs if is_trial(run) and run.tags.get("outcome") in OVER]
        described.append(_study(store, name, next((r for r in runs if r.tags.get("role") == STUDY), None)))
        trials += [_trial(name, run) for run in over]
        histories.append(history_table(found, over))
        curves.append(curves_table(store, over))
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _write(folder / "studies.parquet", pa.Table.from_pylist(described))
        _write(folder / "trials.parquet", pa.Table.from_pylist(trials))
        for name, parts in (("history", histories), ("curves", curves)):
            if parts:
                _write(folder / f"{name}.parquet", pa.concat_tables(parts))
        about = {"format": FORMAT, "made_by": loopscale.__version__, "trials": len(trials)}
        (folder / ABOUT).write_text(json.dumps(about) + "\n")
    except OSError as problem:
        raise StoreError(f"cannot write to {folder} ({problem.strerror})", "give another folder") from problem
    return len(trials)


def import_(store: Store, folder: str | Path) -> Imported:
    """Record what `export` wrote, but for what is finished here. Whoever calls holds the leases."""
    folder = Path(folder)
    found = Exported(folder)
    with told(folder):
        return _import(store, found)


def _import(store: Store, found: Exported) -> Imported:
    trials, histories = defaultdict(list), defaultdict(dict)
    for row in found.rows("trials"):
        trials[row["study"]].append(row)
    for row in found.rows("history"):
        histories[row["run"]].setdefault(row["step"], {})[row["metric"]] = row["value"]
    curves = _split(found.folder / "curves.parquet")
    new = present = 0
    for study in found.rows("studies"):
        name = study["study"]
        known = {record.key: record for record in read.load(store, name)}
        with Writer(store, name, {key: record.run for key, record in known.items()}) as writer:
            if read.parent(store, name) is None:
                writer.write(_parent_note(study))
            elif not store.root:
                writer.write(FORGET)  # what ended elsewhere ended when it did
            for row in trials[name]:
                record = known.get(row["trial"])
                if record and record.outcome in OVER:
                    present += 1
                    continue
                new += 1
                for note in _notes(
                    row, histories[row["run"]], curves.get(row["run"]), record.step if record else 0
                ):
                    writer.write(note)
            _finish(writer, store)
    return Imported(new, present)


def _finish(writer: Writer, store: Store) -> None:
    if not writer.flush(600):
        raise StoreError(f"{store.name} went away, {writer.backlog} notes are not written", "import again")
    if writer.refused:
        raise StoreError(
            f"{store.name} refused a record ({writer.refused[0][1]})", "import into an empty store"
        )


def _trial(study: str, run: Run) -> dict[str, Any]:
    once = {name: value for name, value in run.metrics.items() if name not in {*run.curves, *run.params}}
    return {
        "study": study, "trial": run.tags["trial"], "run": run.id, "status": run.status,
        "start": run.start, "end": run.end or run.start, "tags": json.dumps(_own(run.tags)),
        "settings": json.dumps(run.params), "metrics": json.dumps(once),
    }  # fmt: skip


def _study(store: Store, study: str, parent: Run | None) -> dict[str, Any]:
    files = {}
    for name in (STUDY_JSON, STUDY_FILE):
        file = parent and store.artifact(parent.id, name)
        files[name] = file.read_bytes() if file else None
    tags, params = (_own(parent.tags), parent.params) if parent else ({}, {})
    times = {"start": parent.start, "end": parent.end or parent.start} if parent else {"start": 0, "end": 0}
    return {"study": study, "tags": json.dumps(tags), "settings": json.dumps(params), **times, **files}


def _own(tags: dict[str, str]) -> dict[str, str]:
    return {name: text for name, text in tags.items() if not name.startswith("mlflow.")}


def _parent_note(row: dict[str, Any]) -> Note:
    files = tuple((name, row[name]) for name in (STUDY_JSON, STUDY_FILE) if row[name] is not None)
    settings = {name: decode(text) for name, text in json.loads(row["settings"]).items()}
    tags = json.loads(row["tags"]) | _imported()
    return Note(STUDY, params=settings, tags=tags, status="FINISHED", artifacts=files, at=row["start"])


def _notes(
    row: dict[str, Any], history: dict[int, dict[str, float]], curve: bytes | None, done: int
) -> Iterator[Note]:
    """The outcome comes last: an import that is cut short is taken up by the next."""
    key, once, tags = row["trial"], json.loads(row["metrics"]), json.loads(row["tags"])
    identity = {name: text for name, text in tags.items() if name != "outcome"} | _imported()
    settings = {name: decode(text) for name, text in json.loads(row["settings"]).items()}
    yield Note(key, params=settings, tags=identity, at=row["start"])
    for step in sorted(step for step in history if step > done or step == 0):
        yield Note(key, step, history[step], at=row["end"])
    files = ((CURVE, curve),) if curve else ()
    final = {"outcome": tags["outcome"]}
    yield Note(key, int(once.get("step", 0)), once, {}, final, row["status"], files, at=row["end"])


def _imported() -> dict[str, str]:
    return {"imported": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")}


def _split(file: Path) -> dict[str, bytes]:
    """Every run's curve as the file that it was."""
    from pyarrow import dataset, parquet

    if not file.exists():
        return {}
    table = parquet.read_table(file)
    curves = {}
    for run in table["run"].unique().to_pylist():
        buffer = io.BytesIO()
        parquet.write_table(table.filter(dataset.field("run") == run).drop_columns(["run", "trial"]), buffer)
        curves[run] = buffer.getvalue()
    return curves


def _write(file: Path, table: "pa.Table") -> None:
    from pyarrow import parquet

    parquet.write_table(table, file, compression="zstd")
