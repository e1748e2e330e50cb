"""`loopscale query`: SQL over every trial and curve."""

import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from enum import StrEnum
from typing import Annotated, Any

import typer

from loopscale.cli.errors import MISTAKE, STOPPED, UsageError
from loopscale.cli.options import JsonOption, StorageOption, StoreOption, open_store
from loopscale.cli.output import plural, say, show_json, show_table, tell
from loopscale.errors import QueryError
from loopscale.interface import types

MOST_CELLS = 10_000
"""Cells of a printed table. The layout of more cells takes seconds to minutes, without any output."""
JSON_BYTES = 400
"""Bytes of memory that each row and each value takes on its way to JSON."""
LONGEST = 500
"""Characters of a cell of a printed table."""


class Format(StrEnum):
    table = "table"
    csv = "csv"


def command(
    context: typer.Context,
    sql: Annotated[str | None, typer.Argument(metavar="SQL", help="One SELECT, in DuckDB's SQL.")] = None,
    tables: Annotated[
        bool, typer.Option("--tables", help="List the tables and what every column says, with its unit.")
    ] = False,
    form: Annotated[
        Format | None, typer.Option("--format", help="How to print the answer. [dim]Default: table[/dim]")
    ] = None,
    as_json: JsonOption = False,
    timeout: Annotated[
        float | None,
        typer.Option(
            metavar="SECONDS",
            help="End the query after this time. [dim]Default: no limit; Ctrl-C ends it[/dim]",
        ),
    ] = None,
    store: StoreOption = None,
    storage: StorageOption = None,
) -> None:
    """Ask SQL of the tables [cyan]trials, curves, history[/cyan] and [cyan]studies[/cyan].

    A setting is a column of trials under its dotted path, in double quotes; text is in single quotes. With
    [cyan]--tables[/cyan], what there is to ask.

    [bold]Example[/bold]  loopscale query "SELECT label, avg(error) AS error, count(*) AS runs FROM trials
    WHERE study = 'quickstart' AND role = 'replicate' GROUP BY label ORDER BY error"

    The tried values of a setting:

    loopscale query "SELECT \\"model.kind\\", \\"training.lr\\", validate_error FROM trials
    WHERE study = 'quickstart' AND role = 'tuning' ORDER BY ALL"

    Every cell's error after every loop, the mean over its replicates and their queries:

    loopscale query "SELECT label, loop, avg(curves.error) AS error FROM curves JOIN trials USING (trial)
    WHERE study = 'quickstart' AND role = 'replicate' GROUP BY ALL ORDER BY ALL"

    A table shows up to 10,000 cells and 500 characters of a cell; CSV and JSON are complete. The bytes of a BLOB are
    hexadecimal digits.

    DuckDB may use half of the free memory, and half of the free disk of temporary files. An answer may use a quarter
    of the free memory. A larger query ends with one line. Ctrl-C ends a query, also an endless recursion, and so does
    [cyan]--timeout[/cyan].

    What did not finish, by study, and how often:

    loopscale query "SELECT study, outcome, count(*) FROM trials WHERE outcome <> 'finished' GROUP BY ALL"
    """
    if (sql is None) is not tables:
        raise UsageError("a query is one SELECT, or --tables; give one of them")
    if form and (as_json or tables):
        raise UsageError("--format goes neither with --json nor with --tables; leave out --format")
    if sql is None:
        _show_tables(_recorded_columns(context, store, storage), as_json)
        return
    if timeout is not None and not timeout > 0:
        raise UsageError(f"--timeout {timeout:g} is no time; give seconds above 0")
    with _leaving_stuck_queries():
        _answer(sql, timeout, form, as_json, open_store(context, store, storage))


