"""`loopscale query`: SQL over every trial and curve."""

import sys
from enum import StrEnum
from typing import Annotated

import typer

from loopscale.cli.errors import UsageError
from loopscale.cli.options import JsonOption, StorageOption, StoreOption, open_store
from loopscale.cli.output import show_json, show_table


class Format(StrEnum):
    table = "table"
    csv = "csv"


def command(
    context: typer.Context,
    sql: Annotated[str | None, typer.Argument(metavar="SQL", help="One SELECT, in DuckDB's SQL.")] = None,
    tables: Annotated[
        bool, typer.Option("--tables", help="List the tables and what every column says, with its unit.")
    ] = False,
    form: Annotated[Format, typer.Option("--format", help="How to print the answer.")] = Format.table,
    as_json: JsonOption = False,
    store: StoreOption = None,
    storage: StorageOption = None,
) -> None:
    """Ask SQL of the tables [cyan]trials, curves, history[/cyan] and [cyan]studies[/cyan].

    A setting is a column of trials under its dotted path, in double quotes; text is in single quotes. With
    [cyan]--tables[/cyan], what there is to ask.

    [bold]Example[/bold]  loopscale query "SELECT label, avg(error) AS error, count(*) AS runs FROM trials
    WHERE study = 'quickstart' AND role = 'replicate' GROUP BY label ORDER BY error"

    What tuning tried, by a setting:

    loopscale query "SELECT \\"model.kind\\", \\"training.lr\\", validate_error FROM trials
    WHERE study = 'quickstart' AND role = 'tuning' ORDER BY ALL"

    Every cell's error after every loop, the mean over its replicates and their queries:

    loopscale query "SELECT label, loop, avg(curves.error) AS error FROM curves JOIN trials USING (trial)
    WHERE study = 'quickstart' AND role = 'replicate' GROUP BY ALL ORDER BY ALL"

    What did not finish, by study, and how often:

    loopscale query "SELECT study, outcome, count(*) FROM trials WHERE outcome <> 'finished' GROUP BY ALL"
    """
    from loopscale.records.mirror import Mirror
    from loopscale.records.model import NoRecords

    if (sql is None) is not tables:
        raise UsageError("a query is one SELECT, or --tables; give one of them")
    try:
        mirror = Mirror(open_store(context, store, storage))
        mirror.sync()
    except NoRecords:
        if sql is not None:
            raise
        _show_tables({}, as_json)  # what every store has
        return
    if sql is None:
        _show_tables(mirror.columns(), as_json)
        return
    answer = mirror.query(sql)
    if as_json:
        show_json(answer.to_pylist())
    elif form is Format.csv:
        from pyarrow import ArrowException, csv

        try:
            csv.write_csv(answer, sys.stdout.buffer)
        except ArrowException as problem:
            raise UsageError(
                f"the answer is no CSV ({problem}); cast its lists to text, or use --json"
            ) from problem
    else:
        show_table(answer.column_names, zip(*(column.to_pylist() for column in answer.columns), strict=True))


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
        show_table(["column", "type", "unit", "what it says"], rows, f"{table['table']}: {table['about']}")
