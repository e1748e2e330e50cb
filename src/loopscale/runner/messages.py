"""What driver and worker say to one another. In a module of its own: a worker knows nothing else of the runner."""

from dataclasses import dataclass
from typing import Literal

from pydantic import NonNegativeFloat, PositiveFloat, PositiveInt

from loopscale.core.config import Config
from loopscale.evaluate import Curve, Evaluation
from loopscale.runner.baseline import Baseline
from loopscale.training.trial import Trial


class Order(Config):
    """What the driver asks of a worker; it travels as one JSON string, for Tune would take a tree to pieces.

    `train` goes on from wherever the checkpoint stands and evaluates at the end; `evaluate` takes the weights as they
    are, and `baseline` has nothing to train.
    """

    kind: Literal["train", "evaluate", "baseline"]
    key: str
    trial: Trial | None = None
    baseline: Baseline | None = None
    evaluation: Evaluation
    shelf: str = ""
    """Where checkpoints lie, as `open_checkpoint_store` takes it on the worker's machine."""
    threads: PositiveInt = 1
    gpu: bool = False
    share: NonNegativeFloat = 0
    """Of a GPU's memory; all of it from 1."""
    memory: PositiveFloat | None = None
    """GiB of main memory that the worker's process may take."""


@dataclass(frozen=True)
class Report:
    """What a worker says: everything it has yielded since it last spoke, and how it ended if it did."""

    progress: tuple[tuple[int, dict[str, float]], ...] = ()
    outcome: str = ""
    detail: str = ""
    metrics: dict[str, float] | None = None
    """What was measured once, at the end: `evaluate/error` and the like."""
    curve: Curve | None = None
    host: str = ""
    hardware: str = ""
    """The GPU, or the processor, that did it."""
    saved: bool = False
    """Whether a checkpoint holds all of it, so that stopping here loses nothing."""