def _answer(
    sql: str, timeout: float | None, form: Format | None, as_json: bool, store: "types.Store"
) -> None:
    from loopscale.interface.queries import column_values, query_table
    from loopscale.records.query_limits import free_memory

    answer = query_table(sql, store, timeout)
    names = answer.column_names
    if as_json:
        if doubled := [name for name in names if names.count(name) > 1]:
            raise UsageError(f"two columns are named {doubled[0]}; write AS to name one of them")
        if JSON_BYTES * answer.num_rows * (1 + len(names)) > free_memory():
            what = f"{plural(answer.num_rows, 'row')} as JSON need more than half of the free memory"
            raise UsageError(f"{what}; write --format csv, or add LIMIT")
        values = zip(*map(column_values, answer.columns), strict=True)
        show_json([dict(zip(names, row, strict=True)) for row in values])
    elif form is Format.csv:
        _write_csv(answer)
    else:
        most = max(1, MOST_CELLS // len(names))
        cells = (map(_short, column_values(column[:most])) for column in answer.columns)
        show_table(names, zip(*cells, strict=True))
        if (more := answer.num_rows - most) > 0:
            say(f"{plural(more, 'more row')}; add LIMIT, or write --format csv")


def _short(value: Any) -> Any:
    """A value of a table. A long text is cut, and its length is named."""
    if value is None or isinstance(value, int | float):
        return value
    text = value.hex() if isinstance(value, bytes) else str(value)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}... ({len(text):,} characters)"


def _write_csv(answer: "types.ArrowTable") -> None:
    import pyarrow as pa
    from pyarrow import csv

    columns: list[Any] = []
    for name, column in zip(answer.column_names, answer.columns, strict=True):
        if pa.types.is_binary(column.type):
            values = column.to_pylist()
            column = pa.array([None if value is None else value.hex() for value in values], pa.string())
        try:  # before the first output, because Arrow writes the header before it looks at some types
            csv.write_csv(pa.table({name: column[:1]}), io.BytesIO())
        except pa.ArrowException as problem:
            raise UsageError(
                f"CSV has no form for column {name} of type {column.type}; cast the column to text, or use --json"
            ) from problem
        columns.append(column)
    csv.write_csv(pa.table(columns, answer.column_names), sys.stdout.buffer)


@contextmanager
def _leaving_stuck_queries() -> Iterator[None]:
    """Leave the program at once if DuckDB does not end a query. Otherwise the program would wait for the query."""
    from loopscale.records.query_limits import has_stuck_query

    try:
        yield
    except (KeyboardInterrupt, QueryError) as problem:
        if not has_stuck_query():
            raise
        stopped = isinstance(problem, KeyboardInterrupt)
        tell("stopped" if stopped else str(problem))
        os._exit(STOPPED if stopped else MISTAKE)


def _recorded_columns(
    context: typer.Context, store: str | None, storage: str | None
) -> dict[str, list[tuple[str, str]]]:
    """The columns of every table in a store. Without a store, none beside those that every store has."""
    from loopscale.records.mirror import Mirror
    from loopscale.records.model import NoRecords

    try:
        mirror = Mirror(open_store(context, store, storage))
        mirror.sync()
    except NoRecords:
        return {}
    return mirror.columns()


def _show_tables(found: dict[str, list[tuple[str, str]]], as_json: bool) -> None:
    """Every table with its columns; those of trials that are not described one by one are settings."""
    from loopscale.records.tables import SETTINGS, TABLES

    tables = []
    for name, (about, described) in TABLES.items():
        columns = [
            {"column": column, "type": kind, "unit": said.unit, "about": said.about}
            for column, kind in found.get(name, [(column, said.kind) for column, said in described.items()])
            for said in [
                described.get(column, SETTINGS._replace(about="a setting, or what a task measures besides"))
            ]
        ]
        tables.append({"table": name, "about": about, "columns": columns})
    if as_json:
        show_json(tables)
        return
    for table in tables:
        columns = [each for each in table["columns"] if each["column"] in TABLES[table["table"]][1]]
        rows = [list(column.values()) for column in columns]
        if table["table"] == "trials":
            settings = len(table["columns"]) - len(columns)
            rows.append(
                [f"and {settings} more" if settings else "and more", "", SETTINGS.unit, SETTINGS.about]
            )
        title = f"{table['table']}: {table['about']}"
        show_table(["column", "type", "unit", "what it says"], rows, title, sentences=True)
