"""`loopscale doctor`: examine a store, and mend damage."""

from typing import Annotated

import typer

from loopscale.cli.errors import DONE, FAILED
from loopscale.cli.options import JsonOption, StorageOption, StoreOption, open_store, store_place
from loopscale.cli.output import plural, say, show_json, tell
from loopscale.interface import types


def command(
    context: typer.Context,
    place: Annotated[
        str | None, typer.Argument(metavar="[STORE]", help="The store, as in [cyan]--store[/cyan].")
    ] = None,
    repair: Annotated[
        bool, typer.Option("--repair", help="Mend what can be mended from the store itself.")
    ] = False,
    as_json: JsonOption = False,
    store: StoreOption = None,
    storage: StorageOption = None,
) -> None:
    """Check a store for damage: database, curves, weights, mirror, locks, leftovers of killed runs.

    With [cyan]--repair[/cyan], mend the damage. Nothing is trained, and a store that a driver uses is only read. The
    exit code is 1 if a fault remains.

    [bold]Example[/bold]  loopscale doctor --repair --store /data/loopscale
    """
    from loopscale.doctor.check import Patient
    from loopscale.doctor.examination import all_checks, examine
    from loopscale.doctor.opening import open_damaged

    found: list[types.Examined] = []
    records = open_damaged(
        lambda: open_store(context, place or store, storage),
        place or store_place(context, store, storage).store,
        repair,
        found.append,
    )
    patient = Patient(records)
    records.warn = lambda text: None  # the findings say more
    for examined in examine(patient, repair, tell):
        found.append(examined)
        if not as_json:
            _show(examined)
    remaining = sum(examined.is_open for examined in found)
    if as_json:
        show_json(
            {
                "store": records.name,
                "studies": records.studies(),
                "in_use": patient.in_use or None,
                "checks": [check.name for check in all_checks()],
                "findings": [examined.to_dict() for examined in found],
                "remaining": remaining,
            }
        )
    else:
        if patient.in_use:
            say(f"the store was only read, and nothing was mended: {patient.in_use}")
        mended = sum(bool(examined.mended) for examined in found)
        counts = f"{plural(len(found), 'finding')}, {mended:,} mended, {remaining:,} open"
        number = len(records.studies())
        say(f"{len(all_checks())} checks of {number:,} {'study' if number == 1 else 'studies'}: {counts}")
    raise typer.Exit(FAILED if remaining else DONE)


def _show(examined: "types.Examined") -> None:
    finding = examined.finding
    say(f"{examined.check}, {finding.severity}: {finding.place}: {finding.problem}; {finding.remedy}")
    if examined.mended:
        say(f"  mended: {examined.mended}")
    if examined.failed:
        say(f"  not mended: {examined.failed}")
