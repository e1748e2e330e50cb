"""A job of a study: a trial or a baseline, its progress, and its outcome."""

import enum
import json
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

from loopscale.records.model import OVER, Record, Role
from loopscale.runner.messages import Baseline, Order
from loopscale.training.trial import Trial

Fault = Literal["worker", "host", "memory"]
"""Cause of a worker's death: the worker's process, its host, or a lack of main memory."""


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
    order_kind: Literal["train", "evaluate", "baseline"] = "train"

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

    def restore(self, record: Record) -> None:
        """Take the state from the records. Outcomes of the machine or the code are dropped: the job runs again."""
        over, self.recorded = record.outcome in OVER, True
        self.step, self.error, self.rungs = record.step, record.error, dict(record.rungs)
        self.memory = json.loads(record.tags.get("sampler", "{}"))
        self.outcome, self.state = (record.outcome, "over") if over else ("", "waiting")
        self.evaluation, self.weights = record.tags.get("evaluation", ""), record.tags.get("weights", "")
        self.retries, self.lost_hosts = (
            _parse_count(record.tags.get(tag, "")) for tag in ("retries", "lost_hosts")
        )

    def make_order(self, **settings: Any) -> Order:
        """The order for a worker. `settings` are the fields of `Order` that do not depend on the job."""
        work = {"trial": self.work} if isinstance(self.work, Trial) else {"baseline": self.work}
        return Order(kind=self.order_kind, key=self.key, **work, **settings)


def _parse_count(text: str) -> int:
    return int(text) if text.isascii() and text.isdecimal() else 0
