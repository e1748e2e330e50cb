"""The keys of a study's file, their types and their defaults."""

from collections.abc import Iterable
from functools import cache, partial
from typing import Annotated, Any, Literal, Self, cast

from pydantic import BeforeValidator, Field, PositiveFloat, PositiveInt, model_validator

from loopscale.core.config import Config, Family
from loopscale.core.seeds import stream
from loopscale.evaluate import Evaluation
from loopscale.solvers.base import Solver
from loopscale.stats.forms.base import Form
from loopscale.studies.claims import ClaimSpec, Text
from loopscale.studies.mistakes import one_of, quoted
from loopscale.studies.schedulers.base import NoScheduler, Scheduler
from loopscale.studies.searches.base import Search
from loopscale.studies.searches.tpe import TPE
from loopscale.studies.settings import with_kind
from loopscale.studies.space import Space
from loopscale.studies.trees import is_tree
from loopscale.studies.until import UntilDecided, read_until
from loopscale.tasks.base import Task
from loopscale.theory.bounds.base import Bound

FORMS = tuple(Form.choices())
CURVE_AXES = ("loop", "point")
"""Axes of the curve that every trial records. A law may run along them as well as along a scientific axis."""
DERIVED_AXES = {
    "prompts": ("training.steps", "training.flops", "training.seconds", "training.batch_size"),
    "flops": ("model.", "training."),
}
"""Axes that follow from settings: prompts seen in training, and FLOPs of training. The study must vary a numeric
setting whose path begins with one of the texts."""


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


def _theory(data: Any) -> Any:
    """Check a bound's kind and the names of its settings. Missing settings are filled from each trial later."""
    if data is None:
        return None
    settings: dict[str, Any] = dict(with_kind(Bound, data))
    fields = Bound.choices()[settings["kind"]].model_fields
    for name in settings.keys() - {"kind"}:
        if name not in fields:
            raise ValueError(f"bound {settings['kind']} has no setting {name!r}; {one_of(name, fields)}")
    return settings


def _forms() -> str:
    """The setting `form` in words."""
    formulas = "; ".join(f"{kind}: {form.formula}" for kind, form in Form.choices().items())
    return f"Of several forms, AICc chooses one. {formulas}."


def _hold_out(data: Any) -> Any:
    """A number of values, or a list of values."""
    if data is None or (type(data) is int and data > 0):
        return data
    values = tuple(cast(Iterable[Any], data)) if isinstance(data, list | tuple) else ()
    if values and all(type(value) in (int, float) for value in values):
        return values
    raise ValueError(f"hold_out is {quoted(data)}; write a number of values, such as 1, or a list of values")


class LawSpec(Config):
    """How a measure changes along an axis or a curve: the forms to fit, and a bound to compare with."""

    of: str = "error"
    """An error, the regret (the error above the floor), the step of emergence (`emerged_at`), or another measure of the
    task. Only errors and regret have a curve along loops or points."""
    along: str
    """A numeric scientific axis, or `loop`, `point`, `prompts` (seen in training: steps x batch_size) or `flops`."""
    form: Annotated[
        tuple[Literal[FORMS], ...],  # pyright: ignore[reportInvalidTypeForm]: the family has its members at run time
        BeforeValidator(lambda data: (data,) if isinstance(data, str) else data),
        Field(min_length=1, description=_forms()),
    ] = ("power",)
    theory: Annotated[dict[str, Any] | None, BeforeValidator(_theory)] = None
    """A bound's kind and settings, as `loopscale show bounds` lists them. Settings left out are those of the trial."""
    hold_out: Annotated[int | tuple[int | float, ...] | None, BeforeValidator(_hold_out)] = None
    """How many of the largest values of the axis are held out, or a list of values. Their cells train last. The law is
    fitted to the other cells, and its prediction of the held-out cells is recorded before they start."""


class Resources(Config):
    """What one trial gets. Several trials can share a GPU, each with its share of the memory."""

    cpu: Annotated[float, Field(gt=0, le=4096)] = 1
    """Cores. With a number below 1 several trials share a core."""
    gpu: Annotated[float, Field(ge=0, le=1024)] = 0
    """GPUs. With a number below 1 several trials share a GPU, each with this share of its memory. Their kernels run at
    the same time if the machine runs NVIDIA's MPS (`nvidia-cuda-mps-control -d`), and otherwise by turns."""
    memory: Annotated[float, Field(gt=0, le=2**20)] | None = None
    """GiB of main memory that are reserved for the trial. A process that takes more ends as out of memory."""

    @model_validator(mode="after")
    def _whole_beyond_one(self) -> Self:
        for name, amount in (("cpu", self.cpu), ("gpu", self.gpu)):
            if amount > 1 and amount != int(amount):
                raise ValueError(f"{name} is {amount}; beyond 1 write a whole number")
        return self

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


Axes = Annotated[
    dict[str, tuple[Any, ...]],
    Field(description="The axes of the question: dotted path into the trial -> values. All are crossed."),
]


def _with_default_kind(family: type[Family], data: Any) -> Any:
    if not is_tree(data):
        return data  # pydantic reports that a mapping is needed
    return with_kind(family, {"kind": family.default_kind} | dict(data))


class StudySchema(Config):
    """The content of a study's file, validated key by key; `loopscale.studies.spec.Study` adds the cells."""

    question: Text
    """The question in words; the first line of the report."""
    source: str = ""
    """Origin of the question: a paper and its figure."""
    fixed: dict[str, Any]
    """Settings that all trials share. Settings that are neither fixed nor varied have their defaults."""
    scientific: Axes = {}
    where: str = ""
    """A condition on scientific and fixed settings. A combination is a cell only if the condition is true."""
    nuisance: Space = {}
    search: Annotated[Search, BeforeValidator(partial(_with_default_kind, Search))] = TPE()
    """How the points of a cell are chosen."""
    scheduler: Annotated[Scheduler, BeforeValidator(partial(_with_default_kind, Scheduler))] = NoScheduler()
    """Which trials of a cell stop early."""
    replicates: Annotated[PositiveInt, Field(le=10_000)] = 1
    """Trials of each cell's best point, with seeds 1 .. replicates. They never stop early."""
    evaluate: Evaluation = Evaluation()
    baselines: tuple[Annotated[Solver, BeforeValidator(partial(with_kind, Solver))], ...] = ()
    """Classical algorithms, by kind. Each runs on the prompts of every cell whose task it solves."""
    laws: tuple[LawSpec, ...] = ()
    claims: tuple[ClaimSpec, ...] = ()
    """What the study claims of its cells. Verdicts are corrected for the number of claims."""
    until: Annotated[UntilDecided | None, BeforeValidator(read_until)] = None
    """`decided`: train replicates until every claim is decided, level or futile. Absent: `replicates` only."""
    resources: Resources = Resources()
    budget: Budget = Budget()
