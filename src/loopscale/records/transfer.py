"""Carry finished records from one store to another as Parquet files, or write their tables for spreadsheets and pandas.

Weights are carried only on request.
`stores.exported` describes the folder. An import that is repeated changes nothing. An imported trial counts as
finished and is not trained again. An export does not tell the folders of the machine that made it.
"""

import datetime
import json
import os
import re
import shutil
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import loopscale
from loopscale.core.output_files import open_output, write_output
from loopscale.core.temporary import temporary_folder
from loopscale.records.deferred_imports import csv, dataset, pa, parquet
from loopscale.records.exported_rows import (
    check_curves,
    check_name,
    check_owners,
    check_study,
    gather_history,
)
from loopscale.records.mirror import Mirror
from loopscale.records.model import (
    CURVE,
    DECISION,
    OVER,
    PREDICTION,
    STATUS,
    STUDY,
    STUDY_FILE,
    STUDY_JSON,
    WEIGHTS,
    Note,
    Run,
    StoreError,
    decode,
    parent_among,
    safe_tags,
    tags_below,
)
from loopscale.records.stores.base import Store, unwritable
from loopscale.records.stores.exported import (
    ABOUT,
    AGAIN,
    FORMAT,
    WEIGHTS_FOLDER,
    ExportedStore,
    damage_as_error,
)
from loopscale.records.stores.folder import require_outside_stores
from loopscale.records.study_records import recorded_studies, recorded_trials
from loopscale.records.tables import TABLES, parquet_bytes
from loopscale.records.writing.mlflow_writer import MlflowWriter
from loopscale.records.writing.run_account import FORGET


@dataclass(frozen=True)
class ImportCounts:
    """Numbers of trials: newly imported, already in the store, and of the latter those that got a new curve."""

    new: int
    present: int
    mended: int = 0


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
    require_outside_stores(folder, "a folder")
    if isinstance(store, ExportedStore) and folder.exists() and folder.samefile(store.folder):
        # The export of one study would replace the others, and an export without weights would delete all weights.
        raise StoreError(f"{folder} is the store itself", "give another folder")
    if not (folder / ABOUT).exists():
        tables = [folder / f"{name}.parquet" for name in ("studies", "trials", "history", "curves")]
        _require_free(folder, [table.name for table in tables if not _is_table_of_export(table)])
    studies, trials, histories, curves, with_weights = [], [], [], [], {}
    for name in names:
        runs = store.runs(store.require_experiment(name))
        over = [run for run in runs if run.is_trial and run.tags.get("outcome") in OVER]
        studies.append(_study_row(store, name, parent_among(runs)))
        trials += [_trial_row(name, run) for run in over]
        histories.append(store.history_table(over))
        read = store.read_curves(over)
        if read.damaged:
            remedy = f"`loopscale run {name}` makes them again"
            store.warn(f"{len(read.damaged):,} curves of {name} are damaged and not exported; {remedy}")
        curves.append(read.table)
        with_weights |= {run.tags["trial"]: run.id for run in over if run.tags.get("weights") != "dropped"}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _write(folder / "studies.parquet", pa.Table.from_pylist(studies))
        _write(folder / "trials.parquet", pa.Table.from_pylist(trials))
        for name, parts in (("history", histories), ("curves", curves)):
            if parts:
                _write(folder / f"{name}.parquet", pa.concat_tables(parts))
        _delete_weights(folder / WEIGHTS_FOLDER)
        copied = _copy_weights(store, with_weights, folder / WEIGHTS_FOLDER) if weights else 0
        about = {"format": FORMAT, "made_by": loopscale.__version__, "trials": len(trials)}
        write_output(folder / ABOUT, f"{json.dumps(about)}\n".encode())
    except OSError as problem:
        raise unwritable(folder, problem, "give another folder") from problem
    return ExportCounts(len(trials), copied)


def _delete_weights(folder: Path) -> None:
    """Delete the weights that an earlier export has left in the folder, and no other file."""
    for file in folder.glob("*.safetensors"):
        if file.is_symlink() or file.is_file():
            file.unlink()
    with suppress(OSError):  # the folder holds a user's own files, or there is none
        folder.rmdir()


def _copy_weights(store: Store, runs: dict[str, str], folder: Path) -> int:
    """Copy the recorded weights of the trials, and return their number. A study that has ended records weights."""
    copied = 0
    for trial, run in runs.items():
        with temporary_folder() as temporary:
            if file := store.artifact(run, WEIGHTS, temporary):
                folder.mkdir(exist_ok=True)
                with file.open("rb") as weights, open_output(folder / f"{trial}.safetensors") as stream:
                    shutil.copyfileobj(weights, stream)
                copied += 1
    return copied


