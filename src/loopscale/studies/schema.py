"""The keys of a study's file, their types and their defaults."""

import math
import re
from collections.abc import Iterable, Mapping
from functools import cache, partial
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    PositiveFloat,
    PositiveInt,
    model_validator,
)

from loopscale.core.config import Config, Family, is_tree
from loopscale.core.seeds import stream
from loopscale.evaluate import Evaluation
from loopscale.notation.mistakes import quoted
from loopscale.notation.patterns import check_pattern
from loopscale.notation.settings import with_kind
from loopscale.notation.shares import PERCENT, share_of
from loopscale.notation.space import Scalar, Space
from loopscale.questions.claim import ClaimSpec, Text
from loopscale.questions.law import LawSpec
from loopscale.questions.until import DECIDED, UntilDecided, read_until
from loopscale.solvers.base import Solver
from loopscale.studies.schedulers.base import NoScheduler, Scheduler
from loopscale.studies.searches.base import MOST_REPLICATES, Search
from loopscale.studies.searches.tpe import TPE
from loopscale.tasks.base import Task


def solving(solvers: Iterable[Solver], task: Task) -> tuple[Solver, ...]:
    """The solvers that can solve the task's problems."""
    problem = _problem(task.model_dump_json())
    return tuple(solver for solver in solvers if solver.takes(problem))


def solver_kinds(task: Task) -> list[str]:
    """The kinds of all solvers that can solve the task's problems with their default settings."""
    return [solver.kind for solver in solving([choice() for choice in Solver.choices().values()], task)]


@cache
def _problem(task: str) -> Any:
    """A problem that the task, given as JSON, draws."""
    return Task.model_validate_json(task).sample(1, stream("problem")).problem


def _one_gpu(gpu: float) -> float:
    if gpu > 1:
        raise ValueError(
            f"a trial trains on one GPU and not on {gpu:g}; write gpu: 1, and trials run side by side"
        )
    return gpu


class Resources(Config):
    """What one trial gets. Several trials can share a GPU, each with its share of the memory."""

    cpu: Annotated[float, Field(gt=0, le=4096)] = 1
    """Cores. With a number below 1 several trials share a core."""
    gpu: Annotated[float, Field(ge=0, json_schema_extra={"maximum": 1}), AfterValidator(_one_gpu)] = 0
    """GPUs: at most 1. With a number below 1 several trials share a GPU, each with this share of its memory. Their
    kernels run at the same time if the machine runs NVIDIA's MPS (`nvidia-cuda-mps-control -d`), and otherwise by
    turns."""
    memory: Annotated[float, Field(gt=0, le=2**20)] | None = None
    """GiB of main memory that are reserved for the trial. A process that takes more ends as out of memory."""

    @model_validator(mode="after")
    def _whole_beyond_one(self) -> Self:
        if self.cpu > 1 and self.cpu != int(self.cpu):
            raise ValueError(f"cpu is {self.cpu}; beyond 1 write a whole number")
        return self

    @property
    def amounts(self) -> dict[str, float]:
        """The amounts by name: cpu, gpu, memory (GiB; 0 if no memory is reserved)."""
        return {"cpu": float(self.cpu), "gpu": float(self.gpu), "memory": float(self.memory or 0)}

    @property
    def threads(self) -> int:
        """Threads of torch on the CPU: one for a trial with a share of a core."""
        return max(1, int(self.cpu))


class Budget(Config):
    """What the whole study may use, with lost and repeated work. The study stops before it uses more."""

    gpu_hours: PositiveFloat | None = None
    """Hours times the GPUs that trials hold; `None` for no limit."""
    core_hours: PositiveFloat | None = None
    """Hours times the cores that trials hold; `None` for no limit."""
    hours: PositiveFloat | None = None
    """Hours of wall clock; `None` for no limit."""


def _failures(data: Any) -> Any:
    """A share as a number, or in percent as text."""
    if data is not None and not 0 < share_of(data) < 1:
        raise ValueError(f"failures is {quoted(data)}; write a share, such as 20% or 0.2")
    return data


class Stop(Config):
    """Rules that end parts of a study before its plan. They depend on records only, so a resumed study keeps them."""

    error_below: PositiveFloat | None = None
    """A cell tries no new point once the value of its best point is below this validation error. Points that are under
    way go on, and the best point is replicated."""
    failures: Annotated[float | Annotated[str, PERCENT] | None, BeforeValidator(_failures)] = None
    """A run stops once more than this share of the planned trials have failed in it: `20%` or 0.2. Trials that failed,
    were lost or had too little memory count. The next run trains failed and lost trials again."""
    trial_hours: PositiveFloat | None = None
    """Hours of training after which a trial ends without a result, with the outcome `stopped`. The recorded seconds of
    training count, also those of earlier runs. With more hours a later run goes on with the trial."""

    @property
    def failure_share(self) -> float:
        """The share of failed trials above which a run stops; infinite without the rule."""
        return math.inf if self.failures is None else share_of(self.failures)

    def exceeds_hours(self, metrics: Mapping[str, float]) -> bool:
        """True if the seconds among a trial's metrics exceed `trial_hours`."""
        return self.trial_hours is not None and metrics.get("seconds", 0.0) > 3600 * self.trial_hours


ErrorAction = Literal["retry", "fail", "exclude_host"]


def _patterns(rules: dict[str, ErrorAction]) -> dict[str, ErrorAction]:
    for pattern in rules:
        check_pattern(pattern)
        if not pattern:
            raise ValueError("an empty pattern fits every error; write a part of the error's text, or .*")
    return rules


