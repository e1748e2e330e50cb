"""The shape of what can be queried: runs as rows of trials, studies, history and curves."""

import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from loopscale.records.model.columns import kinds
from loopscale.records.model.note import EVALUATE, EVALUATED, STUDY, decode
from loopscale.records.model.run import Run

if TYPE_CHECKING:
    import pyarrow as pa

TRIALS, STUDIES = kinds("trials"), kinds("studies")
HISTORY, CURVES = {"run": "string"} | kinds("history"), {"run": "string"} | kinds("curves")
LATER = ("median",)
"""Columns of curves that older records have not got: NULL there."""
RAW_TRIALS = TRIALS | {"run": "string", "settings": "string"}
"""What the mirror keeps of a trial: settings as JSON, for their types depend on all that the store holds."""


def schema(columns: dict[str, str]) -> "pa.Schema":
    import pyarrow as pa

    made = {"timestamp[ms]": pa.timestamp("ms"), "double": pa.float64(), "string": pa.string()}
    return pa.schema([(name, made.get(kind) or pa.type_for_alias(kind)) for name, kind in columns.items()])


def trial_row(run: Run, study: str) -> dict[str, Any]:
    """`error` and its kin are those of the reported evaluation; before there is one, of the validation.

    What else a task measures is kept with the settings, and becomes a column of its own as they do; so does the task
    evaluated, as `evaluate.task.*`, where it is not the one trained on.
    """
    tags, metrics = run.tags, run.metrics
    evaluated = {
        name.removeprefix(EVALUATE): value for name, value in metrics.items() if name.startswith(EVALUATE)
    }
    measures = {name: value for name, value in evaluated.items() if name not in TRIALS}
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
        "error": metrics.get(EVALUATE + "error", metrics.get("error")),
        "error_last": metrics.get(EVALUATE + "error_last", metrics.get("error_last")),
        "raw_error": metrics.get(EVALUATE + "raw_error"),
        "excess": metrics.get(EVALUATE + "excess"),
        "validate_error": metrics.get("error"),
        "step": _integer(metrics.get("step")),
        "seconds": metrics.get("seconds"),
        "flops": metrics.get("flops"),
        "run": run.id,
        "settings": json.dumps(
            {name: decode(text) for name, text in sorted(run.params.items())}
            | measures
            | _task(tags.get(EVALUATED, ""))
        ),
    }


def completed(table: "pa.Table") -> "pa.Table":
    """A table of curves with the columns that older records have not got, as NULL."""
    import pyarrow as pa

    for name in LATER:
        if name not in table.column_names:
            table = table.append_column(name, pa.nulls(len(table), pa.float64()))
    return table


def _task(text: str) -> dict[str, Any]:
    """The settings in a tag; none in one that somebody else wrote."""
    try:
        found = json.loads(text or "{}")
    except ValueError:
        return {}
    return (
        {f"evaluate.task.{name}": value for name, value in found.items()} if isinstance(found, dict) else {}
    )


def study_row(study: str, parent: Run | None, described: str) -> dict[str, Any]:
    """`described` is the study's description (study.json), or empty."""
    about = json.loads(described or "{}")
    known = (parent.params | parent.tags) if parent else {}
    return {
        "study": study,
        "question": _said(about.get("question")) or known.get("question"),
        "source": _said(about.get("source")) or known.get("source"),
        "commit": _commit(known),
        "status": parent.status if parent else None,
        "started": parent.start if parent else None,
        "cells": json.dumps(cells if isinstance(cells := about.get("cells"), list) else []),
        "json": described or None,
    }


def typed_trials(rows: Iterable[dict[str, Any]]) -> "pa.Table":
    """Trials with a column for every setting, of a type that holds all its values; NULL where absent."""
    import pyarrow as pa

    rows = list(rows)
    settings = [json.loads(row["settings"]) for row in rows]
    names = dict.fromkeys(name for one in settings for name in one if name not in TRIALS)
    table = pa.Table.from_pylist(rows, schema(TRIALS))
    for name in sorted(names):
        values = [one.get(name) for one in settings]
        kind = _kind(values)
        values = [_text(value) for value in values] if kind == "string" else values
        table = table.append_column(
            name, pa.array(values, schema({name: kind}).field(0).type, from_pandas=False)
        )
    return table


def is_trial(run: Run) -> bool:
    return run.tags.get("trial", STUDY) != STUDY


def _kind(values: Iterable[Any]) -> str:
    kinds = {type(value) for value in values if value is not None}
    if kinds == {bool}:
        return "bool"
    if kinds == {int} and all(abs(value) < 2**63 for value in values if value is not None):
        return "int64"
    return "double" if kinds and kinds <= {int, float} else "string"


def _text(value: Any) -> str | None:
    return value if value is None or isinstance(value, str) else json.dumps(value)


def _commit(tags: dict[str, str]) -> str | None:
    """With `-dirty` behind it, as git says it, where files had been changed since."""
    found = tags.get("commit") or tags.get("git_commit")
    return found and found + "-dirty" * (tags.get("git_changed") == "yes")


def _said(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _integer(value: Any) -> int | None:
    """None also for what is no integer that a column can hold: a tag is text, and anybody may write it."""
    try:
        number = int(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return number if abs(number) < 2**63 else None