def write_sheets(
    store: Store, study: str | None, folder: Path, form: Literal["csv", "parquet"]
) -> dict[str, int]:
    """Write every table of one study, or of all studies, and a table `columns` with their descriptions.

    Unfinished trials are included. A missing value is an empty cell. Returns the number of rows by table. Raises
    StoreError if the study has no records, or if the folder cannot be written or holds records.
    """
    mirror = Mirror(store)
    names = recorded_studies(store, study)
    require_outside_stores(folder, "a folder")
    if form == "parquet" and os.path.exists(folder / ABOUT):  # its tables have the same names
        raise StoreError(f"{folder} holds exported records", "give a folder of its own")
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
    written = {"columns": pa.Table.from_pylist(described), **sheets}
    if not (folder / f"columns.{form}").exists():  # the first file of every export
        _require_free(folder, [f"{name}.{form}" for name in written])
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, sheet in written.items():
            _write(folder / f"{name}.{form}", sheet)
    except OSError as problem:
        raise unwritable(folder, problem, "give another folder") from problem
    return {name: sheet.num_rows for name, sheet in sheets.items()}


def exported_studies(folder: str | Path) -> list[str]:
    """The names of the studies of an export. Raises StoreError for a name that no store takes."""
    folder = Path(folder)
    with damage_as_error(folder):
        names = [row["study"] for row in ExportedStore(folder, folder).rows("studies")]
        for name in names:
            check_name(name)
    return names


def import_records(store: Store, folder: str | Path) -> ImportCounts:
    """Record an export, except for trials that are finished in the store. The caller holds the leases.

    An imported trial in the store whose curve is damaged gets the curve of the export.

    Every row and every file is checked before anything is written. A trial is recorded as a whole or not at all, and
    the next import completes an import that was cut short.
    """
    folder = Path(folder)
    exported = ExportedStore(folder, folder)
    with damage_as_error(folder):
        trials, rows, studies = defaultdict(list), exported.rows("trials"), exported.rows("studies")
        for row in rows:
            trials[row["study"]].append(row)
        histories = gather_history(exported.rows("history"), rows)
        for study in studies:
            check_study(study, trials[study["study"]], histories)
            _check_weights(exported, trials[study["study"]])
        check_owners(studies, rows, histories)
        table = exported.table("curves")
        if table is not None:
            check_curves(table, rows)
        curves = {} if table is None else _curve_files(table)
    return _import(store, exported, studies, trials, histories, curves)


def _check_weights(exported: ExportedStore, trials: Sequence[Mapping[str, Any]]) -> None:
    """StoreError for a file of weights that is damaged, or that holds other weights than those of the trial's net."""
    for row in trials:
        if not (file := exported.weights(row["trial"])).is_file():
            continue
        # Imported here, because the module imports torch, which an import without weights does not need.
        from loopscale.training.checkpoint import CorruptCheckpoint, NewerFormat, check_weights

        try:
            check_weights(file, row["trial"])
        except (CorruptCheckpoint, NewerFormat, OSError) as problem:
            remedy = f"{AGAIN}, or remove the file to import the trial without weights"
            raise StoreError(str(problem).partition("; ")[0], remedy) from problem


def _import(
    store: Store,
    exported: ExportedStore,
    studies: Sequence[Mapping[str, Any]],
    trials: Mapping[str, Sequence[dict[str, Any]]],
    histories: Mapping[str, dict[int, dict[str, float]]],
    curves: Mapping[str, bytes],
) -> ImportCounts:
    new = present = mended = 0
    for study in studies:
        name = study["study"]
        known = {record.key: record for record in recorded_trials(store, name)}
        with MlflowWriter(store, name, {key: record.run for key, record in known.items()}) as writer:
            parent = store.parent_run(name)
            if parent is None or _is_half_imported(parent):
                writer.write_whole([_parent_note(study)])
            else:
                if store.shared:
                    writer.write(FORGET)  # imported runs end before the runs that the file holds
                if missing := _missing_decisions(study, parent):
                    writer.write(Note(STUDY, tags=missing, at=study["start"]))
            mended += _mend_curves(store, name, trials.get(name, ()), curves) if known else 0
            for row in trials.get(name, ()):
                record = known.get(row["trial"])
                if record and record.outcome in OVER:
                    present += 1
                    if (
                        record.status == "RUNNING" and "imported" in record.tags
                    ):  # the import was cut short here
                        writer.write(
                            Note(record.key, status=_ended_status(row, record.outcome), at=row["end"])
                        )
                    continue
                new += 1
                files = ((CURVE, curves[row["run"]]),) if row["run"] in curves else ()
                if (weights := exported.weights(row["trial"])).is_file():
                    files = (*files, (WEIGHTS, weights))
                writer.write_whole(
                    list(_notes(row, histories.get(row["run"], {}), files, record.step if record else 0))
                )
            _finish(writer, store, known)
    return ImportCounts(new, present, mended)


