"""The tables that can be queried: their columns with units, and their rows, made from runs; and the file of a curve."""

import io
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from loopscale.records.deferred_imports import pa, parquet
from loopscale.records.model import (
    DECISION,
    EVALUATE,
    EVALUATED,
    EXAMPLES_TAG,
    LEARNING,
    PREDICTION,
    STEPS_FACTOR,
    Outcome,
    Run,
    decode,
    encode,
    tags_below,
)

Grid = NDArray[np.float64]
MALFORMED = (OSError, ValueError, TypeError, LookupError, OverflowError, MemoryError, NotImplementedError)
"""Exceptions of pyarrow for damaged Parquet, besides pyarrow's ArrowException."""
PLAY_COLUMNS = ("play_regret", "play_regret_sem", "play_regret_greedy")
"""Columns of the pseudo-regret of play, which tasks without play lack."""
LATER_COLUMNS = ("median", "regret", "regret_sem", *PLAY_COLUMNS)
"""Columns that older records lack. They are NULL there."""


class RecordColumn(NamedTuple):
    """One column: the Arrow name of its type, its unit or an empty text, and its description."""

    kind: str
    unit: str
    about: str


REGRETS = ("regret", "regret_sem", "regret_last", "regret_last_sem")
OVER_VARIANCE = "1 = predicting nothing"
"""The unit of errors: errors are divided by the variance of the target."""
SQUARED = "target's units²"

TABLES: dict[str, tuple[str, dict[str, RecordColumn]]] = {
    "trials": (
        "one row per trained trial and per baseline (a classical algorithm on the same prompts)",
        {
            "trial": RecordColumn("string", "", "key of the trial: the hash of its settings"),
            "study": RecordColumn("string", "", "name of the study"),
            "cell": RecordColumn(
                "string", "", "key of the cell: the scientific settings; empty for a baseline"
            ),
            "label": RecordColumn("string", "", "the cell in words, or the kind of the baseline"),
            "role": RecordColumn("string", "", "tuning, replicate or baseline"),
            "number": RecordColumn("int64", "", "number of the trial within its role and cell"),
            "seed": RecordColumn("int64", "", "0 in tuning, 1 and up for replicates, NULL for a baseline"),
            "steps_factor": RecordColumn(
                "int64",
                "",
                "steps over the steps of the study; NULL except for trainings that until.steps ordered",
            ),
            "outcome": RecordColumn("string", "", "running, " + ", ".join(get_args(Outcome))),
            "detail": RecordColumn("string", "", "the reason, if the trial did not finish"),
            "commit": RecordColumn(
                "string", "", "commit of the training code; -dirty: with uncommitted changes"
            ),
            "error": RecordColumn(
                "double", OVER_VARIANCE, "mean over queries at loop T, on evaluation prompts"
            ),
            "error_last": RecordColumn("double", OVER_VARIANCE, "error of the last query alone"),
            "raw_error": RecordColumn("double", SQUARED, "error without division by the target's variance"),
            "excess": RecordColumn("double", SQUARED, "raw_error minus the variance of the noise"),
            "regret": RecordColumn(
                "double", OVER_VARIANCE, "error above the floor on the same prompts; NULL in older records"
            ),
            "regret_sem": RecordColumn("double", OVER_VARIANCE, "standard error of regret over prompts"),
            "regret_last": RecordColumn("double", OVER_VARIANCE, "regret of the last query alone"),
            "regret_last_sem": RecordColumn(
                "double", OVER_VARIANCE, "standard error of regret_last over prompts"
            ),
            "floor": RecordColumn(
                "string", "", "how the floor is known: bayes, exact, bound or reference, and the algorithm"
            ),
            "validate_error": RecordColumn(
                "double", OVER_VARIANCE, "error on the validation prompts, for tuning"
            ),
            "validate_floor": RecordColumn("double", OVER_VARIANCE, "floor on the validation prompts"),
            "validate_ignorance": RecordColumn(
                "double", OVER_VARIANCE, "error of the best fixed guess on the validation prompts"
            ),
            "emerged_at": RecordColumn(
                "double",
                "training steps",
                "first of two consecutive validations below half of the reducible error; NULL if never",
            ),
            "still_falling": RecordColumn(
                "double",
                "share",
                "fall of the regret per doubling of the steps, over the last half of the steps",
            ),
            "still_falling_low": RecordColumn(
                "double", "share", "lower end of its 95 % interval, from this run alone"
            ),
            "still_falling_high": RecordColumn("double", "share", "upper end of its 95 % interval"),
            "step": RecordColumn("int64", "training steps", "number of steps trained so far"),
            "seconds": RecordColumn("double", "s", "training time"),
            "flops": RecordColumn("double", "FLOP", "cost of the whole training"),
        },
    ),
    "curves": (
        "one row per loop (or layer) and query, for every evaluated trial and baseline",
        {
            "trial": RecordColumn("string", "", "key of the trial"),
            "loop": RecordColumn(
                "int32", "count, from 1", "number of loops, layers or steps of the algorithm"
            ),
            "point": RecordColumn("int32", "count, from 0", "pairs seen before the query"),
            "error": RecordColumn("double", OVER_VARIANCE, "mean over prompts"),
            "sem": RecordColumn("double", OVER_VARIANCE, "standard error of the mean over prompts"),
            "raw": RecordColumn("double", SQUARED, "error without division by the target's variance"),
            "median": RecordColumn("double", OVER_VARIANCE, "median over prompts; NULL in older records"),
            "regret": RecordColumn("double", OVER_VARIANCE, "error above the floor; NULL in older records"),
            "regret_sem": RecordColumn("double", OVER_VARIANCE, "standard error of regret over prompts"),
            "play_regret": RecordColumn(
                "double",
                "reward",
                "cumulative pseudo-regret of sampled play, this round included; NULL without play at this loop",
            ),
            "play_regret_sem": RecordColumn("double", "reward", "standard error of play_regret over games"),
            "play_regret_greedy": RecordColumn("double", "reward", "the same of greedy play"),
        },
    ),
    "history": (
        "one row per metric and step, for every validation during the training of a trial",
        {
            "trial": RecordColumn("string", "", "key of the trial"),
            "step": RecordColumn("int64", "training steps", "step of the measurement"),
            "metric": RecordColumn("string", "", "error, error_last (validation), loss, lr, seconds, others"),
            "value": RecordColumn("double", "the metric's", "value of the metric"),
        },
    ),
    "studies": (
        "one row per study",
        {
            "study": RecordColumn("string", "", "name of the study: the path of its file below studies/"),
            "question": RecordColumn("string", "", "question of the study"),
            "source": RecordColumn("string", "", "paper and figure of the question"),
            "commit": RecordColumn(
                "string", "", "commit of the code that last ran the study; -dirty as in trials"
            ),
            "status": RecordColumn(
                "string", "", "MLflow's status of the parent run: RUNNING, FINISHED, KILLED"
            ),
            "started": RecordColumn("timestamp[ms]", "UTC", "time of the first run"),
            "cells": RecordColumn("string", "JSON", "cells: key, label, values of the scientific settings"),
            "json": RecordColumn("string", "JSON", "the study's whole description"),
        },
    ),
}
SETTINGS = RecordColumn(
    "string",
    "",
    'one column per setting, under its dotted path in double quotes, as in "training.loops"; NULL if it does not apply',
)
"""Further columns of trials. They depend on the recorded settings."""


