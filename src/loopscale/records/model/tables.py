"""Runs as rows of the tables that can be queried: trials, studies, history and curves."""

import json
from collections.abc import Iterable
from typing import Any

from loopscale.records.deferred_imports import pa
from loopscale.records.model.columns import column_types
from loopscale.records.model.note import EVALUATE, EVALUATED, decode
from loopscale.records.model.run import Run

TRIALS, STUDIES = column_types("trials"), column_types("studies")
HISTORY, CURVES = {"run": "string"} | column_types("history"), {"run": "string"} | column_types("curves")
RAW_TRIALS = TRIALS | {"run": "string", "settings": "string"}
"""Columns of a trial in the mirror: settings are JSON, because their types depend on all trials of the store."""


def arrow_schema(columns: dict[str, str]) -> "pa.Schema":
    special = {"timestamp[ms]": pa.timestamp("ms"), "double": pa.float64(), "string": pa.string()}
    return pa.schema([(name, special.get(kind) or pa.type_for_alias(kind)) for name, kind in columns.items()])


def trial_row(run: Run, study: str) -> dict[str, Any]:
    """One row of trials.

    `error` and `error_last` are of the reported evaluation; before the evaluation, of the last validation. The task's
    other measures stand among the settings and become columns like the settings. If another task was evaluated than
    trained, its settings are there as `evaluate.task.*`.
    """
    tags, metrics = run.tags, run.metrics
    evaluated = {
        name.removeprefix(EVALUATE): value for name, value in metrics.items() if name.startswith(EVALUATE)
    }
    measures = {name: value for name, value in evaluated.items() if name not in TRIALS}
    settings = {name: decode(text) for name, text in sorted(run.params.items())}
    return {
        "trial": tags["trial"],
        "study": study,
        "cell": tags.get("cell"),
        "label": tags.get("label"),
        "role": tags.get("role"),
        "number": _integer(tags.get("number")),
        "seed": _integer(tags.get("seed")),
        "outcome": tags.get("outcome"),
        "detail": tags.get("detail"),
        "commit": _commit(tags),
        "error": evaluated.get("error", metrics.get("error")),
        "error_last": evaluated.get("error_last", metrics.get("error_last")),
        "raw_error": evaluated.get("raw_error"),
        "excess": evaluated.get("excess"),
        "validate_error": metrics.get("error"),
        "step": _integer(metrics.get("step")),
        "seconds": metrics.get("seconds"),
        "flops": metrics.get("flops"),
        "run": run.id,
        "settings": json.dumps(settings | measures | _evaluated_task(tags.get(EVALUATED, ""))),
    }


def study_row(study: str, parent: Run | None, description: str) -> dict[str, Any]:
    """One row of studies. `description` is the study's description (study.json), or empty."""
    described = json.loads(description or "{}")
    recorded = (parent.params | parent.tags) if parent else {}
    cells = described.get("cells")
    return {
        "study": study,
        "question": _text(described.get("question")) or recorded.get("question"),
        "source": _text(described.get("source")) or recorded.get("source"),
        "commit": _commit(recorded),
        "status": parent.status if parent else None,
        "started": parent.start if parent else None,
        "cells": json.dumps(cells if isinstance(cells, list) else []),
        "json": description or None,
    }


def typed_trials(rows: Iterable[dict[str, Any]]) -> "pa.Table":
    """Trials with one column per setting. The column's type holds all values; absent settings are NULL."""
    rows = list(rows)
    settings = [json.loads(row["settings"]) for row in rows]
    names = {name for tree in settings for name in tree if name not in TRIALS}
    table = pa.Table.from_pylist(rows, arrow_schema(TRIALS))
    for name in sorted(names):
        values = [tree.get(name) for tree in settings]
        kind = _column_type(values)
        if kind == "string":
            values = [
                value if value is None or isinstance(value, str) else json.dumps(value) for value in values
            ]
        column = pa.array(values, arrow_schema({name: kind}).field(0).type, from_pandas=False)
        table = table.append_column(name, column)
    return table


def _evaluated_task(text: str) -> dict[str, Any]:
    """The settings in the tag. A tag may hold anything, because people can edit tags: then there are none."""
    try:
        task = json.loads(text or "{}")
    except ValueError:
        return {}
    return {f"evaluate.task.{name}": value for name, value in task.items()} if isinstance(task, dict) else {}


def _column_type(values: Iterable[Any]) -> str:
    types = {type(value) for value in values if value is not None}
    if types == {bool}:
        return "bool"
    if types == {int} and all(abs(value) < 2**63 for value in values if value is not None):
        return "int64"
    return "double" if types and types <= {int, float} else "string"


def _commit(tags: dict[str, str]) -> str | None:
    """The commit, with `-dirty` as git prints it if there were uncommitted changes."""
    commit = tags.get("commit") or tags.get("git_commit")
    return commit and commit + "-dirty" * (tags.get("git_changed") == "yes")


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _integer(value: Any) -> int | None:
    """The number, or None if a column cannot hold it. Tags are text that people can edit."""
    try:
        number = int(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if abs(number) < 2**63 else None
