"""`loopscale export` and `loopscale import`: finished records, carried from one store to another."""

from contextlib import ExitStack
from pathlib import Path
from typing import Annotated, Literal

import typer

from loopscale.cli.errors import UsageError
from loopscale.cli.options import JsonOption, StorageOption, StoreOption, open_store
from loopscale.cli.output import plural, say, show_json, tell


def export_records(
    context: typer.Context,
    study: Annotated[
        str | None, typer.Argument(metavar="[STUDY]", help="A study's file, or its name.")
    ] = None,
    to: Annotated[
        Path | None,
        typer.Option(
            "--to", metavar="FOLDER", help="Finished records. The folder serves as --store, or for import."
        ),
    ] = None,
    weights: Annotated[
        bool,
        typer.Option(
            "--weights", help="With --to: also the kept weights, of replicates and of each cell's best trial."
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
        typer.Option("--parquet", metavar="FOLDER", help="The same tables as Parquet, for pandas."),
    ] = None,
    optuna: Annotated[
        str | None,
        typer.Option(
            "--optuna", metavar="FILE", help="The tuning as an Optuna storage. A file *.db becomes SQLite."
        ),
    ] = None,
    everything: Annotated[bool, typer.Option("--all", help="Export every study of the store.")] = False,
    as_json: JsonOption = False,
    store: StoreOption = None,
    storage: StorageOption = None,
) -> None:
    """Write records for another store, a spreadsheet, pandas or optuna-dashboard.

    An export of [cyan]--to[/cyan] names no path of this machine. Without weights it is small enough to commit.

    [bold]Example[/bold]  loopscale export quickstart --to quickstart-records --weights

    loopscale best quickstart --store quickstart-records

    loopscale export quickstart --optuna quickstart.db; optuna-dashboard sqlite:///quickstart.db
    """
    from loopscale.notation.files import recorded_name
    from loopscale.records import transfer

    if (study is None) is not everything:
        raise UsageError("export needs one study or all of them; give STUDY or --all")
    if not (to or csv or parquet or optuna):
        raise UsageError(
            "the target is missing; give --to FOLDER, --csv FOLDER, --parquet FOLDER or --optuna FILE"
        )
    if weights and not to:
        raise UsageError("--weights belong to records; give --to FOLDER too")
    if optuna and study is None:
        raise UsageError("--optuna takes one study; give STUDY")
    records, name = open_store(context, store, storage), None if study is None else recorded_name(study)
    document: dict[str, object] = {}
    lines: list[str] = []
    if to:
        from loopscale.analysis.recorded.load import export_floors

        written = transfer.export_records(records, name, to, weights)
        for exported in [name] if name else records.studies():
            export_floors(records, exported, to)
        document |= {"folder": to, "trials": written.trials, "weights": written.weights}
        trials = plural(written.trials, "trial") + (f", {written.weights:,} with weights" if weights else "")
        lines.append(
            f"{trials} in {to}; `--store {to}` reads them, `loopscale import {to}` copies them into a store"
        )
    sheets: tuple[tuple[Literal["csv", "parquet"], Path | None], ...] = (("csv", csv), ("parquet", parquet))
    for form, folder in sheets:
        if folder:
            rows = transfer.write_sheets(records, name, folder, form)
            document[form] = {"folder": folder, **rows}
            sizes = ", ".join(f"{plural(number, 'row')} in {table}.{form}" for table, number in rows.items())
            lines.append(f"{sizes}; columns.{form} explains the columns; all in {folder}")
    if optuna and name:
        from loopscale.analysis.optuna_export import address, to_optuna

        studies = to_optuna(records, name, optuna)
        document["optuna"] = {"file": optuna, "studies": studies}
        trials, cells = plural(sum(studies.values()), "trial"), plural(len(studies), "cell")
        lines.append(f"{trials} of {cells} in {optuna}; `optuna-dashboard {address(optuna)}` shows them")
    if as_json:
        show_json(document)
    else:
        say("\n".join(lines))


def import_records(
    context: typer.Context,
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="A folder of `loopscale export --to`.")],
    as_json: JsonOption = False,
    store: StoreOption = None,
    storage: StorageOption = None,
) -> None:
    """Copy exported records into the store. They count as finished. Records that the store has stay unchanged,
    except for damaged curves of an earlier import.

    [bold]Example[/bold]  loopscale import quickstart-records --store .loopscale
    """
    from loopscale.analysis.recorded.floors import import_floors
    from loopscale.records import transfer
    from loopscale.records.stores.exported import check_export
    from loopscale.runner.lease import claim_records, lease

    check_export(folder)  # before the store is created
    place = open_store(context, store, storage, create=True)
    with ExitStack() as held:
        for study in transfer.exported_studies(folder):
            held.enter_context(lease(place.storage, study))
            held.enter_context(claim_records(place, study, lambda _: None, tell))
        imported = transfer.import_records(place, folder)
    import_floors(folder, place)
    if as_json:
        show_json({"new": imported.new, "present": imported.present, "mended": imported.mended})
    else:
        mended = f", {plural(imported.mended, 'damaged curve')} replaced" if imported.mended else ""
        say(f"{plural(imported.new, 'trial')} copied, {imported.present:,} were present{mended}")
