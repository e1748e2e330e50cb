"""The plain data and the names that writers and readers of records share: notes, records, tags and metrics."""

import json
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

Outcome = Literal["finished", "pruned", "diverged", "out_of_memory", "failed", "lost", "interrupted"]
Role = Literal["tuning", "replicate", "baseline"]

OVER: frozenset[str] = frozenset({"finished", "pruned", "diverged", "out_of_memory"})
"""Outcomes that are results. The other outcomes come from the machine or from a bug: the trial is run again."""

STATUS = {"finished": "FINISHED", "pruned": "KILLED", "interrupted": "KILLED"}
"""MLflow's status of a run, by the trial's outcome. All other outcomes are FAILED."""

RUNG = "rung/"
"""Prefix of the metrics `rung/<step>`: the error at a scheduler's rung."""
EVALUATE = "evaluate/"
"""Prefix of the metrics of the reported evaluation, such as `evaluate/error`. Validation has no prefix."""
EVALUATED = "evaluated_task"
"""Tag with the task of the reported evaluation, as JSON. Absent if the task is the trained one."""
NOT_FINITE = "not_finite/"
"""Prefix of the tags `not_finite/<metric>`: which value was nan or infinite, and at which step."""
STUDY = "study"
"""The role and the key of a study's parent run. The runs of the trials are its children."""
CURVE, WEIGHTS = "curve.parquet", "weights.safetensors"
"""Artifacts of a trial. The curve has columns loop (from 1), point (pairs seen), error, sem, raw, median."""
STUDY_FILE, STUDY_JSON, REPORT = "study.yaml", "study.json", "report.html"
"""Artifacts of the parent run."""


def now() -> int:
    """Milliseconds since 1970, the unit of MLflow's times."""
    return int(time.time() * 1000)


@dataclass(frozen=True)
class Note:
    """One thing to write on a trial's run. A note keeps its own time, so that a repeated note is still one point.

    `params` are settings as values (not text) by dotted path; they never change. An empty `status` changes nothing.
    `artifacts` are pairs of path in the run and content or file; a repeated path replaces the artifact. `at` is in ms.
    """

    key: str
    step: int = 0
    metrics: dict[str, float] = field(default_factory=dict)
    params: dict[str, Any] = field(default_factory=dict)
    tags: dict[str, str] = field(default_factory=dict)
    status: str = ""
    artifacts: tuple[tuple[str, bytes | Path], ...] = ()
    at: int = field(default_factory=now)


@dataclass(frozen=True)
class Record:
    """One trial as MLflow knows it. `error`, `error_last`: of the last validation; nan before the first."""

    run: str
    key: str
    cell: str
    role: str
    number: int
    point: dict[str, Any]
    seed: int | None
    outcome: str
    status: str
    step: int
    error: float
    error_last: float
    rungs: dict[int, float]
    tags: dict[str, str]
    metrics: dict[str, float]


def flatten(tree: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Turn {"model": {"width": 8}} into {"model.width": 8}, with the same dotted paths as a search space."""
    flat: dict[str, Any] = {}
    for name, value in tree.items():
        flat |= flatten(value, f"{prefix}{name}.") if isinstance(value, dict) else {prefix + name: value}
    return flat


def encode(setting: Any) -> str:
    """The text of a setting as an MLflow param: text stays as it is, any other value becomes JSON."""
    return setting if isinstance(setting, str) else json.dumps(setting)


def decode(text: str) -> Any:
    """Invert `encode`: a number, a truth value, None, or text. Lists stay text."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return text if isinstance(value, (list, dict, str)) else value
