"""`loopscale status`: how the studies that were submitted to a cluster stand."""

import time
from typing import TYPE_CHECKING, Annotated, Any

import typer

from loopscale.cli.clusters import ClusterOption, chosen, submission_of
from loopscale.cli.options import JsonOption, StorageOption, StoreOption
from loopscale.cli.output import clock, say, show_json, show_table

if TYPE_CHECKING:
    from loopscale.cluster.base import Cluster, Submission

TRIALS = """
    SELECT coalesce(outcome, 'running') AS outcome, count(*) AS number, min(error) AS error
    FROM trials WHERE study = '{study}' AND role <> 'baseline' GROUP BY ALL ORDER BY number DESC
"""


def command(
    context: typer.Context,
    study: Annotated[
        str | None, typer.Argument(metavar="[STUDY]", help="A study, or a submission's id; else all.")
    ] = None,
    cluster: ClusterOption = None,
    as_json: JsonOption = False,
    store: StoreOption = None,
    storage: StorageOption = None,
) -> None:
    """What was submitted to a cluster, and for one study how far its trials have got and what it has spent.

    [bold]Example[/bold]  loopscale status quickstart --cluster lab
    """
    name, where = chosen(context, cluster, store, storage)
    if study is None:
        listed(name, where, as_json)
        return
    found = submission_of(name, where, study)
    progress = _progress(where, found.study)
    if as_json:
        show_json(found.document() | progress)
        return
    show_table(["id", "state", "since", "took"], [_row(found)])
    if found.detail:
        say(found.detail)
    for line in _lines(progress):
        say(line)


def listed(name: str, cluster: "Cluster", as_json: bool) -> None:
    """Everything that the cluster remembers."""
    found = cluster.submissions(name)
    if as_json:
        show_json([each.document() for each in found])
    elif not found:
        say(f"nothing was submitted to {name} yet; `loopscale submit STUDY --cluster {name}` does it")
    else:
        show_table(["study", "id", "state", "since", "took"], [[each.study, *_row(each)] for each in found])


def _row(each: "Submission") -> list[Any]:
    since = each.started and time.strftime("%Y-%m-%d %H:%M", time.localtime(each.started))
    took = each.started and clock((each.ended or time.time()) - each.started)
    return [each.id, each.state, since, took]


def _progress(cluster: "Cluster", study: str) -> dict[str, Any]:
    """What the records say, where they can be reached from here; else why not."""
    from loopscale.records.mirror.store_mirror import Mirror
    from loopscale.records.model.errors import StoreError
    from loopscale.records.stores.opening import open_store
    from loopscale.records.study_run import spending_of

    try:
        store = open_store(
            cluster.store, None if cluster.store and "://" in cluster.store else cluster.storage
        )
        mirror = Mirror(store)
        mirror.sync()
        rows = mirror.query(TRIALS.format(study=study.replace("'", "''"))).to_pylist()
        used = spending_of(store, study)
    except StoreError as problem:
        return {"records": str(problem)}
    errors = [row["error"] for row in rows if row["error"] is not None]
    return {
        "outcomes": {row["outcome"]: row["number"] for row in rows},
        "error": min(errors, default=None),
        "spent": used.used,
        "budget": used.budget,
    }


def _lines(progress: dict[str, Any]) -> list[str]:
    if "records" in progress:
        return [f"its records cannot be read from here: {progress['records']}"]
    outcomes = ", ".join(
        f"{number} {name.replace('_', ' ')}" for name, number in progress["outcomes"].items()
    )
    lines = [f"trials: {outcomes or 'none yet'}"]
    if progress["error"] is not None:
        lines.append(f"lowest error so far: {progress['error']:.4g}")
    for name, hours in progress["spent"].items():
        limit = progress["budget"].get(name)
        lines.append(f"{name.replace('_', '-')}: {hours:.3g}" + (f" of {limit:g}" if limit else ""))
    return lines