TAG_NAME = r"[A-Za-z0-9_][A-Za-z0-9_ .:-]*(/[A-Za-z0-9_][A-Za-z0-9_ .:-]*)*"
LONGEST_TAG_NAME, LONGEST_TEXT = 200, 5_000
"""Characters. MLflow's servers take no longer names and texts."""


def _bounded(text: str) -> str:
    if len(text) > LONGEST_TEXT:
        raise ValueError(f"{len(text):,} characters are written; write at most {LONGEST_TEXT:,}")
    return text


BoundedText = Annotated[str, AfterValidator(_bounded), Field(json_schema_extra={"maxLength": LONGEST_TEXT})]


def _tags(tags: dict[str, str]) -> dict[str, str]:
    for name, text in tags.items():
        if not re.fullmatch(TAG_NAME, name) or len(name) > LONGEST_TAG_NAME:
            what = f"MLflow takes no tag with the name {quoted(name)}"
            raise ValueError(f"{what}; use at most {LONGEST_TAG_NAME} letters, digits, spaces, _ . : - and /")
        if not text.strip():
            raise ValueError(f"the tag {name} is empty; write a text, or leave out the tag")
    return tags


Tags = Annotated[
    dict[str, BoundedText],
    AfterValidator(_tags),
    Field(
        json_schema_extra={"propertyNames": {"pattern": f"^{TAG_NAME}$", "maxLength": LONGEST_TAG_NAME}},
        description="Tags of the study in MLflow, by name: `{team: optics}`. A name that loopscale uses itself, such "
        "as `source`, gets the prefix `study_tag.` there. Tags change no trial.",
    ),
]

Axes = Annotated[
    dict[str, tuple[Any, ...]],
    Field(description="The axes of the question: dotted path into the trial -> values. All are crossed."),
]


def _kind_or_settings(family: type[Family]) -> BeforeValidator:
    """A component, also written as its kind alone."""
    # The family has its members at run time.
    kinds = Literal[tuple(family.choices())]  # pyright: ignore[reportInvalidTypeForm]
    return BeforeValidator(partial(with_kind, family), json_schema_input_type=family | kinds)


def _with_default_kind(family: type[Family], data: Any) -> Any:
    if not is_tree(data):
        return data  # pydantic reports that a mapping is needed
    return with_kind(family, {"kind": family.default_kind} | dict(data))


class StudySchema(Config):
    """The content of a study's file, validated key by key; `loopscale.studies.spec.Study` adds the cells."""

    question: Text
    """The question in words; the first line of the report."""
    base: str = ""
    """A file that this file extends, relative to this file: ../common.yaml. Mappings merge key by key, and this file
    wins. Lists and ranges are replaced. A base extends no other file. `plan --resolved` prints the merged study."""
    plugins: tuple[str, ...] = ()
    """Files and modules with further tasks, models and other members, relative to the study's file: ./my_model.py or
    my_package.module. Members of installed packages need no entry."""
    source: str = ""
    """Origin of the question: a paper and its figure."""
    tags: Tags = {}
    note: BoundedText = ""
    """A text in Markdown. MLflow shows the text as the description of the study's parent run. A note changes no
    trial."""
    fixed: dict[str, Any]
    """Settings that all trials share. Settings that are neither fixed nor varied have their defaults."""
    scientific: Axes = {}
    where: str = ""
    """A condition on settings. A combination is a cell only if the condition is true. The parts between `and` that name
    tuned settings choose the points of the cells: no other point is drawn."""
    nuisance: Space = {}
    known: tuple[dict[str, Scalar], ...] = ()
    """Points that every cell tries first, as in `[{training.lr: 1e-3}]`. The search draws the settings that a point
    leaves out. Known points count among the trials of the search."""
    search: Annotated[Search, BeforeValidator(partial(_with_default_kind, Search))] = TPE()
    """How the points of a cell are chosen."""
    scheduler: Annotated[Scheduler, BeforeValidator(partial(_with_default_kind, Scheduler))] = NoScheduler()
    """Which trials of a cell stop early."""
    replicates: Annotated[PositiveInt, Field(le=MOST_REPLICATES)] = 1
    """Trials of each cell's best point, with seeds 1 .. replicates. They never stop early."""
    evaluate: Evaluation = Evaluation()
    baselines: tuple[Annotated[Solver, _kind_or_settings(Solver)], ...] = ()
    """Classical algorithms, by kind. Each runs on the prompts of every cell whose task it solves."""
    laws: tuple[LawSpec, ...] = ()
    claims: tuple[ClaimSpec, ...] = ()
    """What the study claims of its cells. Verdicts are corrected for the number of claims."""
    until: Annotated[
        UntilDecided | None,
        BeforeValidator(read_until, json_schema_input_type=UntilDecided | Literal[DECIDED] | None),
    ] = None
    """`decided`: train replicates until every claim and law is decided, level or futile. Absent: `replicates` only."""
    resources: Resources = Resources()
    budget: Budget = Budget()
    stop: Stop = Stop()
    on_error: Annotated[dict[str, ErrorAction], AfterValidator(_patterns)] = {}
    """What follows an error of a trial, by a regular expression of the error's text: `{"Connection reset": retry}`. The
    first that fits counts. retry: another worker goes on, at most three times in a run. fail: the trial has failed.
    exclude_host: another host goes on, and the host of the error gets no more trials in this run. Without a rule an
    error of the code fails, and the death of a worker or a host is retried."""

    @property
    def holds_out(self) -> bool:
        """True if some law holds out cells."""
        return any(law.hold_out is not None for law in self.laws)
