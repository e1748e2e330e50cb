"""The columns of the tables that can be queried: type, unit and description."""

from typing import NamedTuple, get_args

from loopscale.records.model.note import Outcome


class Column(NamedTuple):
    """One column: the Arrow name of its type, its unit or an empty text, and its description."""

    kind: str
    unit: str
    about: str


OVER_VARIANCE = "1 = predicting nothing"
"""The unit of errors: errors are divided by the variance of the target."""
SQUARED = "target's units²"

TABLES: dict[str, tuple[str, dict[str, Column]]] = {
    "trials": (
        "one row per trained trial and per baseline (a classical algorithm on the same prompts)",
        {
            "trial": Column("string", "", "key of the trial: the hash of its settings"),
            "study": Column("string", "", "name of the study"),
            "cell": Column("string", "", "key of the cell: the scientific settings; empty for a baseline"),
            "label": Column("string", "", "the cell in words, or the kind of the baseline"),
            "role": Column("string", "", "tuning, replicate or baseline"),
            "number": Column("int64", "", "number of the trial within its role and cell"),
            "seed": Column("int64", "", "0 in tuning, 1 and up for replicates, NULL for a baseline"),
            "outcome": Column("string", "", "running, " + ", ".join(get_args(Outcome))),
            "detail": Column("string", "", "the reason, if the trial did not finish"),
            "commit": Column("string", "", "commit of the training code; -dirty: with uncommitted changes"),
            "error": Column("double", OVER_VARIANCE, "mean over queries at loop T, on evaluation prompts"),
            "error_last": Column("double", OVER_VARIANCE, "error of the last query alone"),
            "raw_error": Column("double", SQUARED, "error without division by the target's variance"),
            "excess": Column("double", SQUARED, "raw_error minus the variance of the noise"),
            "validate_error": Column("double", OVER_VARIANCE, "error on the validation prompts, for tuning"),
            "step": Column("int64", "training steps", "number of steps trained so far"),
            "seconds": Column("double", "s", "training time"),
            "flops": Column("double", "FLOP", "cost of the whole training"),
        },
    ),
    "curves": (
        "one row per loop (or layer) and query, for every evaluated trial and baseline",
        {
            "trial": Column("string", "", "key of the trial"),
            "loop": Column("int32", "count, from 1", "number of loops, layers or steps of the algorithm"),
            "point": Column("int32", "count, from 0", "pairs seen before the query"),
            "error": Column("double", OVER_VARIANCE, "mean over prompts"),
            "sem": Column("double", OVER_VARIANCE, "standard error of the mean over prompts"),
            "raw": Column("double", SQUARED, "error without division by the target's variance"),
            "median": Column("double", OVER_VARIANCE, "median over prompts; NULL in older records"),
        },
    ),
    "history": (
        "one row per metric and step, for every validation during the training of a trial",
        {
            "trial": Column("string", "", "key of the trial"),
            "step": Column("int64", "training steps", "step of the measurement"),
            "metric": Column("string", "", "error, error_last (validation), loss, lr, seconds, others"),
            "value": Column("double", "the metric's", "value of the metric"),
        },
    ),
    "studies": (
        "one row per study",
        {
            "study": Column("string", "", "name of the study: the path of its file below studies/"),
            "question": Column("string", "", "question of the study"),
            "source": Column("string", "", "paper and figure of the question"),
            "commit": Column("string", "", "commit of the code that last ran the study; -dirty as in trials"),
            "status": Column("string", "", "MLflow's status of the parent run: RUNNING, FINISHED, KILLED"),
            "started": Column("timestamp[ms]", "UTC", "time of the first run"),
            "cells": Column("string", "JSON", "cells: key, label, values of the scientific settings"),
            "json": Column("string", "JSON", "the study's whole description"),
        },
    ),
}
SETTINGS = Column(
    "string",
    "",
    'one column per setting, under its dotted path in double quotes, as in "training.loops"; NULL if it does not apply',
)
"""Further columns of trials. They depend on the recorded settings."""


def column_types(table: str) -> dict[str, str]:
    """The Arrow type of every column of a table."""
    return {name: column.kind for name, column in TABLES[table][1].items()}
