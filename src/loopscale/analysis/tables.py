"""How the analysis reads the mirror's tables: whose row is whose, what is a setting, what counts as an
answer.
"""

# pandas types every selection as a union of all that it could be: those rules find nothing here but that.
# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportCallIssue=false
# pyright: reportGeneralTypeIssues=false, reportReturnType=false, reportOperatorIssue=false

import json
from collections.abc import Iterable, Mapping
from typing import Any, Literal

import numpy as np
import pandas as pd

MEASURES = ("error", "error_last", "raw_error", "excess", "validate_error", "step", "seconds", "flops")
NAMES = ("trial", "study", "cell", "label", "role", "number", "seed", "outcome", "detail", "commit")
Query = Literal["mean", "last"]
"""Whose error: of all queries on average, or of the last one, which has seen most."""
EVALUATED = "evaluate.task."
"""What the columns of the task evaluated begin with, where it is not the one trained on."""
StudyTable = Mapping[str, Any]
"""The study.json of the records: name, question, cells, laws, baselines, replicates, ..."""


def several_objectives(study: StudyTable) -> bool:
    """True if the study's search minimises FLOPs as well as the error."""
    return len((study.get("search") or {}).get("objectives") or ()) > 1


def settings_of(row: pd.Series) -> dict[str, Any]:
    """The settings that apply to a trial, by dotted path, as plain Python values."""
    return {
        str(path): plain(value)
        for path, value in row.items()
        if "." in str(path) and not str(path).startswith(EVALUATED) and not _missing(value)
    }


def evaluated(row: pd.Series) -> dict[str, Any]:
    """The same with the task that the trial was evaluated on, which its errors are of: bounds are asked of that."""
    settings = settings_of(row)
    other = {
        str(path).removeprefix(EVALUATED): plain(value)
        for path, value in row.items()
        if str(path).startswith(EVALUATED) and not _missing(value)
    }
    if not other:
        return settings
    kept = {path: value for path, value in settings.items() if not path.startswith("task.")}
    return kept | {f"task.{name}": value for name, value in other.items()}


def plain(value: Any) -> Any:
    """Without numpy's types; whole numbers as integers, which a column with gaps turned into floats."""
    value = value.item() if isinstance(value, np.generic) else value
    return int(value) if isinstance(value, float) and value.is_integer() and abs(value) < 2**53 else value


def finished(trials: pd.DataFrame, role: str, cell: str | None = None) -> pd.DataFrame:
    """Trials that ended with a finite error, in the order of their numbers."""
    mine = trials[(trials["role"] == role) & (trials["outcome"] == "finished")]
    if cell is not None:
        mine = mine[mine["cell"] == cell]
    error = pd.to_numeric(mine["error"], errors="coerce").to_numpy(dtype=np.float64, na_value=np.nan)
    return mine[np.isfinite(error)].sort_values(["number", "seed"], kind="stable")


def answers(trials: pd.DataFrame, cell: str) -> tuple[pd.DataFrame, bool]:
    """The trials that speak for a cell, and whether they are replicates: else its best tuning trial alone.

    If a study was extended and its best point moved, replicates of several points are there: the point of
    which most are finished speaks, then the latest.
    """
    replicates = finished(trials, "replicate", cell)
    if replicates.empty:
        tuning = finished(trials, "tuning", cell)
        return tuning[tuning["error"] == tuning["error"].min()].head(1), False
    points = [json_key(settings_of(row)) for _, row in replicates.iterrows()]
    counts = pd.Series(points).value_counts()
    chosen = next(point for point in reversed(points) if counts[point] == counts.max())
    return replicates[[point == chosen for point in points]], True


def json_key(settings: Mapping[str, Any]) -> str:
    """Settings as text that can be compared."""
    return repr(sorted(settings.items(), key=lambda item: item[0]))


def numbers(values: Iterable[Any]) -> np.ndarray:
    """As float64, what is missing or no number as NaN."""
    return pd.to_numeric(pd.Series(list(values), dtype=object), errors="coerce").to_numpy(
        dtype=np.float64, na_value=np.nan
    )


def task_of(row: pd.Series) -> dict[str, Any]:
    """The settings of the task that a trial was evaluated on, or a baseline run."""
    return {path: value for path, value in evaluated(row).items() if path.startswith("task.")}


