"""`loopscale best`: the best configuration of every cell."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from loopscale.cli.options import JsonOption, StorageOption, StoreOption, StudyArgument, opened
from loopscale.cli.output import interval, say, show_json, show_table

if TYPE_CHECKING:
    from loopscale.analysis.answers.best import Best


def command(
    context: typer.Context,
    study: StudyArgument,
    where: Annotated[
        str,
        typer.Option(
            "--where",
            metavar="SQL",
            help="Only rows whose trial, in the last column, meets this SQL condition. No figure changes by it.",
        ),
    ] = "",
    as_json: JsonOption = False,
    store: StoreOption = None,
    storage: StorageOption = None,
) -> None:
    """The best configuration of every cell, with mean and interval over its replicates.

    With two [cyan]objectives[/cyan] also every point that no other beats in both error and FLOPs.

    [bold]Example[/bold]  loopscale best quickstart --where '"training.loops" >= 6'
    """
    from loopscale.analysis.answers.best import best, front
    from loopscale.analysis.tables import several_objectives
    from loopscale.cli.recorded import meeting, recorded

    place = opened(context, store, storage)
    found = recorded(place, study, curves=False)
    kept = meeting(place, found.study["name"], where) if where else None
    # Noise is pooled over all cells: what is not shown still counts.
    rows = [row for row in best(found.trials, found.study) if kept is None or row.trial in kept]
    points = None
    if several_objectives(found.study):
        points = [one for one in front(found.trials, found.study) if kept is None or one.trial in kept]
    if as_json:
        show_json([as_object(row, points) for row in rows])
        return
    if where and not rows:
        say(f"no cell of {found.study['name']} has an answer whose trial meets {where}")
        return
    show_best(rows, found.study)
    if points is not None:
        say("No other point has both a smaller error and fewer FLOPs:")
        tuned = list(found.study.get("nuisance") or {})
        show_table(
            ["cell", *tuned, "error", "FLOPs", "trial"],
            ([p.label, *map(p.settings.get, tuned), p.error, p.flops, p.trial] for p in points),
        )


def show_best(rows: Sequence["Best"], study: Mapping[str, Any]) -> None:
    """The table of best configurations: what was tuned, the error, its interval, and how far the cell is; below it,
    where a range was too narrow.
    """
    from loopscale.analysis.answers.ranges import at_ends

    tuned = list(study.get("nuisance") or {})
    show_table(
        ["cell", *tuned, "error", "95 % interval", "error_last", "replicates", "trial"],
        (
            [
                row.label,
                *(row.settings.get(path) for path in tuned),
                row.error,
                interval(row.error_low, row.error_high),
                row.error_last,
                row.state,
                row.trial,
            ]
            for row in rows
        ),
    )
    for one in at_ends(study, rows):
        say(f"{one}: a wider one, and trials to try it, may find better")


def as_object(row: "Best", points: Sequence["Best"] | None = None) -> dict[str, Any]:
    """A cell for programs: its settings under `settings`, and each also under its own dotted path.

    `points` are those that no other beats, where there are two objectives.
    """
    plain = row.to_dict()
    found = {"cell": plain["cell"], "label": plain["label"], **row.settings, **plain}
    if points is None:
        return found
    kept = ("settings", "error", "flops", "trial")
    mine = [point.to_dict() for point in points if point.cell == row.cell]
    return found | {"points": [{name: point[name] for name in kept} for point in mine]}