LATEST_TIME = 253_402_300_800_000
"""Milliseconds from 1970 to the year 10000, which no calendar of Python reaches. A damaged record may hold more."""
HIDDEN = {"_run": "string", "_first": "bool"}
"""Columns of the merged trials that no query sees."""


def _column_types(table: str) -> dict[str, str]:
    """The Arrow type of every column of a table."""
    return {name: column.kind for name, column in TABLES[table][1].items()}


TRIALS, STUDIES = _column_types("trials"), _column_types("studies")
HISTORY, CURVES = {"run": "string"} | _column_types("history"), {"run": "string"} | _column_types("curves")
MIRRORED = {
    "trials": TRIALS | {"run": "string", "settings": "string"},
    "merged": TRIALS | HIDDEN,
    "study": STUDIES,
    "history": HISTORY,
    "curves": CURVES,
}
"""Columns of the mirror's files, by the first word of their names.

Settings of trials are JSON, because their types depend on all trials of the store.
"""


def trial_row(run: Run, study: str) -> dict[str, Any]:
    """One row of trials.

    `error` and `error_last` are of the reported evaluation; before the end of the trial, of the last validation. A
    finished trial without an evaluation has none, because errors of different prompts cannot be compared. The task's
    other measures stand among the settings and become columns like the settings. If another task was evaluated than
    trained, its settings are there as `evaluate.task.*`.
    """
    tags, metrics = run.tags, run.metrics
    evaluated = {
        name.removeprefix(EVALUATE): value for name, value in metrics.items() if name.startswith(EVALUATE)
    }
    latest = evaluated if tags.get("outcome") == "finished" else metrics | evaluated
    measures = {name: value for name, value in evaluated.items() if name not in TRIALS}
    settings = {name: decode(text) for name, text in sorted(run.params.items())}
    settings |= measures | _evaluated_task(tags.get(EVALUATED, ""))
    if EXAMPLES_TAG in tags:
        settings[EXAMPLES_TAG] = tags[EXAMPLES_TAG]
    return {
        **{name: tags.get(name) for name in ("trial", "cell", "label", "role", "outcome", "detail", "floor")},
        **{name: latest.get(name) for name in ("error", "error_last")},
        **{name: evaluated.get(name) for name in ("raw_error", "excess", *REGRETS)},
        **{name: metrics.get(name) for name in ("seconds", "flops", *LEARNING)},
        **{name: _integer(tags.get(name)) for name in ("number", "seed", STEPS_FACTOR)},
        "study": study,
        "commit": _commit(tags),
        "validate_error": metrics.get("error"),
        "step": _integer(metrics.get("step")),
        "run": run.id,
        "settings": json.dumps(settings),
    }


