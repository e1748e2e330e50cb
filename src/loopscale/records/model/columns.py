"""Every column of the tables that can be queried: its type, its unit, and what it says. Here and nowhere else."""

from typing import NamedTuple


class Column(NamedTuple):
    """`kind` is Arrow's name of the type; `unit` is empty where there is none to give."""

    kind: str
    unit: str
    about: str


OVER_VARIANCE = "1 = predicting nothing"
"""The unit of errors: they are divided by the variance of the target."""
SQUARED = "target's units²"

TABLES: dict[str, tuple[str, dict[str, Column]]] = {
    "trials": (
        "a row for everything that was trained, and for every classical algorithm beside it",
        {
            "trial": Column("string", "", "its key: the hash of its settings"),
            "study": Column("string", "", "the study that it is of"),
            "cell": Column(
                "string", "", "key of its combination of scientific settings; none for a baseline"
            ),
            "label": Column("string", "", "the cell in words, or the baseline's kind"),
            "role": Column("string", "", "tuning, replicate or baseline"),
            "number": Column("int64", "", "which trial of its role and cell it is"),
            "seed": Column("int64", "", "0 in tuning, 1 and up for replicates, none for a baseline"),
            "outcome": Column(
                "string",
                "",
                "running, finished, pruned, diverged, out_of_memory, failed, lost or interrupted",
            ),
            "detail": Column("string", "", "why it did not finish"),
            "commit": Column(
                "string", "", "of the code that trained it; with -dirty behind it, files were changed since"
            ),
            "error": Column(
                "double", OVER_VARIANCE, "mean over all queries at loop T, on the study's evaluation prompts"
            ),
            "error_last": Column("double", OVER_VARIANCE, "that of the last query alone"),
            "raw_error": Column("double", SQUARED, "the error without division by the target's variance"),
            "excess": Column("double", SQUARED, "raw_error less the noise"),
            "validate_error": Column(
                "double", OVER_VARIANCE, "on the validation prompts, which tuning goes by"
            ),
            "step": Column("int64", "training steps", "how far it was trained"),
            "seconds": Column("double", "s", "time that it was trained for"),
            "flops": Column("double", "FLOP", "cost of its whole training"),
        },
    ),
    "curves": (
        "a row for every loop or layer and every query of a trial's or baseline's evaluation",
        {
            "trial": Column("string", "", "the trial's key"),
            "loop": Column("int32", "count, from 1", "loops or layers or steps of the algorithm so far"),
            "point": Column("int32", "count, from 0", "pairs seen before the query"),
            "error": Column("double", OVER_VARIANCE, "mean over prompts"),
            "sem": Column("double", OVER_VARIANCE, "standard error of that mean, over prompts"),
            "raw": Column("double", SQUARED, "the error without division by the target's variance"),
            "median": Column(
                "double", OVER_VARIANCE, "median over prompts; none in records from before it was kept"
            ),
        },
    ),
    "history": (
        "a row for every metric at every step at which a trial was looked at in training",
        {
            "trial": Column("string", "", "the trial's key"),
            "step": Column("int64", "training steps", "when it was measured"),
            "metric": Column(
                "string",
                "",
                "error and error_last (validation), loss, lr, seconds, and what else is measured",
            ),
            "value": Column("double", "the metric's", "what was measured"),
        },
    ),
    "studies": (
        "a row a study",
        {
            "study": Column("string", "", "its name: its file's path below studies/"),
            "question": Column("string", "", "what it asks"),
            "source": Column("string", "", "paper and figure that the question is from"),
            "commit": Column("string", "", "of the code that last ran it, with -dirty as in trials"),
            "status": Column("string", "", "MLflow's word on its parent run: RUNNING, FINISHED, KILLED"),
            "started": Column("timestamp[ms]", "UTC", "when it was first run"),
            "cells": Column("string", "JSON", "its cells: key, label, values of the scientific settings"),
            "json": Column("string", "JSON", "all that the records keep of its file"),
        },
    ),
}
SETTINGS = Column(
    "string",
    "",
    'every setting under its dotted path, in double quotes, as in "training.loops"; none if it has not got it',
)
"""Of trials: columns that depend on what has been recorded."""


def kinds(table: str) -> dict[str, str]:
    """Arrow's type of every column of a table."""
    return {name: column.kind for name, column in TABLES[table][1].items()}
