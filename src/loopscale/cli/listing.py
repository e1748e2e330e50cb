"""`loopscale list`: the studies that have records, and how they stand."""

from typing import Any

import typer

from loopscale.cli.clusters import ClusterOption, cluster_from_options, show_submissions
from loopscale.cli.options import JsonOption, StorageOption, StoreOption, WideOption, open_store
from loopscale.cli.output import format_outcomes, say, show_json, show_table


def command(
    context: typer.Context,
    cluster: ClusterOption = None,
    wide: WideOption = False,
    as_json: JsonOption = False,
    store: StoreOption = None,
    storage: StorageOption = None,
) -> None:
    """The studies that have records: question, trials by outcome, who runs them now, lowest error of a trial.

    With --cluster, what was submitted there instead.

    [bold]Example[/bold]  loopscale list --store /data/loopscale
    """
    if cluster:
        show_submissions(*cluster_from_options(context, cluster, store, storage), as_json)
        return
    from loopscale.interface.listing import recorded_studies
    from loopscale.records.mirror import Mirror

    mirror = Mirror(open_store(context, store, storage))
    mirror.sync()
    studies = recorded_studies(mirror)
    if as_json:
        show_json(studies)
    elif not studies:
        say(f"no studies in {mirror.store.name} yet; `loopscale run` makes them")
    else:
        columns = ["study", "question", "trials", "state", "lowest error"]
        show_table(columns, map(_row, studies), leaving=[] if wide else [[columns.index("question")]])


def _row(study: dict[str, Any]) -> list[Any]:
    total = sum(study["outcomes"].values())
    planned = study["planned"] or 0
    if planned < total:  # an earlier form of the study had other trials
        counted = f"{total} (the study now plans {planned})" if planned else str(total)
    else:
        counted = f"{total} of {planned}"
    outcomes = format_outcomes(study["outcomes"])
    state = f"running, by {study['running_by']}" if study["running_by"] else study["state"]
    state = f"{state}; {study['ordered']}" if study["ordered"] else state
    trials = f"{counted}: {outcomes}" if outcomes else counted
    if changed := study["changed_plugins"]:
        state += f"; {' and '.join(changed)} changed since"
    return [study["study"], study["question"], trials, state, study["error"]]
