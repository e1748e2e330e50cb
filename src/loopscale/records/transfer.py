"""Carry finished records from one store to another as Parquet files, or write their tables for spreadsheets and pandas.

Weights are carried only on request.
`stores.exported` describes the folder. An import that is repeated changes nothing. An imported trial counts as
finished and is not trained again. An export does not tell the folders of the machine that made it.
"""

import datetime
import json
import re
import shutil
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Literal

import loopscale
from loopscale.records.decisions import decision_tags
from loopscale.records.deferred_imports import csv, dataset, pa, parquet
from loopscale.records.mirror import Mirror
from loopscale.records.model import (
    CURVE,
    OVER,
    STUDY,
    STUDY_FILE,
    STUDY_JSON,
    WEIGHTS,
    Note,
    Run,
    StoreError,
    decode,
    parent_among,
)
from loopscale.records.predictions import prediction_tags
from loopscale.records.stores.base import Store, unwritable
from loopscale.records.stores.exported import ABOUT, FORMAT, WEIGHTS_FOLDER, ExportedStore, damage_as_error
from loopscale.records.stores.folder import FolderStore
from loopscale.records.study_records import recorded_studies, recorded_trials
from loopscale.records.tables import TABLES, parquet_bytes
from loopscale.records.writing.mlflow_writer import FORGET, MlflowWriter


@dataclass(frozen=True)
class ImportCounts:
    """Numbers of trials: newly imported, and already in the store."""

    new: int
    present: int


@dataclass(frozen=True)
class ExportCounts:
    """Numbers of exported trials and of exported weights."""

    trials: int
    weights: int


def export_records(
    store: Store, study: str | None, folder: str | Path, weights: bool = False
) -> ExportCounts:
    """Write the finished records of one study, or of all studies, into a folder. Raises StoreError.

    With `weights`, write also the weights that the store has kept.
    """
    folder = Path(folder)
    names = recorded_studies(store, study)
    if FolderStore.lies_in(folder):
        raise StoreError(f"{folder} is a store", "give a folder of its own")
    studies, trials, histories, curves, with_weights = [], [], [], [], {}
    for name in names:
        runs = store.runs(store.require_experiment(name))
        over = [run for run in runs if run.is_trial and run.tags.get("outcome") in OVER]
        studies.append(_study_row(store, name, parent_among(runs)))
        trials += [_trial_row(name, run) for run in over]
        histories.append(store.history_table(over))
        curves.append(store.curve_table(over))
        with_weights |= {run.tags["trial"]: run.id for run in over if run.tags.get("weights") != "dropped"}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _write(folder / "studies.parquet", pa.Table.from_pylist(studies))
        _write(folder / "trials.parquet", pa.Table.from_pylist(trials))
        for name, parts in (("history", histories), ("curves", curves)):
            if parts:
                _write(folder / f"{name}.parquet", pa.concat_tables(parts))
        # An earlier export into the same folder may have left weights.
        shutil.rmtree(folder / WEIGHTS_FOLDER, ignore_errors=True)
        copied = _copy_weights(store, with_weights, folder / WEIGHTS_FOLDER) if weights else 0
        about = {"format": FORMAT, "made_by": loopscale.__version__, "trials": len(trials)}
        (folder / ABOUT).write_text(json.dumps(about) + "\n")
    except OSError as problem:
        raise unwritable(folder, problem, "give another folder") from problem
    return ExportCounts(len(trials), copied)


def _copy_weights(store: Store, runs: dict[str, str], folder: Path) -> int:
    """Copy the recorded weights of the trials, and return their number. A study that has ended records weights."""
    copied = 0
    for trial, run in runs.items():
        with TemporaryDirectory(prefix="loopscale-") as temporary:
            if file := store.artifact(run, WEIGHTS, Path(temporary)):
                folder.mkdir(exist_ok=True)
                shutil.copyfile(file, folder / f"{trial}.safetensors")
                copied += 1
    return copied


