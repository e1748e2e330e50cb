"""`loopscale export` and `loopscale import`: finished records, carried from one store to another."""

from pathlib import Path
from typing import Annotated, Literal

import typer

from loopscale.cli.options import JsonOption, StorageOption, StoreOption, opened
from loopscale.cli.output import counted, say, show_json
from loopscale.cli.wrong import Wrong


def export(
    context: typer.Context,
    study: Annotated[
        str | None, typer.Argument(metavar="[STUDY]", help="A study's file, or its name.")
    ] = None,
    to: Annotated[
        Path | None,
        typer.Option(
            "--to",
            metavar="FOLDER",
            help="Records of what is finished, to be asked as a store or imported.",
        ),
    ] = None,
    weights: Annotated[
        bool,
        typer.Option(
            "--weights", help="With --to: the weights too that were kept, of replicates and cells' best."
        ),
    ] = False,
    csv: Annotated[
        Path | None,
        typer.Option(
            "--csv", metavar="FOLDER", help="The tables of `loopscale query` as CSV, for spreadsheets."
        ),
    ] = None,
    parquet: Annotated[
        Path | None,
        typer.Option("--parquet", metavar="FOLDER", help="The same as Parquet, for pandas and its kin."),
    ] = None,
    optuna: Annotated[
        str | None,
        typer.Option(
            "--optuna",
            metavar="FILE",
            help="The tuning as an Optuna storage: SQLite where it ends in .db.",
        ),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Every study of the store.")] = False,
    as_json: JsonOption = False,
    store: StoreOption = None,
    storage: StorageOption = None,
) -> None:
    """Write records elsewhere: to carry them to another store, or for a spreadsheet, pandas, or optuna-dashboard.

    What [cyan]--to[/cyan] writes says nothing of where it lay, and is small without weights: it can be committed.

    [bold]Example[/bold]  loopscale export quickstart --to quickstart-records --weights

    loopscale best quickstart --store quickstart-records

    loopscale export quickstart --optuna quickstart.db; optuna-dashboard sqlite:///quickstart.db
    """
    from loopscale.records.sheets import write_sheets
    from loopscale.records.transfer import export_records
    from loopscale.studies.find import recorded_name

    if (study is None) is not everything:
        raise Wrong("export one study or all of them; give STUDY or --all")
    if not (to or csv or parquet or optuna):
        raise Wrong(
            "nothing says where to; give --to FOLDER, --csv FOLDER, --parquet FOLDER or --optuna FILE"
        )
    if weights and not to:
        raise Wrong("--weights go with records; give --to FOLDER too")
    if optuna and study is None:
        raise Wrong("--optuna takes one study; give STUDY")
    place, name = opened(context, store, storage), None if study is None else recorded_name(study)
    done: dict[str, object] = {}
    lines: list[str] = []
    if to:
        written = export_records(place, name, to, weights)
        done |= {"folder": to, "trials": written.trials, "weights": written.weights}
        what = counted(written.trials, "trial") + (f", of {written.weights:,} the weights" if weights else "")
        lines.append(
            f"{what} in {to}; `--store {to}` asks them, `loopscale import {to}` takes them into a store"
        )
    sheets: tuple[tuple[Literal["csv", "parquet"], Path | None], ...] = (("csv", csv), ("parquet", parquet))
    for form, folder in sheets:
        if folder:
            rows = write_sheets(place, name, folder, form)
            done[form] = {"folder": folder, **rows}
            sizes = ", ".join(f"{number:,} rows in {table}.{form}" for table, number in rows.items())
            lines.append(f"{sizes}; columns.{form} says what they are; all in {folder}")
    if optuna and name:
        from loopscale.analysis.optuna_export import address, to_optuna

        studies = to_optuna(place, name, optuna)
        done["optuna"] = {"file": optuna, "studies": studies}
        lines.append(
            f"{counted(sum(studies.values()), 'trial')} of {counted(len(studies), 'cell')} in {optuna}; "
            f"`optuna-dashboard {address(optuna)}` shows them"
        )
    if as_json:
        show_json(done)
    else:
        say("\n".join(lines))


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
    from loopscale.records.stores.exported import check_export
    from loopscale.records.transfer import import_records

    check_export(folder)  # before a store is made for nothing
    imported = import_records(opened(context, store, storage, create=True), folder)
    if as_json:
        show_json({"new": imported.new, "present": imported.present})
    else:
        say(f"{counted(imported.new, 'trial')} taken in, {imported.present:,} were there already")
