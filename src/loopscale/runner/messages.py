"""Messages between driver and worker: orders, and reports on them. A worker needs no module of `decide`."""

import hashlib
import json
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import NonNegativeFloat, PositiveFloat, PositiveInt

from loopscale.core.config import Config
from loopscale.evaluate import Curve, Evaluation
from loopscale.solvers.base import Solver
from loopscale.tasks.base import Task
from loopscale.training.trial import Trial, as_before


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
    """An order of the driver to a worker. It travels as one JSON string, because Tune would flatten a tree.

    `train` resumes the trial from its checkpoint and evaluates the trained net. `evaluate` only evaluates the saved
    weights. `baseline` evaluates a classical algorithm.
    """

    kind: Literal["train", "evaluate", "baseline"]
    key: str
    trial: Trial | None = None
    baseline: Baseline | None = None
    evaluation: Evaluation
    checkpoints: str = ""
    """Location of the checkpoints, for `open_checkpoint_store` on the worker's machine."""
    threads: PositiveInt = 1
    gpu: bool = False
    gpu_share: NonNegativeFloat = 0
    """Share of a GPU's memory. From 1 on, all of it."""
    memory: PositiveFloat | None = None
    """Limit on the main memory of the worker's process, in GiB."""


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
    host: str = ""
    hardware: str = ""
    """The GPU, or the processor, of the training."""
    saved: bool = False
    """Whether a checkpoint holds all progress, so that stopping the trial now loses nothing."""
