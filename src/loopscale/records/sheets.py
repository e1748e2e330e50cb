"""The tables of `loopscale query` as files that a spreadsheet or pandas reads; what carries records is `transfer`."""

from pathlib import Path
from typing import TYPE_CHECKING, Literal

from loopscale.records.mirror.mirror import Mirror
from loopscale.records.model.columns import TABLES
from loopscale.records.model.errors import StoreError
from loopscale.records.stores.store import Store
from loopscale.records.transfer import chosen

if TYPE_CHECKING:
    import pyarrow as pa

SHEETS = tuple(TABLES)


def write(store: Store, study: str | None, folder: Path, form: Literal["csv", "parquet"]) -> dict[str, int]:
    """Write the tables of one study, or of all, and `columns`, which says what is in them; how many rows each has.

    Unfinished trials are in them too. A missing value is an empty cell. Raises StoreError.
    """
    import pyarrow as pa

    mirror = Mirror(store)
    names = list(chosen(store, study))
    for name in [study] if study else [None]:
        mirror.sync(name)
    found = {}
    of_studies = f"study IN ({','.join('?' * len(names))})"
    with mirror.connect() as connection:
        for table in SHEETS:
            of_trials = f"trial IN (SELECT trial FROM trials WHERE {of_studies})"
            mine = of_studies if "study" in TABLES[table][1] else of_trials
            sql = f"SELECT * FROM {table} WHERE {mine} ORDER BY ALL"
            found[table] = connection.sql(sql, params=names).to_arrow_table()
    said = [
        {"table": table, "column": name, "unit": column.unit, "about": column.about}
        for table in SHEETS
        for name, column in TABLES[table][1].items()
    ]
    found["columns"] = pa.Table.from_pylist(said)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, table in found.items():
            _write(table, folder / f"{name}.{form}")
    except OSError as problem:
        raise StoreError(f"cannot write to {folder} ({problem.strerror})", "give another folder") from problem
    return {name: found[name].num_rows for name in SHEETS}


def _write(table: "pa.Table", file: Path) -> None:
    from pyarrow import csv, parquet

    if file.suffix == ".csv":
        csv.write_csv(table, file)
    else:
        parquet.write_table(table, file, compression="zstd")
