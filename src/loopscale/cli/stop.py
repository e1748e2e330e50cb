"""`loopscale stop`: end a submitted study cleanly; submitting it again goes on."""

import typer

from loopscale.cli.clusters import ClusterOption, chosen, submission_of
from loopscale.cli.options import JsonOption, StorageOption, StoreOption, StudyArgument
from loopscale.cli.output import say, show_json


def command(
    context: typer.Context,
    study: StudyArgument,
    cluster: ClusterOption = None,
    as_json: JsonOption = False,
    store: StoreOption = None,
    storage: StorageOption = None,
) -> None:
    """Stop a study on a cluster as Ctrl-C would: its state is saved, and `loopscale submit` goes on from there.

    [bold]Example[/bold]  loopscale stop quickstart --cluster lab
    """
    from loopscale.cluster.base import ENDED

    name, where = chosen(context, cluster, store, storage)
    found = submission_of(name, where, study)
    running = found.state not in ENDED
    if running:
        where.stop(found)
        found = next((each for each in where.submissions(name) if each.id == found.id), found)
    if as_json:
        show_json(found.document())
    elif running:
        say(f"{found.id} has stopped; `loopscale submit {found.study} --cluster {name}` goes on from there")
    else:
        say(f"{found.id} is not running: it has {found.state}")
