"""A job of a study, and the messages between driver and worker: orders, and reports on them."""

import enum
import hashlib
import json
import math
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from loopscale.core.config import Config
from loopscale.evaluate import Curve, Evaluation
from loopscale.records.model import EVALUATE, FLOOR, LEARNING, OVER, RESOURCES, STOPPED_BY, Record, Role
from loopscale.solvers.base import Solver
from loopscale.stats.learning import Emergence, reducible_share
from loopscale.studies.schema import Resources
from loopscale.tasks.base import Example, Task
from loopscale.training.trial import Trial, as_before

CauseOfDeath = Literal["worker", "host", "memory"]
"""Cause of a worker's death: the worker's process, its host, or a lack of main memory."""
OrderKind = Literal["train", "evaluate", "baseline"]
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

    kind: OrderKind
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
    examples: tuple[Example, ...] = ()
    """Answers that a person can read."""
    floor: str = ""
    """How the floor of the curve's prompts is known, and the algorithm, such as `bayes ridge`."""
    host: str = ""
    """The host of the worker. Reports with progress and reports with an outcome name the host."""
    host_unfit: bool = False
    """Whether no trial of the study can run on the host, because the host lacks the GPU that Ray has promised."""
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


@dataclass(slots=True)
class Job:
    """A trial or baseline of the study. `state` says whether a worker has the job, `outcome` how the job ended."""

    kept_work: Trial | Baseline | None
    """The settings, see `work`; None after `forget_work`."""
    cell: str
    label: str
    role: Role
    number: int
    point: dict[str, Any]
    steps_factor: int = 1
    """The steps over the steps of the study. Above 1 if `until.steps` has ordered a longer training."""
    position: int = 0
    """Number of earlier jobs of the cell, or of earlier baselines."""
    sampler_state: dict[str, Any] = field(default_factory=dict[str, Any])
    """State that the sampler stores with the point."""
    flops: float = float("nan")
    """Floating-point operations of the whole training."""
    step: int = 0
    error: float = float("inf")
    measures: dict[str, float] = field(default_factory=dict[str, float])
    """Measures of the last evaluation by name, such as `error`, and what the training recorded of itself."""
    rungs: dict[int, float] = field(default_factory=dict[int, float])
    """Error at each of the scheduler's rungs that the trial has reached."""
    state: Literal["waiting", "running", "over"] = "waiting"
    outcome: str = ""
    evaluation: str = ""
    """Key of the evaluation of the recorded curve."""
    stopped_by: str = ""
    """Of a stopped trial: `user` or `trial_hours`."""
    floor: str = ""
    """How the floor of the evaluation prompts is known, and the algorithm, such as `bayes ridge`."""
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
    host: str = ""
    """The host of the last report with progress in this run of the study."""
    order_kind: OrderKind = "train"
    make_work: Callable[[dict[str, Any], int, int], Trial] | None = None
    """Makes the settings of a trial from its point, seed and factor of steps, after `forget_work`. Jobs share it."""
    key: str = field(init=False)
    steps: int = field(init=False)
    """Training steps of the whole trial; 0 for a baseline."""
    seed: int | None = field(init=False)

    def __post_init__(self) -> None:
        work = self.work
        is_trial = isinstance(work, Trial)
        self.key, self.steps = work.key, work.training.steps if is_trial else 0
        self.seed = work.seed if is_trial else None

    @property
    def work(self) -> Trial | Baseline:
        """All settings of the trial, or the algorithm and its task."""
        if self.kept_work is not None:
            return self.kept_work
        assert self.make_work
        assert self.seed is not None
        return self.make_work(self.point, self.seed, self.steps_factor)

    def forget_work(self) -> None:
        """Drop the settings of a trial that is over, because a driver may have 100,000 trials."""
        if self.make_work:
            self.kept_work = None

    @property
    def reported_error(self) -> float:
        """The error of the last evaluation; before an evaluation, of the last validation."""
        return self.measures.get("error", self.error)

    def measure(self, of: str) -> float:
        """A measure of the last evaluation, NaN if the job has none."""
        return self.reported_error if of == "error" else self.measures.get(of, math.nan)

    @property
    def learnt(self) -> bool | None:
        """Whether the net has left the plateau; None if the task has no room, or if the records do not say."""
        least, ignorance = (
            self.measures.get(f"validate_{name}", math.nan) for name in ("floor", "ignorance")
        )
        if math.isnan(float(reducible_share(least, least, ignorance))):
            return None
        return "emerged_at" in self.measures

    @property
    def falling(self) -> bool:
        """Whether the net has learnt and its regret still falls at the end of its training."""
        return bool(self.learnt) and self.measures.get("still_falling_low", math.nan) > 0

    @property
    def emergence(self) -> Emergence | None:
        """The two reports between which the training emerged; None if the records do not say."""
        if self.learnt is None or not isinstance(self.work, Trial):
            return None
        if not self.learnt:
            return Emergence(float(self.steps), math.inf)
        by, every = self.measures["emerged_at"], self.work.training.eval_every
        return Emergence(float((math.ceil(by / every) - 1) * every), by)

    def restore(self, record: Record, resources: Resources) -> None:
        """Take the state from the records. Outcomes of the machine or the code are dropped: the job runs again.

        A finished training whose error the records have lost runs again, from its checkpoint if there is one.
        A job that was out of memory runs again if the present resources may have more memory than at that time.
        """
        over, self.recorded = record.outcome in OVER, True
        lost = record.outcome == "finished" and record.role != "baseline" and math.isnan(record.error)
        if lost:
            over = False
        if record.outcome == "out_of_memory":
            over = not has_more_memory(resources, record.tags.get(RESOURCES, ""))
        self.step, self.error, self.rungs = 0 if lost else record.step, record.error, dict(record.rungs)
        self.take_measures(record.metrics)
        self.sampler_state = record.sampler
        self.outcome, self.state = (record.outcome, "over") if over else ("", "waiting")
        self.stopped_by = record.tags.get(STOPPED_BY, "") if self.outcome == "stopped" else ""
        self.evaluation, self.weights = record.tags.get("evaluation", ""), record.tags.get("weights", "")
        self.floor = record.tags.get(FLOOR, "")
        self.retries, self.lost_hosts = (
            _parse_count(record.tags.get(tag, "")) for tag in ("retries", "lost_hosts")
        )

    def count_death(self, with_host: bool) -> None:
        """Count a death of the job's worker, alone or with its host, in this run and in all runs of the study."""
        if with_host:
            self.host_deaths, self.lost_hosts = self.host_deaths + 1, self.lost_hosts + 1
        else:
            self.worker_deaths, self.retries = self.worker_deaths + 1, self.retries + 1

    @property
    def death_tags(self) -> dict[str, str]:
        """The deaths in all runs of the study, as tags of its record."""
        return {"retries": str(self.retries), "lost_hosts": str(self.lost_hosts)}

    def take_measures(self, metrics: Mapping[str, float]) -> None:
        """Take the measures of an evaluation and of learning from among the metrics of a report or a record."""
        # All jobs share the names, which arrive as new texts with every report.
        self.measures |= {
            sys.intern(name.removeprefix(EVALUATE)): value
            for name, value in metrics.items()
            if name.startswith(EVALUATE) or name in LEARNING
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


def memory_text(resources: Resources) -> str:
    """The resources that decide whether a job is out of memory, for its record."""
    return json.dumps({"gpu": resources.gpu, "memory": resources.memory})


def has_more_memory(resources: Resources, recorded: str) -> bool:
    """True if a job that was out of memory with the recorded resources may fit now: on another GPU, or in more GiB.

    Records of older versions have no resources, and their outcome stays.
    """
    try:
        before = Resources.model_validate_json(recorded)
    except ValueError:  # no record, or a tag that a person has edited
        return False
    now, then = (math.inf if each.memory is None else each.memory for each in (resources, before))
    return resources.gpu != before.gpu or now > then


def _parse_count(text: str) -> int:
    return int(text) if text.isascii() and text.isdecimal() else 0
