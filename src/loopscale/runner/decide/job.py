"""A job of a study, and the messages between driver and worker: orders, and reports on them."""

import enum
import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

from loopscale.core.config import Config
from loopscale.evaluate import Curve, Evaluation
from loopscale.records.model import EVALUATE, OVER, Record, Role
from loopscale.solvers.base import Solver
from loopscale.studies.schema import Resources
from loopscale.tasks.base import Task
from loopscale.training.trial import Trial, as_before

Fault = Literal["worker", "host", "memory"]
"""Cause of a worker's death: the worker's process, its host, or a lack of main memory."""
Work = Literal["train", "evaluate", "baseline"]
"""`train` resumes the trial from its checkpoint and evaluates the trained net. `evaluate` only evaluates the saved
weights. `baseline` evaluates a classical algorithm.
"""


class Baseline(Config):
    """A classical algorithm on a task: the reference for trained nets, with a run of its own and no training."""

    task: Task
    solver: Solver

    @property
    def key(self) -> str:
        """Identity of the baseline: 16 hexadecimal digits of the hash of its settings."""
        text = json.dumps(self.settings, sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @property
    def settings(self) -> dict[str, Any]:
        return as_before(self.model_dump(mode="json"))


class Order(Config):
    """An order of the driver to a worker. It travels as one JSON string, because Tune would flatten a tree."""

    kind: Work
    key: str
    trial: Trial | None = None
    baseline: Baseline | None = None
    evaluation: Evaluation
    checkpoints: str = ""
    """Location of the checkpoints, for `open_checkpoint_store` on the worker's machine."""
    flops: float = 0.0
    """FLOPs of the training."""
    resources: Resources = Resources()
    """The worker's threads, its GPU, and the limits on its memory."""


@dataclass(frozen=True)
class Report:
    """A report of a worker: the progress since its last report, and the outcome at the end."""

    progress: tuple[tuple[int, dict[str, float]], ...] = ()
    """(step, metrics) of each validation."""
    outcome: str = ""
    detail: str = ""
    metrics: dict[str, float] | None = None
    """Metrics of the final evaluation, such as `evaluate/error`."""
    curve: Curve | None = None
    floor: str = ""
    """How the floor of the curve's prompts is known, and the algorithm, such as `bayes ridge`."""
    host: str = ""
    hardware: str = ""
    """The GPU, or the processor, of the training."""
    execution: str = ""
    """How the training ran: its precision and device. Empty for a baseline."""
    saved: bool = False
    """Whether a checkpoint holds all progress, so that stopping the trial now loses nothing."""


class Idle(enum.Enum):
    """Answer of a study that starts no job now."""

    WAIT = "no job can start before another job ends"
    DONE = "no job is left"


@dataclass
class Job:
    """A trial or baseline of the study. `state` says whether a worker has the job, `outcome` how the job ended."""

    work: Trial | Baseline
    cell: str
    label: str
    role: Role
    number: int
    point: dict[str, Any]
    position: int = 0
    """Number of earlier jobs of the cell, or of earlier baselines."""
    sampler_state: dict[str, Any] = field(default_factory=dict[str, Any])
    """State that the sampler stores with the point."""
    flops: float = float("nan")
    """Floating-point operations of the whole training."""
    step: int = 0
    error: float = float("inf")
    measures: dict[str, float] = field(default_factory=dict[str, float])
    """Measures of the last evaluation by name, such as `error`."""
    rungs: dict[int, float] = field(default_factory=dict[int, float])
    """Error at each of the scheduler's rungs that the trial has reached."""
    state: Literal["waiting", "running", "over"] = "waiting"
    outcome: str = ""
    evaluation: str = ""
    """Key of the evaluation of the recorded curve."""
    weights: str = ""
    """`kept` or `dropped`, after the decision."""
    worker_deaths: int = 0
    host_deaths: int = 0
    """Deaths of the job's worker, alone and with its host, in this run of the study."""
    retries: int = 0
    lost_hosts: int = 0
    """The same numbers in all runs of the study."""
    recorded: bool = False
    """Whether the records contain the job."""
    order_kind: Work = "train"

    @cached_property
    def key(self) -> str:
        return self.work.key

    @property
    def steps(self) -> int:
        """Training steps of the whole trial; 0 for a baseline."""
        return self.work.training.steps if isinstance(self.work, Trial) else 0

    @property
    def seed(self) -> int | None:
        return self.work.seed if isinstance(self.work, Trial) else None

    @property
    def reported_error(self) -> float:
        """The error of the last evaluation; before an evaluation, of the last validation."""
        return self.measures.get("error", self.error)

    def restore(self, record: Record) -> None:
        """Take the state from the records. Outcomes of the machine or the code are dropped: the job runs again."""
        over, self.recorded = record.outcome in OVER, True
        self.step, self.error, self.rungs = record.step, record.error, dict(record.rungs)
        self.take_measures(record.metrics)
        self.sampler_state = json.loads(record.tags.get("sampler", "{}"))
        self.outcome, self.state = (record.outcome, "over") if over else ("", "waiting")
        self.evaluation, self.weights = record.tags.get("evaluation", ""), record.tags.get("weights", "")
        self.retries, self.lost_hosts = (
            _parse_count(record.tags.get(tag, "")) for tag in ("retries", "lost_hosts")
        )

    def take_measures(self, metrics: Mapping[str, float]) -> None:
        """Take the measures of an evaluation from among the metrics of a report or a record."""
        prefix = EVALUATE
        self.measures |= {
            n.removeprefix(prefix): value for n, value in metrics.items() if n.startswith(prefix)
        }

    def make_order(self, evaluation: Evaluation, checkpoints: str, resources: Resources) -> Order:
        """The order for a worker. `checkpoints` is the location of the checkpoints."""
        return Order(
            kind=self.order_kind,
            key=self.key,
            trial=self.work if isinstance(self.work, Trial) else None,
            baseline=self.work if isinstance(self.work, Baseline) else None,
            evaluation=evaluation,
            checkpoints=checkpoints,
            flops=0.0 if math.isnan(self.flops) else self.flops,
            resources=resources,
        )


def _parse_count(text: str) -> int:
    return int(text) if text.isascii() and text.isdecimal() else 0
