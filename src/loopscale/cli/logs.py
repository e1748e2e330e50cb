"""`loopscale logs`: what a study's driver prints on a cluster."""

import sys
from typing import Annotated

import typer

from loopscale.cli.clusters import ClusterOption, chosen, submission_of
from loopscale.cli.options import StorageOption, StoreOption, StudyArgument


def command(
    context: typer.Context,
    study: StudyArgument,
    cluster: ClusterOption = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until the study ends.")] = False,
    store: StoreOption = None,
    storage: StorageOption = None,
) -> None:
    """What the study's driver has printed. Ctrl-C ends the looking, not the study.

    [bold]Example[/bold]  loopscale logs -f quickstart --cluster lab
    """
    name, where = chosen(context, cluster, store, storage)
    for text in where.logs(submission_of(name, where, study), follow):
        sys.stdout.write(text)
        sys.stdout.flush()
