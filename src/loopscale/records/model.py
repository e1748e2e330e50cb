"""The plain data that writers and readers of records share: names, notes, runs, trials, descriptions and errors."""

import hashlib
import json
import os
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from loopscale.errors import NoRecords as NoRecords
from loopscale.errors import StoreError as StoreError
from loopscale.redaction import redacted

Outcome = Literal[
    "finished", "pruned", "diverged", "out_of_memory", "stopped", "failed", "lost", "interrupted"
]
Role = Literal["tuning", "replicate", "baseline"]

OVER: frozenset[str] = frozenset({"finished", "pruned", "diverged", "out_of_memory", "stopped"})
"""Outcomes that are results. The other outcomes come from the machine or from a bug: the trial is run again."""

STATUS = {"finished": "FINISHED", "pruned": "KILLED", "stopped": "KILLED", "interrupted": "KILLED"}
"""MLflow's status of a run, by the trial's outcome. All other outcomes are FAILED."""

RUNG = "rung/"
"""Prefix of the metrics `rung/<step>`: the error at a scheduler's rung."""
EVALUATE = "evaluate/"
"""Prefix of the metrics of the reported evaluation, such as `evaluate/error`. Validation has no prefix."""
EVALUATED = "evaluated_task"
"""Tag with the task of the reported evaluation, as JSON. Absent if the task is the trained one."""
NOT_FINITE = "not_finite/"
"""Prefix of the tags `not_finite/<metric>`: which value was nan or infinite, and at which step."""
LEARNING = (
    "validate_floor",
    "validate_ignorance",
    "emerged_at",
    "still_falling",
    "still_falling_low",
    "still_falling_high",
)
"""Metrics that a finished training records of itself. `emerged_at` is absent if the training never emerged."""
PREDICTION = "prediction/"
"""Prefix of the tags `prediction/<measure>/<axis>/<cell>` (`records.predictions`)."""
DECISION = "decision/"
"""Prefix of the tags `decision/<seeds>/<question>` (`records.decisions`)."""
STOP = "stop/"
"""Prefix of the tags `stop/<trial>` of the parent run: when somebody has asked to stop the trial. Empty: withdrawn."""
STOPPED_BY = "stopped_by"
"""Tag of a trial with the outcome `stopped`: `user` or `trial_hours`."""
ENDED_EARLY = "ended_early"
"""Tag of the parent run: what the rules of `stop` have ended, one line each."""
RESOURCES = "resources"
"""Tag of a trial or baseline with the outcome `out_of_memory`: its GPU and its GiB of main memory, as JSON."""
STEPS_FACTOR = "steps_factor"
"""Tag of a longer training: its steps over the steps of the study (`until.steps`)."""
EXAMPLES_TAG = "examples"
"""Tag of a trial with answers that a person can read, as JSON: a list of given, answer and wanted."""
FLOOR = "floor"
"""Tag: how the floor of the evaluation prompts is known, and the algorithm, such as `bayes ridge`."""
STUDY = "study"
"""The role and the key of a study's parent run. The runs of the trials are its children."""
CURVE, WEIGHTS = "curve.parquet", "weights.safetensors"
"""Artifacts of a trial. The curve has columns loop (from 1), point (pairs seen), error, sem, raw, median,
regret, regret_sem, and the columns of play."""
STUDY_FILE, STUDY_JSON, REPORT = "study.yaml", "study.json", "report.html"
"""Artifacts of the parent run."""
PLUGINS = "plugins"
OPTIONS, NO_OPTIONS = "options", "-"
"""The tag with the options that changed the file of the last run, and its text for a run without options."""
"""Tag of the parent run with the name and the hash of every plugin, and folder of artifacts with their files."""
DESCRIPTION_PARTS = {
    "question": str,
    "source": str,
    "cells": list,
    "search": dict,
    "scheduler": dict,
    "laws": list,
    "claims": list,
    "baselines": list,
    "evaluate": dict,
    "nuisance": dict,
    "replicates": int,
    "planned": int,
    "plan": list,
    "predictions": dict,
    "decisions": dict,
    "until": dict,
    "plugins": list,
}
"""The parts of `study.json`, the description of a study, that may be present, with their types."""
DAMAGE = (ValueError, KeyError, TypeError, AttributeError, RecursionError)
"""Exceptions of parsing text that no driver has written."""


def tags_below(prefix: str, tags: Mapping[str, str]) -> dict[str, str]:
    """The tags whose names begin with the prefix."""
    return {name: text for name, text in tags.items() if name.startswith(prefix)}


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


@dataclass
class Run:
    """A run of MLflow with the last value of every metric. Times are milliseconds since 1970, 0 for none."""

    id: str
    status: str
    start: int
    end: int
    tags: dict[str, str] = field(default_factory=dict)
    params: dict[str, str] = field(default_factory=dict)
    metrics: dict[str, float] = field(default_factory=dict)
    experiment: str = ""

    @property
    def is_trial(self) -> bool:
        """True for a trial or a baseline; False for the parent run and for runs without a key."""
        return self.tags.get("trial", STUDY) != STUDY

    @property
    def has_curve(self) -> bool:
        """True if a curve was recorded. Records of older versions do not always say so."""
        return self.is_trial and bool(self.tags.get("evaluation"))

    @property
    def fingerprint(self) -> str:
        """A hash that changes with every note, because a note changes a metric, a tag or the status."""
        text = repr((self.status, self.end, sorted(self.tags.items()), sorted(self.metrics.items())))
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @property
    def curves(self) -> list[str]:
        """Names of the metrics with a history: no settings, no rungs, no values that are logged once."""
        once = (*self.params, "step", "flops", *LEARNING)
        return [name for name in self.metrics if name not in once and not name.startswith((RUNG, EVALUATE))]


