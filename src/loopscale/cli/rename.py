"""`loopscale rename` and `loopscale delete`: the name and the end of a study's records."""

import sys
from contextlib import ExitStack
from typing import Annotated

import typer

from loopscale.cli.errors import UsageError
from loopscale.cli.options import JsonOption, StorageOption, StoreOption, StudyArgument, open_store
from loopscale.cli.output import plural, say, show_json


def rename(
    context: typer.Context,
    study: StudyArgument,
    name: Annotated[str, typer.Argument(metavar="NAME", help="The new name, such as scaling/heads.")],
    as_json: JsonOption = False,
    store: StoreOption = None,
    storage: StorageOption = None,
) -> None:
    """Give the records of a study another name. Rename its file too: a run finds its records by the name of the file.

    [bold]Example[/bold]  loopscale rename heads scaling/heads
    """
    from loopscale.notation.files import new_name, recorded_name
    from loopscale.records.removal import rename_study
    from loopscale.runner.lease import lease

    place = open_store(context, store, storage)
    old, new = recorded_name(study), new_name(name)
    if old == new:
        raise UsageError(f"{old} has this name; give another one")
    with ExitStack() as held:
        for each in sorted((old, new)):
            held.enter_context(lease(place.storage, each))
        trials = rename_study(place, old, new)
    if as_json:
        show_json({"study": new, "was": old, "trials": trials})
    else:
        say(
            f"the records of {old} ({plural(trials, 'trial')}) are now those of {new}; a run of studies/{new}.yaml"
        )
        say("finds them")


def delete(
    context: typer.Context,
    study: StudyArgument,
    yes: Annotated[bool, typer.Option("--yes", help="Ask nothing.")] = False,
    as_json: JsonOption = False,
    store: StoreOption = None,
    storage: StorageOption = None,
) -> None:
    """Move the records of a study to MLflow's trash. `mlflow gc` deletes them for good, and the file stays.

    [bold]Example[/bold]  loopscale delete heads
    """
    from loopscale.notation.files import recorded_name
    from loopscale.records.removal import delete_study, trial_count
    from loopscale.runner.lease import lease

    place, name = open_store(context, store, storage), recorded_name(study)
    trials = trial_count(place.runs(place.require_experiment(name), params=False))
    if not yes:
        if as_json or not sys.stdin.isatty():
            raise UsageError(f"this deletes {plural(trials, 'trial')} of {name}; add --yes")
        if not typer.confirm(f"Delete {plural(trials, 'trial')} of {name} in {place.name}?"):
            say("nothing was deleted")
            return
    with lease(place.storage, name):
        trashed = delete_study(place, name)
    if as_json:
        show_json({"study": name, "trials": trials, "trash": trashed})
    else:
        say(f"{plural(trials, 'trial')} of {name} are in MLflow's trash, as {trashed!r}")
