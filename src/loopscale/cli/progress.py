"""What `loopscale status STUDY` says of a study beyond its submission: its trials, its hosts, and what each trains."""

from dataclasses import asdict
from typing import Any

from loopscale.cli.options import records_of
from loopscale.cli.output import format_outcomes, format_value, say, show_table
from loopscale.core.visible import visible
from loopscale.interface import types

LISTED_TRIALS = 40
"""The largest number of trials in a table for people. JSON has all of them."""


def progress_of(cluster: "types.Cluster", submission: "types.Submission") -> dict[str, Any]:
    """The trials, the spending, and for a study that runs also its hosts and running trials, as plain data.

    `records` and `unknown_hosts` say why this machine cannot read them.
    """
    from loopscale.cluster.base import ENDED
    from loopscale.errors import ClusterError
    from loopscale.records.model import NoRecords, StoreError

    runs = submission.state not in ENDED
    progress: dict[str, Any]
    try:
        progress = _recorded(records_of(cluster), submission.study, runs)
    except NoRecords as problem:  # the remedy, `loopscale run`, is for studies that were not submitted
        progress = {"records": str(problem).partition("; ")[0]}
    except StoreError as problem:
        progress = {"records": str(problem)}
    if runs:
        try:
            progress["hosts"] = [asdict(host) for host in cluster.host_states(submission)]
        except ClusterError as problem:
            progress["unknown_hosts"] = str(problem)
    return progress


def _recorded(store: "types.Store", study: str, runs: bool) -> dict[str, Any]:
    """The progress in the study's records. Raises StoreError."""
    from loopscale.interface.listing import TRIALS_SQL, trial_counts
    from loopscale.records.mirror import Mirror
    from loopscale.records.study_records import spending_of

    mirror = Mirror(store)
    mirror.sync()
    rows = mirror.query("SELECT study, cells FROM studies").to_pylist()
    recorded = next((row for row in rows if row["study"] == study), {"study": study, "cells": None})
    counts = trial_counts(recorded, mirror.query(TRIALS_SQL).to_pylist())
    spending = spending_of(store, study)
    progress: dict[str, Any] = {
        "outcomes": dict(counts.outcomes),
        "error": counts.error,
        "spent": spending.used,
        "budget": spending.budget,
    }
    return progress | ({"running": _running_trials(store, study)} if runs else {})


def _running_trials(store: "types.Store", study: str) -> list[dict[str, Any]]:
    """The trials that have begun and not ended, by their hosts. A host is known after the first validation."""
    from loopscale.live.recorded_study import LiveTrial, worker

    experiment = store.find_experiment(study)
    found = store.search([experiment], "attributes.status = 'RUNNING'") if experiment else []
    trials = (LiveTrial(run, 0) for run in found if run.is_trial)
    rows = [worker(trial) for trial in trials if trial.outcome == "running"]
    return sorted(rows, key=lambda row: (row["host"], row["cell"], row["id"]))


def show_progress(progress: dict[str, Any]) -> None:
    """Print the answer of `progress_of` for people."""
    from loopscale.records.study_records import Spending

    if "records" in progress:
        say(f"this machine cannot read its records: {progress['records']}")
    else:
        say(f"trials: {format_outcomes(progress['outcomes']) or 'none yet'}")
        if progress["error"] is not None:
            say(f"lowest error so far: {progress['error']:.4g}")
        if progress["spent"]:
            say(f"used {Spending(progress['spent'], progress['budget'])}")
    if "unknown_hosts" in progress:
        say(f"this machine cannot see its hosts: {progress['unknown_hosts']}")
    if hosts := progress.get("hosts"):
        say()
        show_table(
            ["host", "state", "has", "waits for"],
            [[visible(host[name]) for name in ("name", "state", "holds", "reason")] for host in hosts],
        )
    if running := progress.get("running"):
        say()
        show_table(
            ["trial", "cell", "does", "step", "error", "host"], [_row(row) for row in running[:LISTED_TRIALS]]
        )
        if len(running) > LISTED_TRIALS:
            say(f"and {len(running) - LISTED_TRIALS:,} more; --json lists all of them")


def _row(row: dict[str, Any]) -> list[str]:
    """A running trial. `loopscale logs STUDY --trial KEY` takes the beginning of a key."""
    step = f"{row['step']:,} of {row['steps']:,}" if row["steps"] else ""
    does = row["does"] + (f", attempt {row['attempt']}" if row["attempt"] > 1 else "")
    error = "" if row["error"] is None else format_value(row["error"])
    return [row["id"][:10], row["cell"], does, step, error, row["host"]]