def write_sheets(
    store: Store, study: str | None, folder: Path, form: Literal["csv", "parquet"]
) -> dict[str, int]:
    """Write every table of one study, or of all studies, and a table `columns` with their descriptions.

    Unfinished trials are included. A missing value is an empty cell. Returns the number of rows by table. Raises
    StoreError if the study has no records or the folder cannot be written.
    """
    mirror = Mirror(store)
    names = recorded_studies(store, study)
    mirror.sync(study)
    sheets = {}
    of_studies = f"study IN ({','.join('?' * len(names))})"
    of_trials = f"trial IN (SELECT trial FROM trials WHERE {of_studies})"
    with mirror.database() as database:
        for table, (_, columns) in TABLES.items():
            condition = of_studies if "study" in columns else of_trials
            sql = f"SELECT * FROM {table} WHERE {condition} ORDER BY ALL"
            sheets[table] = database.sql(sql, params=names).to_arrow_table()
    described = [
        {"table": table, "column": name, "unit": column.unit, "about": column.about}
        for table, (_, columns) in TABLES.items()
        for name, column in columns.items()
    ]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, sheet in {**sheets, "columns": pa.Table.from_pylist(described)}.items():
            _write(folder / f"{name}.{form}", sheet)
    except OSError as problem:
        raise unwritable(folder, problem, "give another folder") from problem
    return {name: sheet.num_rows for name, sheet in sheets.items()}


def import_records(store: Store, folder: str | Path) -> ImportCounts:
    """Record an export, except for trials that are finished in the store. The caller holds the leases."""
    folder = Path(folder)
    exported = ExportedStore(folder, folder)
    with damage_as_error(folder):
        return _import(store, exported)


def _import(store: Store, exported: ExportedStore) -> ImportCounts:
    trials, histories = defaultdict(list), defaultdict(dict)
    for row in exported.rows("trials"):
        trials[row["study"]].append(row)
    for row in exported.rows("history"):
        histories[row["run"]].setdefault(row["step"], {})[row["metric"]] = row["value"]
    curves = _curve_files(exported.folder / "curves.parquet")
    new = present = 0
    for study in exported.rows("studies"):
        name = study["study"]
        known = {record.key: record for record in recorded_trials(store, name)}
        with MlflowWriter(store, name, {key: record.run for key, record in known.items()}) as writer:
            parent = store.parent_run(name)
            if parent is None:
                writer.write(_parent_note(study))
            else:
                if store.shared:
                    writer.write(FORGET)  # imported runs end before the runs that the file holds
                if missing := _missing_decisions(study, parent):
                    writer.write(Note(STUDY, tags=missing, at=study["start"]))
            for row in trials[name]:
                record = known.get(row["trial"])
                if record and record.outcome in OVER:
                    present += 1
                    continue
                new += 1
                files = ((CURVE, curves[row["run"]]),) if row["run"] in curves else ()
                if (weights := exported.weights(row["trial"])).is_file():
                    files = (*files, (WEIGHTS, weights))
                for note in _notes(row, histories[row["run"]], files, record.step if record else 0):
                    writer.write(note)
            _finish(writer, store)
    return ImportCounts(new, present)


def _finish(writer: MlflowWriter, store: Store) -> None:
    if not writer.flush(600):
        raise StoreError(f"{store.name} went away, {writer.backlog} notes are not written", "import again")
    if writer.refused:
        what = f"{store.name} refused a record ({writer.refused[0][1]})"
        raise StoreError(what, "import into an empty store")


def _trial_row(study: str, run: Run) -> dict[str, Any]:
    once = {name: value for name, value in run.metrics.items() if name not in {*run.curves, *run.params}}
    return _run_row(study, run) | {"trial": run.tags["trial"], "run": run.id, "metrics": json.dumps(once)}


def _study_row(store: Store, study: str, parent: Run | None) -> dict[str, Any]:
    files = {name: parent and store.read_artifact(parent.id, name) for name in (STUDY_JSON, STUDY_FILE)}
    return _run_row(study, parent or Run("", "", 0, 0)) | files


