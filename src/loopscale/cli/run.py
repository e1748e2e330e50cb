"""`loopscale run`: start, resume, extend and repair a study."""

from typing import Annotated

import typer

from loopscale.cli.errors import DONE, FAILED, STOPPED, UsageError
from loopscale.cli.options import (
    JsonOption,
    SetOption,
    StorageOption,
    StoreOption,
    StudyArgument,
    WorkersOption,
    open_store,
    parse_assignments,
)
from loopscale.cli.output import show_json, tell


def command(
    context: typer.Context,
    study: StudyArgument,
    workers: WorkersOption = None,
    address: Annotated[
        str | None,
        typer.Option(
            "--address",
            help="A running Ray cluster, such as auto. [dim]Default: start Ray on this machine[/dim]",
        ),
    ] = None,
    weight: Annotated[
        float,
        typer.Option(
            "--weight",
            min=1e-3,
            max=1e3,
            help="The study's share of a cluster, relative to the weights of the other studies there.",
        ),
    ] = 1.0,
    overrides: SetOption = None,
    as_json: JsonOption = False,
    store: StoreOption = None,
    storage: StorageOption = None,
) -> None:
    """Complete a study: start it, resume it, or train the trials that were added to it.

    A finished trial is never trained again. Ctrl-C stops the study cleanly; the same command resumes it.

    [bold]Example[/bold]  loopscale run quickstart --workers 2 --set replicates=3
    """
    changes = parse_assignments(overrides)
    try:
        code = _run(context, study, workers, address, weight, changes, as_json, store, storage)
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
    """The exit code. Raises KeyboardInterrupt after Ctrl-C."""
    from loopscale.cli.summary import summarised, summary
    from loopscale.runner.machine import InsufficientResources, require_resources
    from loopscale.runner.progress import show_progress
    from loopscale.runner.run import BudgetSpent, Interrupted, NoWorkers, Unrecorded, run
    from loopscale.studies.spec import Study
    from loopscale.training.storage import StorageUnavailable

    study = Study.load(name, overrides)
    try:
        require_resources(study.resources, address)
    except InsufficientResources as problem:
        raise UsageError(str(problem)) from problem
    records = open_store(context, store, storage, create=True)
    try:
        conductor = run(study, records, workers, address, show_progress, weight, tell)
    except Interrupted:
        raise KeyboardInterrupt from None
    except BudgetSpent as problem:
        tell(f"{problem} and `loopscale run {name}` goes on from here")
        return STOPPED
    except (NoWorkers, Unrecorded, StorageUnavailable) as problem:
        tell(f"{problem}; `loopscale run {name}` goes on from here")
        return FAILED
    answers = summary(records, conductor)
    if as_json:
        show_json(answers.to_dict())
    else:
        place = store or (context.obj and context.obj.store)
        summarised(answers, f"loopscale ui --store {place}" if place else "loopscale ui")
    return FAILED if conductor.counts()["failed"] or conductor.counts()["lost"] else DONE
