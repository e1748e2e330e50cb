"""`loopscale list`: the studies that have records, and how they stand."""

import json
from typing import TYPE_CHECKING, Any

import typer

from loopscale.cli.clusters import ClusterOption, cluster_from_options, show_submissions
from loopscale.cli.options import JsonOption, StorageOption, StoreOption, open_store
from loopscale.cli.output import format_outcomes, say, show_json, show_table

if TYPE_CHECKING:  # see loopscale.cli
    from loopscale.records.mirror import Mirror

STATES = {"FINISHED": "finished", "KILLED": "stopped", "RUNNING": "cut short"}
"""What nobody holds, by the last word on its parent run."""
TRIALS = """
    SELECT study, coalesce(outcome, 'running') AS outcome, count(*) AS number,
           min(CASE WHEN outcome = 'finished' AND isfinite(error) THEN error END) AS error
    FROM trials WHERE role <> 'baseline' GROUP BY ALL ORDER BY number DESC
"""


def command(
    context: typer.Context,
    cluster: ClusterOption = None,
    as_json: JsonOption = False,
    store: StoreOption = None,
    storage: StorageOption = None,
) -> None:
    """The studies that have records: question, trials by outcome, who runs them now, lowest error.

    With --cluster, what was submitted there instead.

    [bold]Example[/bold]  loopscale list --store /data/loopscale
    """
    if cluster:
        show_submissions(*cluster_from_options(context, cluster, store, storage), as_json)
        return
    from loopscale.records.mirror import Mirror

    mirror = Mirror(open_store(context, store, storage))
    mirror.sync()
    studies = _studies(mirror)
    if as_json:
        show_json(studies)
    elif not studies:
        say(f"no studies in {mirror.store.name} yet; `loopscale run` makes them")
    else:
        show_table(["study", "question", "trials", "state", "lowest error"], map(_row, studies))


def _studies(mirror: "Mirror") -> list[dict[str, Any]]:
    from loopscale.runner.lease import lock_holder

    counts = mirror.query(TRIALS).to_pylist()
    found = []
    for row in mirror.query("SELECT * FROM studies ORDER BY study").to_pylist():
        mine = [count for count in counts if count["study"] == row["study"]]
        by = lock_holder(mirror.store.storage, row["study"])
        found.append(
            {
                "study": row["study"],
                "question": row["question"],
                "source": row["source"],
                "cells": len(json.loads(row["cells"] or "[]")),
                "planned": json.loads(row["json"] or "{}").get("planned"),
                "outcomes": {count["outcome"]: count["number"] for count in mine},
                "state": "running" if by else STATES.get(row["status"], row["status"]),
                "running_by": by,
                "error": min((count["error"] for count in mine if count["error"] is not None), default=None),
                "started": row["started"],
            }
        )
    return found


def _row(study: dict[str, Any]) -> list[Any]:
    total = sum(study["outcomes"].values())
    planned = f"{total} of {study['planned']}" if study["planned"] else str(total)
    outcomes = format_outcomes(study["outcomes"])
    state = f"running, by {study['running_by']}" if study["running_by"] else study["state"]
    trials = f"{planned}: {outcomes}" if outcomes else planned
    return [study["study"], study["question"], trials, state, study["error"]]
