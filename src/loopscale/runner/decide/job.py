"""One thing to train or evaluate, how far it is known to have got, and how it ended."""

import enum
import json
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

from loopscale.records.model.note import OVER, Record
from loopscale.runner.baseline import Baseline
from loopscale.runner.messages import Order
from loopscale.training.trial import Trial

Role = Literal["tuning", "replicate", "baseline"]


class Idle(enum.Enum):
    WAIT = "nothing to start until something ends"
    DONE = "nothing is left"


@dataclass
class Job:
    """One trial or baseline of the study. `state` says who has it, `outcome` how it ended, if it has."""

    work: Trial | Baseline
    cell: str
    label: str
    role: Role
    number: int
    point: dict[str, Any]
    place: int = 0
    """How many jobs of its cell (or of the baselines) come before it."""
    memory: dict[str, Any] = field(default_factory=dict)
    """What the sampler remembers with the point."""
    flops: float = float("nan")
    step: int = 0
    error: float = float("inf")
    rungs: dict[int, float] = field(default_factory=dict)
    state: Literal["waiting", "running", "over"] = "waiting"
    outcome: str = ""
    evaluation: str = ""
    """The key of the evaluation that its recorded curve is of."""
    weights: str = ""
    """`kept` or `dropped`, once that has been decided."""
    lost: int = 0
    hosts: int = 0
    """How often in this run of the study its worker has died alone, and with its host."""
    retries: int = 0
    lost_hosts: int = 0
    """The same, of all runs."""
    begun: bool = False
    """Whether the records know of it."""
    order: Literal["train", "evaluate", "baseline"] = "train"

    @cached_property
    def key(self) -> str:
        return self.work.key

    @property
    def steps(self) -> int:
        """Training steps to the end; a baseline has none."""
        return self.work.training.steps if isinstance(self.work, Trial) else 0

    @property
    def seed(self) -> int | None:
        return self.work.seed if isinstance(self.work, Trial) else None

    def adopt(self, record: Record) -> None:
        """Take over what the records know. What says something about the machine or the code is begun again."""
        over, self.begun = record.outcome in OVER, True
        self.step, self.error, self.rungs = record.step, record.error, dict(record.rungs)
        self.memory = json.loads(record.tags.get("sampler", "{}"))
        self.outcome, self.state = (record.outcome, "over") if over else ("", "waiting")
        self.evaluation, self.weights = record.tags.get("evaluation", ""), record.tags.get("weights", "")
        self.retries, self.lost_hosts = (
            _count(record.tags.get(tag, "")) for tag in ("retries", "lost_hosts")
        )

    def ordered(self, **how: Any) -> Order:
        """The order that sends it to a worker."""
        what = {"trial": self.work} if isinstance(self.work, Trial) else {"baseline": self.work}
        return Order(kind=self.order, key=self.key, **what, **how)


def _count(text: str) -> int:
    return int(text) if text.isascii() and text.isdecimal() else 0
