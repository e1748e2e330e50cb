"""`loopscale query`: SQL over every trial and curve."""

import sys
from enum import StrEnum
from typing import Annotated

import typer

from loopscale.cli.options import JsonOption, StorageOption, StoreOption, opened
from loopscale.cli.output import show_json, show_table
from loopscale.cli.wrong import Wrong


class Format(StrEnum):
    table = "table"
    csv = "csv"


def command(
    context: typer.Context,
    sql: Annotated[str, typer.Argument(metavar="SQL", help="One SELECT, in DuckDB's SQL.")],
    form: Annotated[Format, typer.Option("--format", help="How to print the answer.")] = Format.table,
    as_json: JsonOption = False,
    store: StoreOption = None,
    storage: StorageOption = None,
) -> None:
    """Ask SQL of the tables [cyan]trials, curves, history[/cyan] and [cyan]studies[/cyan].

    A setting is a column of trials under its dotted path, in double quotes.

    [bold]Example[/bold]  loopscale query 'SELECT "model.kind", min(error) FROM trials GROUP BY 1'
    """
    from loopscale.records.mirror import Mirror

    mirror = Mirror(opened(context, store, storage))
    mirror.sync()
    answer = mirror.query(sql)
    if as_json:
        show_json(answer.to_pylist())
    elif form is Format.csv:
        from pyarrow import ArrowException, csv

        try:
            csv.write_csv(answer, sys.stdout.buffer)
        except ArrowException as problem:
            raise Wrong(
                f"the answer is no CSV ({problem}); cast its lists to text, or use --json"
            ) from problem
    else:
        show_table(answer.column_names, zip(*(column.to_pylist() for column in answer.columns), strict=True))