def parent_among(runs: Iterable[Run]) -> Run | None:
    """The parent run of a study, if it is among the runs."""
    return next((run for run in runs if run.tags.get("role") == STUDY), None)


def json_object(content: bytes | str | None) -> dict[str, Any] | None:
    """The JSON object in a text; None for any other content."""
    try:
        value = json.loads(content or b"")
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def parse_description(text: str | bytes) -> dict[str, Any]:
    """The description. Raises one of `DAMAGE` unless the text has the form that `Study.document` writes."""
    description = json.loads(text)
    if not isinstance(description, dict):
        raise ValueError("it is no JSON object")
    for part, kind in DESCRIPTION_PARTS.items():
        if not isinstance(description.get(part) or kind(), kind):
            raise ValueError(f"`{part}` has the wrong type")
    if "cells" not in description:
        raise ValueError("`cells` is missing")
    _check_cells(description)
    return description


def _check_cells(description: Mapping[str, Any]) -> None:
    for cell in description["cells"]:
        if not (isinstance(cell["key"], str) and isinstance(cell["label"], str) and cell["values"].items):
            raise ValueError("`cells` has the wrong form")
    for cell in description.get("plan") or []:
        amounts = (cell["tuning"], cell["replicates"], cell["trained_share"], *cell["flops"])
        numeric = all(isinstance(amount, int | float) for amount in amounts)
        if len(amounts) != 5 or not numeric or not cell["key"]:
            raise ValueError("`plan` has the wrong form")


@dataclass(frozen=True)
class Record:
    """One trial as MLflow knows it. `error`, `error_last`: of the last validation; nan before the first."""

    run: str
    key: str
    cell: str
    role: str
    number: int
    point: dict[str, Any]
    sampler: dict[str, Any]
    """What the sampler remembers of the point."""
    seed: int | None
    outcome: str
    status: str
    step: int
    error: float
    error_last: float
    rungs: dict[int, float]
    tags: dict[str, str]
    metrics: dict[str, float]

    @property
    def steps_factor(self) -> int:
        """The steps of the trial over the steps of the study, 1 unless `until.steps` ordered a longer training."""
        text = self.tags.get(STEPS_FACTOR, "")
        return int(text) if text.isascii() and text.isdecimal() else 1


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


def explain_denial(message: str, action: str = "do this") -> str | None:
    """Turn a tracking server's 401 or 403 into one line; None for any other message.

    `message` is the text of the error, which differs among MLflow's functions.
    """
    if "Invalid Host header" in message:
        return None
    if "error code 401" in message:
        return (
            f"the tracking server does not let {user_name()} in; set MLFLOW_TRACKING_USERNAME and "
            "MLFLOW_TRACKING_PASSWORD, or MLFLOW_TRACKING_TOKEN"
        )
    if "error code 403" in message or "PERMISSION_DENIED" in message:
        return (
            f"the tracking server does not let {user_name()} {action}; ask whoever runs it for EDIT permission to "
            "record, for READ to look"
        )
    return None


def user_name() -> str:
    """The user that the tracking server sees, as far as the environment tells."""
    name = os.environ.get("MLFLOW_TRACKING_USERNAME")
    return f"the user {name}" if name else "you"


TEXTS = ("command", "detail", ENDED_EARLY, "source")
"""Tags of free text, which may repeat an address or an error with a password."""


STUDY_TAG = "study_tag."
"""Prefix of a study's own tag whose name the records use themselves."""
STUDY_TAGS = "study_tags"
"""Tag of the parent run with the names of the tags that the study's file has set, as JSON."""
RUN_NOTE = "mlflow.note.content"
"""The tag of a run that MLflow's UI shows as the description, in Markdown."""
USED_TAGS = frozenset(
    (
        "trial", "study", "role", "question", "source", "command", "hardware", "platform", "gpus", "git_commit",
        "git_changed", "plugins", "options", "spent", "ended_early", "imported", "study_tags", "cell", "label",
        "number", "seed", "point", "outcome", "detail", "host", "evaluation", "evaluated_task", "floor", "examples",
        "resources", "steps_factor", "stopped_by", "execution", "sampler", "retries", "lost_hosts",
        "lost_reason", "weights"
    )
)  # fmt: skip
"""The tags that runs of loopscale have."""
USED_PREFIXES = (
    "mlflow.",
    "version.",
    "submitted_with.",
    "loopscale.",
    PREDICTION,
    DECISION,
    STOP,
    NOT_FINITE,
    STUDY_TAG,
)
"""Prefixes of further tags that runs of loopscale have."""


def study_tags(tags: Mapping[str, str], note: str, earlier: Mapping[str, str]) -> dict[str, str]:
    """The tags of the parent run for `tags` and `note` of a study's file.

    Parameters
    ----------
    earlier
        The present tags of the parent run. A tag that left the file since becomes empty.
    """
    written = {(STUDY_TAG if _is_used(name) else "") + name: text for name, text in tags.items()}
    written |= {RUN_NOTE: note} if note else {}
    try:
        before: list[str] = [str(name) for name in json.loads(earlier.get(STUDY_TAGS, "[]"))]
    except (ValueError, TypeError):
        before = []
    if not written and not before:
        return {}
    return dict.fromkeys(before, "") | written | {STUDY_TAGS: json.dumps(list(written))}


def _is_used(tag: str) -> bool:
    return tag in USED_TAGS or tag.startswith(USED_PREFIXES)


def safe_tags(tags: Mapping[str, str]) -> dict[str, str]:
    """The tags without passwords."""
    return {name: redacted(text) if name in TEXTS else text for name, text in tags.items()}