def _run_row(study: str, run: Run) -> dict[str, Any]:
    times = {"status": run.status or None, "start": run.start, "end": run.end or run.start}
    texts = {"tags": json.dumps(_own_tags(run)), "settings": json.dumps(run.params)}
    return {"study": study} | times | texts


def _own_tags(run: Run) -> dict[str, str]:
    """Tags without MLflow's tags, and without folders of the machine that wrote them."""
    return {name: _without_folders(text) for name, text in run.tags.items() if not name.startswith("mlflow.")}


PATH = re.compile(r"""(?<![\w.~/:\\-])(?:file://)?~?(?:/[^\s/"'`,;:()\[\]{}<>|=]+){2,}/?""")
"""An absolute path of two or more parts. A URL does not match, because a colon stands before its slashes."""
QUOTED_PATH = re.compile(r"""(["'`])(~?(?:/[^/"'`\n]+){2,}/?)\1""")
"""An absolute path in quotes, which may contain spaces."""


def _without_folders(text: str) -> str:
    """Shorten every path: it begins at the folder of studies or of a package, else only the last part remains."""
    text = QUOTED_PATH.sub(lambda match: match[1] + _short(match[2]) + match[1], text)
    return PATH.sub(lambda match: _short(match[0]), text)


def _short(path: str) -> str:
    parts = [part for part in path.split("/") if part]
    at = [parts.index(folder) for folder in ("studies", "loopscale", "site-packages") if folder in parts[:-1]]
    return "/".join(parts[at[0] :] if at else parts[-1:])


def _parent_note(row: dict[str, Any]) -> Note:
    files = tuple((name, row[name]) for name in (STUDY_JSON, STUDY_FILE) if row[name] is not None)
    settings = {name: decode(text) for name, text in json.loads(row["settings"]).items()}
    tags = json.loads(row["tags"]) | _imported_now()
    return Note(STUDY, params=settings, tags=tags, status="FINISHED", artifacts=files, at=row["start"])


def _missing_decisions(row: dict[str, Any], parent: Run) -> dict[str, str]:
    """The exported predictions and decisions that the store lacks. Nothing recorded is replaced."""
    tags = json.loads(row["tags"])
    exported = prediction_tags(tags) | decision_tags(tags)
    return {name: text for name, text in exported.items() if name not in parent.tags}


def _notes(
    row: dict[str, Any],
    history: dict[int, dict[str, float]],
    files: tuple[tuple[str, bytes | Path], ...],
    done: int,
) -> Iterator[Note]:
    """The notes of a trial. The outcome comes last, so that the next import completes an interrupted import."""
    key, once, tags = row["trial"], json.loads(row["metrics"]), json.loads(row["tags"])
    identity = {name: text for name, text in tags.items() if name != "outcome"} | _imported_now()
    settings = {name: decode(text) for name, text in json.loads(row["settings"]).items()}
    yield Note(key, params=settings, tags=identity, at=row["start"])
    for step in sorted(step for step in history if step > done or step == 0):
        yield Note(key, step, history[step], at=row["end"])
    final = {"outcome": tags["outcome"]}
    yield Note(key, int(once.get("step", 0)), once, {}, final, row["status"], files, at=row["end"])


def _imported_now() -> dict[str, str]:
    return {"imported": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")}


def _curve_files(file: Path) -> dict[str, bytes]:
    """Every run's curve as the artifact of a run."""
    if not file.exists():
        return {}
    curves = parquet.read_table(file)
    return {
        run: parquet_bytes(curves.filter(dataset.field("run") == run).drop_columns(["run", "trial"]))
        for run in curves["run"].unique().to_pylist()
    }


def _write(file: Path, table: "pa.Table") -> None:
    if file.suffix == ".csv":
        csv.write_csv(table, file)
    else:
        parquet.write_table(table, file, compression="zstd")