def _mend_curves(
    store: Store, study: str, rows: Sequence[Mapping[str, Any]], curves: Mapping[str, bytes]
) -> int:
    """Write the exported curve of every imported trial whose curve is damaged, and return the number of trials."""
    runs = {
        run.tags["trial"]: run
        for run in store.runs(store.require_experiment(study))
        if run.is_trial and "imported" in run.tags
    }
    damaged, mended = store.read_curves(list(runs.values())).damaged, 0
    for row in rows:
        run, curve = runs.get(row["trial"]), curves.get(row["run"])
        evaluation = json.loads(row["tags"]).get("evaluation")
        if run and curve and run.id in damaged and run.tags.get("evaluation") == evaluation:
            store.write_artifact(run.id, CURVE, curve)
            mended += 1
    return mended


def _is_half_imported(parent: Run) -> bool:
    """True if an import was cut short before it had written the whole parent run."""
    return parent.status == "RUNNING" and "imported" in parent.tags


def _finish(writer: MlflowWriter, store: Store, known: Collection[str]) -> None:
    """Wait for the store. Raises StoreError, after the removal of new runs that the store has not taken as a whole."""
    if not writer.flush(600):
        raise StoreError(f"{store.name} went away, {writer.backlog} notes are not written", "import again")
    if writer.refused:
        for key in {note.key for note, _ in writer.refused} - set(known):
            for run in store.search([writer.experiment], f"tags.trial = '{key}'"):
                store.client.delete_run(run.id)
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
    """Tags without MLflow's tags, without passwords, and without folders of the machine that wrote them."""
    own = {name: text for name, text in run.tags.items() if not name.startswith("mlflow.")}
    return {name: _without_folders(text) for name, text in safe_tags(own).items()}


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


def _parent_note(row: Mapping[str, Any]) -> Note:
    files = tuple((name, row[name]) for name in (STUDY_JSON, STUDY_FILE) if row[name] is not None)
    settings = {name: decode(text) for name, text in json.loads(row["settings"]).items()}
    tags = json.loads(row["tags"]) | _imported_now()
    return Note(STUDY, params=settings, tags=tags, status="FINISHED", artifacts=files, at=row["start"])


def _missing_decisions(row: Mapping[str, Any], parent: Run) -> dict[str, str]:
    """The exported predictions and decisions that the store lacks. Nothing recorded is replaced."""
    tags = json.loads(row["tags"])
    exported = tags_below(PREDICTION, tags) | tags_below(DECISION, tags)
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
    status = _ended_status(row, tags["outcome"])
    yield Note(key, int(once.get("step", 0)), once, {}, final, status, files, at=row["end"])


def _ended_status(row: Mapping[str, Any], outcome: str) -> str:
    """MLflow's status of an exported trial, which has ended in any case."""
    return row["status"] if row["status"] not in ("RUNNING", None) else STATUS.get(outcome, "FAILED")


def _imported_now() -> dict[str, str]:
    return {"imported": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")}


def _curve_files(curves: "pa.Table") -> dict[str, bytes]:
    """Every run's curve as the artifact of a run."""
    return {
        run: parquet_bytes(curves.filter(dataset.field("run") == run).drop_columns(["run", "trial"]))
        for run in curves["run"].unique().to_pylist()
    }


def _require_free(folder: Path, names: list[str]) -> None:
    """Raises StoreError if a file of a user has a name that an export writes."""
    for name in names:
        if (folder / name).exists():
            raise StoreError(f"{folder} has a file {name} that no export has written", "give another folder")


def _is_table_of_export(file: Path) -> bool:
    """True for a table that an export wrote before its end. Every table of an export has a column of keys."""
    try:
        names = parquet.read_schema(file).names
    except (OSError, pa.ArrowException):
        return False
    return bool({"run", "study"} & set(names))


def _write(file: Path, table: "pa.Table") -> None:
    """Write a CSV or Parquet file. Floats by their bytes take three quarters of the room (`BYTE_STREAM_SPLIT`)."""
    floats = [column.name for column in table.schema if pa.types.is_floating(column.type)]
    others = [name for name in table.column_names if name not in floats]
    columns: dict[str, Any] = {"use_dictionary": others, "use_byte_stream_split": floats}
    with open_output(file) as stream:
        if file.suffix == ".csv":
            csv.write_csv(table, stream)
        else:
            parquet.write_table(table, stream, compression="zstd", **columns)
