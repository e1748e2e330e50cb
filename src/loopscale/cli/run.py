"""`loopscale run`: the only verb that is needed. It starts, resumes, extends and repairs."""

from typing import TYPE_CHECKING, Annotated

import typer

from loopscale.cli.options import (
    JsonOption,
    SetOption,
    StorageOption,
    StoreOption,
    StudyArgument,
    assignments,
    opened,
)
from loopscale.cli.output import show_json, tell
from loopscale.cli.wrong import DONE, FAILED, STOPPED, Wrong

if TYPE_CHECKING:
    from loopscale.studies.spec import Study

Workers = Annotated[
    int | None,
    typer.Option(
        "--workers",
        min=1,
        help="Trials at a time. [dim]Default: as many as the machine or the cluster has room for[/dim]",
    ),
]
Weight = Annotated[
    float,
    typer.Option(
        "--weight",
        min=1e-3,
        max=1e3,
        help="The study's share of a cluster, against the weights of the others that run there.",
    ),
]


def command(
    context: typer.Context,
    study: StudyArgument,
    workers: Workers = None,
    address: Annotated[
        str | None,
        typer.Option("--address", help="A running Ray cluster, as in auto; else Ray is started here."),
    ] = None,
    weight: Weight = 1.0,
    overrides: SetOption = None,
    as_json: JsonOption = False,
    store: StoreOption = None,
    storage: StorageOption = None,
) -> None:
    """Bring a study to its end from wherever it stands: start it, resume it, or train what was added to it.

    What is finished is never trained again. Ctrl-C stops cleanly; the same command goes on from there.

    [bold]Example[/bold]  loopscale run quickstart --workers 2 --set replicates=3
    """
    try:
        code = _run(context, study, workers, address, weight, assignments(overrides), as_json, store, storage)
    except KeyboardInterrupt:
        tell(f"stopped; `loopscale run {study}` goes on from here")
        code = STOPPED
    raise typer.Exit(code)


def _run(
    context: typer.Context,
    name: str,
    workers: int | None,
    address: str | None,
    weight: float,
    overrides: dict[str, str],
    as_json: bool,
    store: str | None,
    storage: str | None,
) -> int:
    from loopscale.cli.summary import summarised, summary
    from loopscale.runner.machine.resources import InsufficientResources, require_resources
    from loopscale.runner.progress import show_progress
    from loopscale.runner.run import BudgetSpent, Interrupted, NoWorkers, Unrecorded, run
    from loopscale.studies.spec import Study
    from loopscale.training.storage import StorageUnavailable

    study = Study.load(name, overrides)
    try:
        require_resources(study.resources, address)
    except InsufficientResources as problem:
        raise Wrong(str(problem)) from problem
    place = opened(context, store, storage, create=True)
    try:
        conductor = run(study, place, workers, address, show_progress, weight, tell)
    except Interrupted:
        raise KeyboardInterrupt from None
    except BudgetSpent as problem:
        tell(f"{problem} and `loopscale run {name}` goes on from here")
        return STOPPED
    except (NoWorkers, Unrecorded, StorageUnavailable) as problem:
        tell(f"{problem}; `loopscale run {name}` goes on from here")
        return FAILED
    found = summary(place, conductor)
    if as_json:
        show_json(found.to_dict())
    else:
        where = store or (context.obj and context.obj.store)
        summarised(found, f"loopscale ui --store {where}" if where else "loopscale ui")
    return FAILED if conductor.counts()["failed"] or conductor.counts()["lost"] else DONE


def default_workers(study: "Study") -> int:
    """As many trials at a time as this machine has room for."""
    from loopscale.runner.machine.resources import local_workers

    return local_workers(study.resources)