def study_row(study: str, parent: Run | None, description: str) -> dict[str, Any]:
    """One row of studies. `description` is the study's description (study.json), or empty.

    The row's description also holds the recorded predictions and decisions, which are tags of the parent run.
    """
    described = json.loads(description or "{}")
    recorded = (parent.params | parent.tags) if parent else {}
    added = {"predictions": tags_below(PREDICTION, recorded), "decisions": tags_below(DECISION, recorded)}
    if described and any(added.values()):
        description = json.dumps(described | {name: tags for name, tags in added.items() if tags})
    cells = described.get("cells")
    return {
        "study": study,
        "question": _text(described.get("question")) or recorded.get("question"),
        "source": _text(described.get("source")) or recorded.get("source"),
        "commit": _commit(recorded),
        "status": parent.status if parent else None,
        "started": parent.start if parent and 0 <= parent.start < LATEST_TIME else None,
        "cells": json.dumps(cells if isinstance(cells, list) else []),
        "json": description or None,
    }


def merged_trials(tables: Sequence["pa.Table"]) -> "pa.Table":
    """The trials of all studies with one column per setting, and the columns of `HIDDEN`.

    The type of a setting's column holds all values; absent settings are NULL. `_first` is false if an earlier study has
    the same trial.
    """
    trials = pa.concat_tables([pa.schema(MIRRORED["trials"]).empty_table(), *tables])
    settings = [json.loads(text) for text in trials["settings"].to_pylist()]
    names = {name for tree in settings for name in tree if name not in TRIALS}
    keys, runs = trials["trial"].to_pylist(), trials["run"].to_pylist()
    first = dict(zip(reversed(keys), reversed(runs), strict=True))
    hidden = [runs, [first[key] == run for key, run in zip(keys, runs, strict=True)]]
    table = trials.select(list(TRIALS))
    for (name, kind), values in zip(HIDDEN.items(), hidden, strict=True):
        table = table.append_column(name, pa.array(values, kind))
    for name in sorted(names):
        values = [tree.get(name) for tree in settings]
        kind = _column_type(values)
        if kind == "string":
            values = [None if value is None else encode(value) for value in values]
        table = table.append_column(name, pa.array(values, kind, from_pandas=False))
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


def encode_curve(
    error: Grid,
    sem: Grid,
    raw: Grid,
    median: Grid | None = None,
    seen: Sequence[int] | None = None,
    regret: tuple[Grid, Grid] | None = None,
    measures: Mapping[str, Grid] | None = None,
    play: tuple[int, Grid, Grid, Grid] | None = None,
) -> bytes:
    """A Parquet file of arrays [loops, points], with the columns of `CURVES` from `loop` on. Loops count from 1.

    Without a median or a regret, the file lacks these columns. `seen` has the number of pairs before every point. The
    default is 0, 1, 2 and so on. Further measures have one value per loop, [loops], and columns of their own. `play` is
    the loop of play and the rows [points] of `PLAY_COLUMNS`. All other loops have NULL there. A loop beyond the
    last one is the last one.
    """
    loops, points = error.shape
    pairs = np.arange(points) if seen is None else np.array(seen)
    grids = {"error": error, "sem": sem, "raw": raw} | ({} if median is None else {"median": median})
    grids |= dict(zip(("regret", "regret_sem"), regret or (), strict=False))
    grids |= {name: np.repeat(values, points) for name, values in (measures or {}).items()}
    columns = {
        "loop": pa.array(np.repeat(np.arange(1, loops + 1), points), pa.int32()),
        "point": pa.array(np.tile(pairs, loops), pa.int32()),
    } | {name: grid.ravel() for name, grid in grids.items()}
    if play:
        for name, row in zip(PLAY_COLUMNS, play[1:], strict=True):
            grid = np.full((loops, points), np.nan)
            grid[min(play[0], loops) - 1] = row
            columns[name] = pa.array(grid.ravel(), from_pandas=True)
    return parquet_bytes(pa.table(columns))


def decode_curve(content: bytes) -> dict[str, Grid]:
    """The arrays [loops, points] of a curve's file by column: the inverse of `encode_curve`."""
    table = parquet.read_table(io.BytesIO(content), page_checksum_verification=True)
    loop, point = (table[name].to_numpy() for name in ("loop", "point"))
    loops, row = np.unique(loop, return_inverse=True)
    points, column = np.unique(point, return_inverse=True)
    grids: dict[str, Grid] = {}
    for name in table.column_names:
        if name not in ("loop", "point", "run", "trial"):
            grids[name] = np.full((len(loops), len(points)), np.nan)
            grids[name][row, column] = table[name].to_numpy()
    return grids


def parquet_bytes(table: "pa.Table") -> bytes:
    file = io.BytesIO()
    parquet.write_table(table, file, compression="zstd", write_page_checksum=True)
    return file.getvalue()


def with_later_columns(curves: "pa.Table") -> "pa.Table":
    """Add the columns that older records lack, as NULL."""
    for name in LATER_COLUMNS:
        if name not in curves.column_names:
            curves = curves.append_column(name, pa.nulls(len(curves), pa.float64()))
    return curves
