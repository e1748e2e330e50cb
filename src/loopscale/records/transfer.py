"""Finished records as Parquet, to carry from one store to another; weights only where they are asked for.

What the folder holds is said in `exported`. What is brought in twice is there once; a trial that was brought in counts
as finished and is not trained again. Nothing that leaves says where on its machine it lay.
"""

import datetime
import io
import json
import re
import shutil
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import loopscale
from loopscale.records import read
from loopscale.records.mirror.replica import curves_table, history_table
from loopscale.records.model.errors import NoRecords, StoreError
from loopscale.records.model.note import CURVE, OVER, STUDY, STUDY_FILE, STUDY_JSON, WEIGHTS, Note, decode
from loopscale.records.model.run import Run
from loopscale.records.model.tables import is_trial
from loopscale.records.stores.exported import ABOUT, FORMAT, WEIGHTS_FOLDER, Exported, told
from loopscale.records.stores.folder import DATABASE
from loopscale.records.stores.sources import source
from loopscale.records.stores.store import Store
from loopscale.records.writing.ended_runs import FORGET
from loopscale.records.writing.writer import Writer

if TYPE_CHECKING:
    import pyarrow as pa


@dataclass(frozen=True)
class Imported:
    """How many trials were new, and how many were there already."""

    new: int
    present: int


@dataclass(frozen=True)
class Written:
    """How many trials an export has, and of how many the weights."""

    trials: int
    weights: int


def export(store: Store, study: str | None, folder: str | Path, weights: bool = False) -> Written:
    """Write what is finished of one study, or of all, into a folder; the weights that were kept too, if asked for.

    Raises StoreError.
    """
    import pyarrow as pa

    found, folder = source(store), Path(folder)
    names = chosen(store, study)
    if (folder / DATABASE).exists():
        raise StoreError(f"{folder} is a store", "give a folder of its own")
    described, trials, histories, curves, runs = [], [], [], [], {}
    for name in names:
        everything = found.runs(names[name])
        over = [run for run in everything if is_trial(run) and run.tags.get("outcome") in OVER]
        described.append(
            _study(store, name, next((r for r in everything if r.tags.get("role") == STUDY), None))
        )
        trials += [_trial(name, run) for run in over]
        histories.append(history_table(found, over))
        curves.append(curves_table(store, over))
        runs |= {run.tags["trial"]: run.id for run in over if run.tags.get("weights") != "dropped"}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _write(folder / "studies.parquet", pa.Table.from_pylist(described))
        _write(folder / "trials.parquet", pa.Table.from_pylist(trials))
        for name, parts in (("history", histories), ("curves", curves)):
            if parts:
                _write(folder / f"{name}.parquet", pa.concat_tables(parts))
        shutil.rmtree(
            folder / WEIGHTS_FOLDER, ignore_errors=True
        )  # of an earlier export into the same folder
        kept = _write_weights(store, runs, folder / WEIGHTS_FOLDER) if weights else 0
        about = {"format": FORMAT, "made_by": loopscale.__version__, "trials": len(trials)}
        (folder / ABOUT).write_text(json.dumps(about) + "\n")
    except OSError as problem:
        raise StoreError(f"cannot write to {folder} ({problem.strerror})", "give another folder") from problem
    return Written(len(trials), kept)


def chosen(store: Store, study: str | None) -> dict[str, str]:
    """The experiment of one study, or of every one. Raises NoRecords."""
    studies = source(store).studies()
    if study is not None and study not in studies:
        known = ", ".join(studies) or "nothing"
        raise NoRecords(f"no records of {study} in {store.name}", f"there are records of {known}")
    return studies if study is None else {study: studies[study]}


def _write_weights(store: Store, runs: dict[str, str], folder: Path) -> int:
    """The weights of the trials that have any: those in the records, which a study that has ended keeps."""
    kept = 0
    for trial, run in runs.items():
        with TemporaryDirectory(prefix="loopscale-") as place:
            if file := store.artifact(run, WEIGHTS, Path(place)):
                folder.mkdir(exist_ok=True)
                shutil.copyfile(file, folder / f"{trial}.safetensors")
                kept += 1
    return kept


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
                files = ((CURVE, curves[row["run"]]),) if row["run"] in curves else ()
                if (weights := found.weights(row["trial"])).is_file():
                    files = (*files, (WEIGHTS, weights))
                for note in _notes(row, histories[row["run"]], files, record.step if record else 0):
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
    files: dict[str, bytes | None] = {STUDY_JSON: None, STUDY_FILE: None}
    with TemporaryDirectory(prefix="loopscale-") as place:
        for name in files if parent else ():
            file = parent and store.artifact(parent.id, name, Path(place))
            files[name] = file.read_bytes() if file else None
    tags, params, status = (_own(parent.tags), parent.params, parent.status) if parent else ({}, {}, None)
    times = {"start": parent.start, "end": parent.end or parent.start} if parent else {"start": 0, "end": 0}
    about = {"study": study, "tags": json.dumps(tags), "settings": json.dumps(params), "status": status}
    return about | times | files


def _own(tags: dict[str, str]) -> dict[str, str]:
    """Tags of ours, without the folders of the machine that wrote them."""
    return {name: _placeless(text) for name, text in tags.items() if not name.startswith("mlflow.")}


PLACE = re.compile(r"""(?<![\w.~/:\\-])(?:file://)?~?(?:/[^\s/"'`,;:()\[\]{}<>|=]+){2,}/?""")
"""A folder or file by its whole path: what has two parts or more. An address has a colon before its slashes."""
QUOTED = re.compile(r"""(["'`])(~?(?:/[^/"'`\n]+){2,}/?)\1""")
"""The same in quotes, where it may hold spaces."""


def _placeless(text: str) -> str:
    """With paths from where a study's or a package's folder begins, else by their last part alone."""
    text = QUOTED.sub(lambda found: found[1] + _short(found[2]) + found[1], text)
    return PLACE.sub(lambda found: _short(found[0]), text)


def _short(path: str) -> str:
    parts = [part for part in path.split("/") if part]
    at = [parts.index(folder) for folder in ("studies", "loopscale", "site-packages") if folder in parts[:-1]]
    return "/".join(parts[at[0] :] if at else parts[-1:])


def _parent_note(row: dict[str, Any]) -> Note:
    files = tuple((name, row[name]) for name in (STUDY_JSON, STUDY_FILE) if row[name] is not None)
    settings = {name: decode(text) for name, text in json.loads(row["settings"]).items()}
    tags = json.loads(row["tags"]) | _imported()
    return Note(STUDY, params=settings, tags=tags, status="FINISHED", artifacts=files, at=row["start"])


def _notes(
    row: dict[str, Any],
    history: dict[int, dict[str, float]],
    files: tuple[tuple[str, bytes | Path], ...],
    done: int,
) -> Iterator[Note]:
    """The outcome comes last: an import that is cut short is taken up by the next."""
    key, once, tags = row["trial"], json.loads(row["metrics"]), json.loads(row["tags"])
    identity = {name: text for name, text in tags.items() if name != "outcome"} | _imported()
    settings = {name: decode(text) for name, text in json.loads(row["settings"]).items()}
    yield Note(key, params=settings, tags=identity, at=row["start"])
    for step in sorted(step for step in history if step > done or step == 0):
        yield Note(key, step, history[step], at=row["end"])
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
