"""`loopscale watch`: a study as a live page in the browser."""

import sys
from typing import Annotated

import typer

from loopscale.cli.clusters import cluster_from_options, complete_cluster
from loopscale.cli.options import StorageOption, StoreOption, StudyArgument, open_store, records_of
from loopscale.cli.output import say

PortOption = Annotated[
    int | None,
    typer.Option(
        "--port", min=1, max=65535, help="The port of the live page. [dim]Default: a free port[/dim]"
    ),
]


def command(
    context: typer.Context,
    study: StudyArgument,
    cluster: Annotated[
        str | None,
        typer.Option(
            "--cluster",
            metavar="NAME",
            help="The cluster that the study was submitted to: the page reads the records that its file names.",
            autocompletion=complete_cluster,
        ),
    ] = None,
    port: PortOption = None,
    store: StoreOption = None,
    storage: StorageOption = None,
) -> None:
    """Show a study as a live page in the browser, until Ctrl-C: cells, curves, points, workers, hours and failures.

    The study may run here or elsewhere, or be over. The page only reads the records. No other machine can open the
    page. `loopscale run --watch` shows a run until its end.

    With --cluster, the records are those that the cluster's file names. This machine must reach them.

    [bold]Example[/bold]  loopscale watch quickstart --store http://tracking:5000
    """
    from loopscale.interface.recorded import check_study
    from loopscale.live.watching import watch
    from loopscale.notation.files import recorded_name
    from loopscale.records.model import NoRecords

    name = recorded_name(study)
    if cluster:
        place = records_of(cluster_from_options(context, cluster, store, storage)[1])
    else:
        place = open_store(context, store, storage)

    def ready(url: str) -> None:
        say(f"the live page of {name} is at {url}; Ctrl-C stops it")
        sys.stdout.flush()

    try:
        watch(place, name, port, study, ready)
    except NoRecords:
        check_study(place, study, name)  # a wrong name has another remedy
        raise
    except KeyboardInterrupt:  # the usual end
        return
