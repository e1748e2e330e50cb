"""The keys of a study's file, their types and their defaults."""

from typing import Annotated, Any

from pydantic import BeforeValidator, Field, PositiveInt, StringConstraints

from loopscale.core.config import Config, Family
from loopscale.evaluate import Evaluation
from loopscale.studies.parts import Baseline, Budget, LawSpec, Resources
from loopscale.studies.schedulers.base import Scheduler
from loopscale.studies.schedulers.none import NoScheduler
from loopscale.studies.searches.base import Search
from loopscale.studies.searches.tpe import TPE
from loopscale.studies.settings import is_tree
from loopscale.studies.space import Space
from loopscale.studies.validation import with_kind

Text = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]
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
    """A condition on scientific and fixed settings. Combinations for which the condition is false are no cells."""
    nuisance: Space = {}
    search: Annotated[Search, BeforeValidator(lambda data: _with_default_kind(Search, data))] = TPE()
    """How the points of a cell are chosen."""
    scheduler: Annotated[Scheduler, BeforeValidator(lambda data: _with_default_kind(Scheduler, data))] = (
        NoScheduler()
    )
    """Which trials of a cell stop early."""
    replicates: Annotated[PositiveInt, Field(le=10_000)] = 1
    """Trials of each cell's best point, with seeds 1 .. replicates. They never stop early."""
    evaluate: Evaluation = Evaluation()
    baselines: tuple[Baseline, ...] = ()
    """Classical algorithms, by kind. Each runs on the prompts of every cell whose task it solves."""
    laws: tuple[LawSpec, ...] = ()
    resources: Resources = Resources()
    budget: Budget = Budget()
