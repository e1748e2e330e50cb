"""`loopscale export` and `loopscale import`: finished records, carried from one store to another."""

from pathlib import Path
from typing import Annotated

import typer

from loopscale.cli.options import JsonOption, StorageOption, StoreOption, opened
from loopscale.cli.output import counted, say, show_json
from loopscale.cli.wrong import Wrong


def export(
    context: typer.Context,
    to: Annotated[Path, typer.Option("--to", metavar="FOLDER", help="Where to write the Parquet files.")],
    study: Annotated[
        str | None, typer.Argument(metavar="[STUDY]", help="A study's file, or its name.")
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Every study of the store.")] = False,
    as_json: JsonOption = False,
    store: StoreOption = None,
    storage: StorageOption = None,
) -> None:
    """Write what is finished as Parquet: settings, metrics, histories and curves, but no weights.

    [bold]Example[/bold]  loopscale export quickstart --to quickstart-records
    """
    from loopscale.records.transfer import export as write
    from loopscale.studies.find import recorded_name

    if (study is None) is not everything:
        raise Wrong("export one study or all of them; give STUDY or --all")
    trials = write(opened(context, store, storage), None if study is None else recorded_name(study), to)
    if as_json:
        show_json({"folder": to, "trials": trials})
    else:
        say(f"{counted(trials, 'trial')} in {to}; `loopscale import {to}` takes them into another store")


def import_(
    context: typer.Context,
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="What `loopscale export` wrote.")],
    as_json: JsonOption = False,
    store: StoreOption = None,
    storage: StorageOption = None,
) -> None:
    """Take exported records into the store. They count as finished; what is there already is left alone.

    [bold]Example[/bold]  loopscale import quickstart-records --store .loopscale
    """
    from loopscale.records.exported import check
    from loopscale.records.transfer import import_ as read

    check(folder)  # before a store is made for nothing
    imported = read(opened(context, store, storage, create=True), folder)
    if as_json:
        show_json({"new": imported.new, "present": imported.present})
    else:
        say(f"{counted(imported.new, 'trial')} taken in, {imported.present:,} were there already")
