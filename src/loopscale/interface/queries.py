"""Questions to the records: SQL over all tables, and the results of one study."""

from pathlib import Path
from typing import Any

from loopscale.errors import QueryError
from loopscale.interface import types
from loopscale.interface.foreign_errors import with_loopscale_errors
from loopscale.records.stores.base import Store
from loopscale.records.stores.opening import open_store


def query_table(
    sql: str, store: Store | str | Path | None = None, timeout: float | None = None
) -> "types.ArrowTable":
    """The answer to one SELECT over `trials`, `curves`, `history` and `studies`. Raises QueryError, StoreError."""
    from loopscale.records.mirror import Mirror

    mirror = Mirror(store if isinstance(store, Store) else open_store(store))
    mirror.sync()
    return mirror.query(sql, timeout)


def column_values(column: "types.ChunkedArray") -> list[Any]:
    """The values of a column. Raises QueryError for dates beyond Python's range."""
    try:
        return column.to_pylist()
    except (OverflowError, ValueError) as problem:
        what = f"the answer has a value outside of Python's range ({problem})"
        raise QueryError(f"{what}; cast it to text, as in date::VARCHAR") from problem


@with_loopscale_errors
def query(
    sql: str, store: Store | str | Path | None = None, timeout: float | None = None
) -> "types.DataFrame":
    """The answer to one SELECT over `trials`, `curves`, `history` and `studies`, as a data frame.

    A setting is a column of `trials` under its dotted path, in double quotes. `loopscale query --tables` lists all
    columns with their units. `timeout` is the longest time of the query in seconds; by default there is no limit.
    Raises QueryError, StoreError.
    """
    answer = query_table(sql, store, timeout)
    try:
        return answer.to_pandas()
    except (OverflowError, ValueError) as problem:
        raise QueryError(f"the answer is no data frame ({problem}); cast its dates to text") from problem


@with_loopscale_errors
def results(
    study: "types.Study | str | Path", store: Store | str | Path | None = None, beside: str | Path = "data"
) -> "types.StudyResults":
    """The results of a study, with its tables, sentences and figures.

    Parameters
    ----------
    study
        A study, the file of a study, or the name of a study.
    store
        The records. By default those of the command line, else an export in the folder `beside`.

    Raises
    ------
    StoreError
        If the records cannot be read.
    StudyError
        If the study has neither records nor a file.
    """
    from loopscale.analysis import notebook

    return notebook.results(study if isinstance(study, str | Path) else study.name, store, beside)
