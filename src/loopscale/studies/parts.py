"""What a study says beside its axes: how to search and prune, which laws to test, what it may use."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, PositiveFloat, PositiveInt, model_validator

from loopscale.core.config import Config, Family
from loopscale.solvers.base import Solver
from loopscale.stats.forms.base import Form
from loopscale.studies.mistakes import one_of, shown
from loopscale.theory.bounds.base import Bound

Objective = Literal["error", "flops"]
FORMS = tuple(Form.choices())
ALONG = ("loop", "point")
"""What a law may run along beside a scientific axis: the curve that every trial records."""
DERIVED = {"prompts": ("training.steps", "training.batch_size"), "flops": ("model.", "training.")}
"""And what follows from axes: the prompts seen in training, and its cost. Each with the settings, or the beginnings of
their paths, of which the study has to vary a number."""


def named(family: type[Family], data: Any) -> Any:
    """A component that may be written as its kind alone. Raises ValueError for a kind that is not there."""
    if isinstance(data, Family):
        return data
    if isinstance(data, str):
        data = {"kind": data}
    noun = family.__name__.lower()
    if not isinstance(data, Mapping) or "kind" not in data:
        raise ValueError(
            f"this {noun} is {shown(data)} and has no kind; {one_of('', family.choices())} as its kind"
        )
    if not isinstance(data["kind"], str) or data["kind"] not in family.choices():
        raise ValueError(
            f"there is no {noun} {shown(data['kind'])}; {one_of(data['kind'], family.choices())}"
        )
    return data


class Search(Config):
    """How a cell's points are chosen: `grid` crosses its ranges, the others are Optuna's samplers."""

    kind: Literal["tpe", "random", "grid", "gp", "nsga2"] = "tpe"
    """tpe: tree-structured Parzen estimators (Bergstra et al. 2011). random: uniform. grid: all points, in random
    order. gp: a Gaussian process. nsga2: a genetic algorithm for two objectives (Deb et al. 2002).
    """
    trials: Annotated[int, Field(ge=1, le=10_000)] = 8
    """How many points are tried in each cell that has something to tune; a grid tries all of its own."""
    objectives: tuple[Objective, ...] = ("error",)
    """What is lowered: the validation error, and with nsga2 the FLOPs of training too."""

    @model_validator(mode="after")
    def _objectives_fit(self) -> Self:
        if self.kind == "nsga2" and self.objectives != ("error", "flops"):
            raise ValueError("nsga2 weighs two objectives; write objectives: [error, flops]")
        if self.kind != "nsga2" and self.objectives != ("error",):
            raise ValueError(
                f"{self.kind} cannot weigh {list(self.objectives)}; write kind: nsga2, or take them out"
            )
        if self.kind == "grid" and "trials" in self.model_fields_set:
            raise ValueError("a grid tries all of its points; leave trials out, or write kind: random")
        return self


class Scheduler(Config):
    """Which trials of a cell are stopped early, compared with each other and with nobody else."""

    kind: Literal["none", "asha", "median", "hyperband"] = "none"
    """none: all train to the end. asha: successive halving, without waiting (Li et al. 2020). median: who is worse than
    the median of the others stops (Golovin et al. 2017). hyperband: asha with several first rungs (Li et al. 2018).
    """
    first_rung: PositiveInt = 1
    """The step at which trials are compared for the first time. Whoever prunes must say it."""
    reduction: Annotated[int, Field(ge=2)] = 3
    """From rung to rung steps grow by this factor, and one in so many trials goes on. Not for `median`."""

    @model_validator(mode="after")
    def _says_when(self) -> Self:
        if self.kind != "none" and "first_rung" not in self.model_fields_set:
            raise ValueError(
                f"{self.kind} does not say when; write first_rung, the step of the first comparison"
            )
        if self.kind == "median" and "reduction" in self.model_fields_set:
            raise ValueError("median has no reduction; leave it out, or write kind: asha")
        return self


def _several(data: Any) -> Any:
    return (data,) if isinstance(data, str) else data


def _theory(data: Any) -> Any:
    """A bound's kind and some of its settings; those that it leaves out are filled from the trial."""
    if data is None:
        return None
    data = dict(named(Bound, data))
    fields = Bound.choices()[data["kind"]].model_fields
    for name in data.keys() - {"kind"}:
        if name not in fields:
            raise ValueError(f"bound {data['kind']} has no setting {name!r}; {one_of(name, fields)}")
    return data


def _forms() -> str:
    """The setting `form` in words."""
    formulas = "; ".join(f"{kind}: {form.formula}" for kind, form in Form.choices().items())
    return f"Of several forms, AICc chooses one. {formulas}."


class Law(Config):
    """How `of` falls along an axis or a curve: the forms to fit, and the bound to hold the fit against."""

    of: str = "error"
    """An error, or what else the task measures; that is no part of a curve."""
    along: str
    """A numeric scientific axis, or `loop`, `point`, `prompts` (seen in training: steps x batch_size) or `flops`."""
    form: Annotated[
        tuple[Literal[FORMS], ...],  # pyright: ignore[reportInvalidTypeForm]: the family has its members at run time
        BeforeValidator(_several),
        Field(min_length=1, description=_forms()),
    ] = ("power",)
    theory: Annotated[dict[str, Any] | None, BeforeValidator(_theory)] = None
    """A bound's kind and settings, as `loopscale show bounds` has them; what is left out is the trial's own."""


class Resources(Config):
    """What one trial gets; a share of a GPU lets several trials use it, each with its share of the memory."""

    cpu: Annotated[float, Field(gt=0, le=4096)] = 1
    """Cores; a share below 1 lets several trials use one."""
    gpu: Annotated[float, Field(ge=0, le=1024)] = 0
    """GPUs; a share below 1 lets several trials use one, each with that share of its memory."""
    memory: Annotated[float, Field(gt=0, le=2**20)] | None = None
    """GiB of main memory that are kept free for it, and that its process may take: beyond, it is out of memory."""

    @model_validator(mode="after")
    def _whole_beyond_one(self) -> Self:
        for name, amount in (("cpu", self.cpu), ("gpu", self.gpu)):
            if amount > 1 and amount != int(amount):
                raise ValueError(f"{name} is {amount}; beyond 1 write a whole number")
        return self

    @property
    def threads(self) -> int:
        """Of torch's on the CPU: one where a trial has a share of a core."""
        return max(1, int(self.cpu))


class Budget(Config):
    """What the whole study may use, lost and repeated work included: it stops by itself before it has used more."""

    gpu_hours: PositiveFloat | None = None
    """Hours times the GPUs that trials hold; `None` for no limit."""
    core_hours: PositiveFloat | None = None
    """Hours times the cores that trials hold."""
    hours: PositiveFloat | None = None
    """Of wall clock."""


def _solver(data: Any) -> Any:
    return named(Solver, data)


Baseline = Annotated[Solver, BeforeValidator(_solver)]
