"""The names that writers and readers of records share, as plain data: nothing here imports MLflow."""

import json
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

Outcome = Literal["finished", "pruned", "diverged", "out_of_memory", "failed", "lost", "interrupted"]
Role = Literal["tuning", "replicate", "baseline"]

OVER: frozenset[str] = frozenset({"finished", "pruned", "diverged", "out_of_memory"})
"""Outcomes that say something about the trial. The others are the machine's or the code's: run again."""

STATUS = {"finished": "FINISHED", "pruned": "KILLED", "interrupted": "KILLED"}
"""MLflow's status of a run by the trial's outcome; FAILED for all that are not here."""

RUNG = "rung/"
"""Metrics `rung/<step>`: the error at a scheduler's rung."""
EVALUATE = "evaluate/"
"""Metrics of the reported evaluation, `evaluate/error` and so on; without the prefix, of validation."""
EVALUATED = "evaluated_task"
"""The tag that holds the task of the reported evaluation, as JSON, where it is another than was trained on."""
NOT_FINITE = "not_finite/"
"""Tags `not_finite/<metric>`: which values were nan or infinite, and when, since MLflow cannot hold them."""
STUDY = "study"
"""The role and key of a study's parent run, of which the trials' runs are children."""
CURVE, WEIGHTS = "curve.parquet", "weights.safetensors"
"""Artifacts of a trial. The curve has columns loop (from 1), point (pairs seen), error, sem, raw."""
STUDY_FILE, STUDY_JSON, REPORT = "study.yaml", "study.json", "report.html"
"""Artifacts of the parent run."""


def now() -> int:
    """Milliseconds since 1970, the time that MLflow keeps."""
    return int(time.time() * 1000)


@dataclass(frozen=True)
class Note:
    """One thing to write on a trial's run. It holds its own time: written twice, it is still one point.

    `params` are settings as values (not text) by dotted path; they are written when the run is created and
    never changed. `artifacts` are (path in the run, content or file); one that is written again is replaced.
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
    """One trial, as MLflow knows it. `error`, `error_last`: of the last validation, nan before the first."""

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
    """{"model": {"width": 8}} -> {"model.width": 8}: the very paths that a space uses."""
    flat: dict[str, Any] = {}
    for name, value in tree.items():
        flat |= flatten(value, f"{prefix}{name}.") if isinstance(value, dict) else {prefix + name: value}
    return flat


def encode(setting: Any) -> str:
    """A setting as the text of an MLflow param: words as they are, all else as JSON."""
    return setting if isinstance(setting, str) else json.dumps(setting)


def decode(text: str) -> Any:
    """The setting that `encode` wrote: a number, a truth value, None, or text (lists stay text)."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return text if isinstance(value, (list, dict, str)) else value
