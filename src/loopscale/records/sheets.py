"""The tables of `loopscale query` as files for spreadsheets and pandas. `transfer` carries records between stores."""

from pathlib import Path
from typing import Literal

from loopscale.records.deferred_imports import csv, pa, parquet
from loopscale.records.mirror.store_mirror import Mirror
from loopscale.records.model.columns import TABLES
from loopscale.records.model.errors import StoreError
from loopscale.records.stores.base import Store
from loopscale.records.trial_records import recorded_studies


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
            _write(sheet, folder / f"{name}.{form}")
    except OSError as problem:
        raise StoreError(f"cannot write to {folder} ({problem.strerror})", "give another folder") from problem
    return {name: sheet.num_rows for name, sheet in sheets.items()}


def _write(sheet: "pa.Table", file: Path) -> None:
    if file.suffix == ".csv":
        csv.write_csv(sheet, file)
    else:
        parquet.write_table(sheet, file, compression="zstd")