def part_of(settings: Mapping[str, Any], name: str) -> dict[str, Any]:
    """What lies under `name`, as its class takes it: a list, which the mirror keeps as text, is a list again."""
    return {
        path.removeprefix(name): json.loads(value)
        if isinstance(value, str) and value.startswith("[")
        else value
        for path, value in settings.items()
        if path.startswith(name)
    }


def by_task(study: StudyTable, trials: pd.DataFrame) -> dict[str, list[str]]:
    """Cells that share a task, and so their baselines, under what sets the task apart from the others."""
    tasks = {}
    for cell in study["cells"]:
        rows, _ = answers(trials, cell["key"])
        if len(rows):
            tasks[cell["key"]] = _told_by(task_of(rows.iloc[0]))
    varied = [
        path
        for path in dict.fromkeys(p for task in tasks.values() for p in task)
        if len({repr(task.get(path)) for task in tasks.values()}) > 1
    ]
    groups: dict[str, list[str]] = {}
    for key, task in tasks.items():
        groups.setdefault(", ".join(f"{path}={task.get(path)}" for path in varied), []).append(key)
    return groups


def _told_by(settings: Mapping[str, Any]) -> dict[str, Any]:
    """A task's settings without those that change none of its prompts."""
    from loopscale.tasks.base import Task  # `loopscale best` answers without torch

    try:
        idle = Task.model_validate(part_of(settings, "task.")).idle
    except ValueError:  # of an older version, which took settings that are refused now
        idle = frozenset[str]()
    return {path: value for path, value in settings.items() if path.removeprefix("task.") not in idle}


def baselines_of(trials: pd.DataFrame, row: pd.Series) -> pd.DataFrame:
    """The classical algorithms that were run on the same task as a trial."""
    rows = trials[(trials["role"] == "baseline") & (trials["outcome"] == "finished")]
    task = task_of(row)
    same = [other["cell"] == row["cell"] or task_of(other) == task for _, other in rows.iterrows()]
    return _told_apart(rows[same])


def _told_apart(rows: pd.DataFrame) -> pd.DataFrame:
    """With the settings in the label where two algorithms share a kind."""
    paths = [path for path in rows.columns if str(path).startswith("solver.") and path != "solver.kind"]
    labels = []
    for _, row in rows.iterrows():
        kin = rows[rows["label"] == row["label"]]
        differ = [path for path in paths if kin[path].nunique(dropna=False) > 1 and not _missing(row[path])]
        told = ", ".join(f"{str(path).removeprefix('solver.')} {plain(row[path])}" for path in differ)
        labels.append(f"{row['label']} ({told})" if told else row["label"])
    return rows.assign(label=pd.Series(labels, index=rows.index, dtype=object))


def solver_name(row: pd.Series) -> str:
    """What a baseline is called: its kind, with the settings that tell two of a kind apart in its label."""
    label = row.get("label")
    kind = next((row[path] for path in ("solver.kind", "baseline.kind") if not _missing(row.get(path))), None)
    return str(kind if kind and (_missing(label) or not label) else label).replace("_", " ")


def loop_of(row: pd.Series, curve: pd.DataFrame) -> int:
    """T, the loop at which a trial is judged; for a net of fixed depth its last layer, where its curve
    ends.
    """
    loops = row.get("training.loops")
    last = int(curve["loop"].max()) if len(curve) else 0
    if _missing(loops):
        return last
    return min(int(loops), last) if last else int(loops)


def curve_at(curves: pd.DataFrame, trial: str) -> pd.DataFrame:
    """One trial's curve."""
    return curves[curves["trial"] == trial]


def error_after(curve: pd.DataFrame, step: int, query: Query = "mean") -> float:
    """After a loop, layer or step, or after the last one that there is: the mean over queries, or the last one's."""
    there = curve[curve["loop"] == min(step, curve["loop"].max())]
    return float(
        (there if query == "mean" else there[there["point"] == there["point"].max()])["error"].mean()
    )


def _missing(value: Any) -> bool:
    return value is None or bool(pd.isna(value)) if not isinstance(value, list | dict | np.ndarray) else False
