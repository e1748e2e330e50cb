"""The interface of a search, and ranges and outcomes in Optuna's terms."""

import math
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from loopscale.core.config import Family
from loopscale.studies.mistakes import Fault
from loopscale.studies.space import Axis, Choice, Integer

if TYPE_CHECKING:  # Optuna loads slowly, and a study is read and planned without it
    from optuna.distributions import BaseDistribution
    from optuna.samplers import BaseSampler as OptunaSampler
    from optuna.study import Study as OptunaStudy
    from optuna.trial import TrialState
else:
    OptunaSampler = OptunaStudy = Any

Objective = Literal["error", "flops"]
Point = dict[str, Any]


class Search(Family, package="loopscale.studies.searches"):
    """How the points of a cell are chosen."""

    default_kind: ClassVar[str] = "tpe"
    adaptive: ClassVar[bool] = True
    """True if a point depends on the results of earlier trials."""
    order_free: ClassVar[bool] = False
    """True if a point depends on nothing but the number of its trial."""
    exhaustive: ClassVar[bool] = False
    """True if the search tries every point of a grid; `trials` does not apply then."""
    stateful: ClassVar[bool] = False
    """True if the sampler stores attributes with each trial. Records must keep them, because later points use them."""
    weighs: ClassVar[tuple[Objective, ...]] = ("error",)
    """The objectives that the search minimises together."""

    trials: Annotated[int, Field(ge=1, le=10_000)] = 8
    """Points that are tried in each cell with something to tune. A grid tries all of its points."""
    objectives: tuple[Objective, ...] = ("error",)
    """The search minimises the validation error, and some searches also the FLOPs of training."""

    @abstractmethod
    def sampler(self, seed: int, size: int) -> OptunaSampler:
        """Optuna's sampler for one point of a search of `size` points.

        Members import Optuna here, not at the top of their file: `loopscale plan` and `best` read studies without it.
        """

    def restore(self, study: OptunaStudy, size: int) -> None:
        """Restore what Optuna keeps with a study and not with its trials, after records have rebuilt the study."""

    def listed_points(self, space: Mapping[str, Axis], seed: int) -> list[Point] | None:
        """All points in the order in which they are tried. `None`: `sampler` draws each point."""
        return None

    def count(self, space: Mapping[str, Axis]) -> int:
        """The largest number of points that the search tries in a cell with these ranges."""
        return int(min(math.prod(axis.size for axis in space.values()), self.trials)) if space else 0

    def faults(self, nuisance: Mapping[str, Axis]) -> Iterator[Fault]:
        """What the search cannot do with the ranges of a study."""
        yield from ()

    def warnings(self, points: Sequence[int], at_once: int) -> Iterator[str]:
        """Remarks for a plan, given the points of every tuned cell and how many of a cell are tried at once."""
        if self.adaptive and 2 * at_once > max(points):
            yield (
                f"{at_once} of a cell's {max(points)} points are tried at once: "
                f"{self.kind} then learns little from one for the next"
            )

    @model_validator(mode="after")
    def _objectives_fit(self) -> Self:
        if self.objectives == self.weighs:
            return self
        listed = f"[{', '.join(self.weighs)}]"
        if len(self.weighs) > 1:
            raise ValueError(f"{self.kind} weighs {len(self.weighs)} objectives; write objectives: {listed}")
        able = [kind for kind, search in Search.choices().items() if search.weighs == self.objectives]
        other = f"write kind: {able[0]}, or " if able else ""
        raise ValueError(
            f"{self.kind} cannot weigh {list(self.objectives)}; {other}remove objectives from the study"
        )


def distribution(axis: Axis) -> "BaseDistribution":
    """A range in Optuna's terms."""
    from optuna import distributions  # here, because Optuna loads slowly

    if isinstance(axis, Choice):
        return distributions.CategoricalDistribution(axis.choice)
    if isinstance(axis, Integer):
        return distributions.IntDistribution(*axis.integer, log=axis.scale == "log")
    return distributions.FloatDistribution(*axis.real, log=axis.scale == "log")


def trial_state(outcome: str, error: float) -> "tuple[TrialState, float | None]":
    """Optuna's state and value of a trial, given its outcome and its error.

    A diverged trial is complete with the worst value. Samplers ignore failed trials, and would return to their region.
    """
    from optuna.trial import TrialState  # here, because Optuna loads slowly

    match outcome:
        case "finished":
            return TrialState.COMPLETE, error
        case "pruned":
            return TrialState.PRUNED, None
        case "diverged" | "out_of_memory":
            return TrialState.COMPLETE, float("inf")
        case _:
            return TrialState.FAIL, None
