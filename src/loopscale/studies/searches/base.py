"""The interface of a search, and ranges and outcomes in Optuna's terms."""

import math
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from loopscale.core.cheap_imports import Deferred
from loopscale.core.config import Family
from loopscale.notation.mistakes import Fault
from loopscale.notation.space import Axis, Choice, Integer, finite_points

if TYPE_CHECKING:  # Optuna loads slowly, and a study is read and planned without it
    import optuna
else:
    optuna = Deferred("optuna")

MOST_REPLICATES = 10_000
"""Replicates have the seeds 1 .. MOST_REPLICATES, and tuning trials all others."""
Objective = Literal["error", "flops"]
Point = dict[str, Any]
Feasible = Callable[[Mapping[str, Any]], bool]
"""True of the points that may be tried."""


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
    seeds: Annotated[int, Field(ge=1, le=100)] = 1
    """Trainings of each point, each with another seed. The value of a point is the mean of its log errors. The seeds
    train one after the other, so a point that is pruned or diverges trains no further seed."""
    objectives: tuple[Objective, ...] = ("error",)
    """The search minimises the validation error, and some searches also the FLOPs of training."""

    @abstractmethod
    def sampler(self, seed: int, size: int) -> "optuna.samplers.BaseSampler":
        """Optuna's sampler for one point of a search of `size` points.

        Members import `optuna` from this module, and Optuna is loaded here: `loopscale plan` and `best` need none.
        """

    def restore(self, study: "optuna.Study", size: int) -> None:
        """Restore what Optuna keeps with a study and not with its trials, after records have rebuilt the study."""

    def adopt(self, study: "optuna.Study", trial: "optuna.Trial", size: int) -> None:
        """Store the attributes of a proposal with a trial whose point the search has not proposed."""

    def listed_points(self, space: Mapping[str, Axis], seed: int) -> list[Point] | None:
        """All points in the order in which they are tried. `None`: `sampler` draws each point."""
        return None

    @property
    def tuning_seeds(self) -> tuple[int, ...]:
        """The seeds of every point. No replicate has one of these seeds.

        A replicate is therefore no run by which its point was chosen, and errors of replicates are unbiased.
        """
        return (0, *range(MOST_REPLICATES + 1, MOST_REPLICATES + self.seeds))

    def count(self, space: Mapping[str, Axis], feasible: Feasible | None = None) -> int:
        """The largest number of points that the search tries in a cell with these ranges.

        `feasible` says which points may be tried; by default all.
        """
        if not space:
            return 0
        if feasible and (listed := finite_points(space)) is not None:
            return min(self.trials, sum(map(feasible, listed)))
        return int(min(math.prod(axis.size for axis in space.values()), self.trials))

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

    def space_warnings(self, space: Mapping[str, Axis], points: int) -> Iterator[str]:
        """Remarks for a plan on the ranges of a cell with so many points."""
        yield from ()

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


def distribution(axis: Axis) -> "optuna.distributions.BaseDistribution":
    """A range in Optuna's terms."""
    distributions = optuna.distributions
    if isinstance(axis, Choice):
        return distributions.CategoricalDistribution(axis.choice)
    if isinstance(axis, Integer):
        return distributions.IntDistribution(*axis.integer, log=axis.scale == "log", step=axis.step or 1)
    return distributions.FloatDistribution(*axis.real, log=axis.scale == "log", step=axis.step)


def trial_state(outcome: str, error: float) -> "tuple[optuna.trial.TrialState, float | None]":
    """Optuna's state and value of a trial, given its outcome and its error.

    A diverged trial is complete with the worst value. Samplers ignore failed trials, and would return to their region.
    """
    states = optuna.trial.TrialState
    match outcome:
        case "finished":
            return states.COMPLETE, error
        case "pruned" | "stopped":
            return states.PRUNED, None
        case "diverged" | "out_of_memory":
            return states.COMPLETE, float("inf")
        case _:
            return states.FAIL, None
