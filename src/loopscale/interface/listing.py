"""The studies of a store, and how they stand."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from loopscale.interface import types

STATES = {"FINISHED": "finished", "KILLED": "stopped", "RUNNING": "cut short"}
"""The state of a study without a driver, by the last status of its parent run."""
TRIALS_SQL = """
    SELECT study, cell, coalesce(outcome, 'running') AS outcome, count(*) AS number,
           min(CASE WHEN outcome = 'finished' AND isfinite(error) THEN error END) AS error
    FROM trials WHERE role <> 'baseline' GROUP BY ALL ORDER BY study, number DESC, outcome
"""


@dataclass(frozen=True)
class TrialCounts:
    """Number of a study's trials by outcome: tuning trials and replicates of the cells that the study has now."""

    outcomes: Mapping[str, int]
    error: float | None
    """The lowest error of a finished trial."""


def trial_counts(study: Mapping[str, Any], rows: Iterable[Mapping[str, Any]]) -> TrialCounts:
    """Count the trials of one row of `studies`. `rows` is the answer to `TRIALS_SQL`."""
    read = json.loads(study["cells"] or "[]")
    cells = {
        cell["key"] for cell in read if isinstance(cell, Mapping) and "key" in cell
    }  # files may be damaged
    present = [row for row in rows if row["study"] == study["study"] and (row["cell"] in cells or not cells)]
    outcomes = Counter[str]()
    for row in present:
        outcomes[row["outcome"]] += row["number"]
    errors = (row["error"] for row in present if row["error"] is not None)
    return TrialCounts(dict(outcomes.most_common()), min(errors, default=None))


def recorded_studies(mirror: "types.Mirror") -> list[dict[str, Any]]:
    """Every study with records: question, trials by outcome, state, lowest error."""
    from loopscale.notation.plugins import changed_plugins
    from loopscale.records.decisions import order_words, recorded_decisions
    from loopscale.runner.lease import lock_holder

    rows = mirror.query(TRIALS_SQL).to_pylist()
    studies: list[dict[str, Any]] = []
    for row in mirror.query("SELECT * FROM studies ORDER BY study").to_pylist():
        counts = trial_counts(row, rows)
        document = json.loads(row["json"] or "{}")
        decisions = recorded_decisions(document.get("decisions") or {})
        driver = lock_holder(mirror.store.storage, row["study"])
        studies.append(
            {
                "study": row["study"],
                "question": row["question"],
                "source": row["source"],
                "cells": len(json.loads(row["cells"] or "[]")),
                "planned": document.get("planned"),
                "ordered": order_words(decisions, document.get("replicates") or 1) or None,
                "outcomes": dict(counts.outcomes),
                "state": "running" if driver else STATES.get(row["status"], row["status"]),
                "running_by": driver,
                "changed_plugins": changed_plugins(row["study"], document),
                "error": counts.error,
                "started": row["started"],
            }
        )
    return studies
