"""The interface of a scheduler, the default scheduler, and what a scheduler is expected to save."""

import bisect
import math
from abc import abstractmethod
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Annotated, ClassVar, Self

import numpy as np
from pydantic import Field, PositiveInt, model_validator

from loopscale.core.config import Family
from loopscale.notation.mistakes import Fault

DRAWS = 200
"""Random orders of the trials over which the expected saving is averaged."""


@dataclass
class RungErrors:
    """The errors that trials had at one rung."""

    errors: dict[int, float] = field(default_factory=dict[int, float])
    """Trial number -> error."""
    ordered: list[float] = field(default_factory=list[float])
    """The errors in ascending order, without NaN."""

    def add(self, number: int, error: float) -> None:
        if number in self.errors and not math.isnan(self.errors[number]):
            self.ordered.remove(self.errors[number])
        self.errors[number] = error
        if not math.isnan(error):
            bisect.insort(self.ordered, error)

    def rank(self, number: int) -> int:
        """The number of smaller errors; 0 for NaN."""
        error = self.errors[number]
        return 0 if math.isnan(error) else bisect.bisect_left(self.ordered, error)


class Scheduler(Family, package="loopscale.studies.schedulers"):
    """Which trials of a cell stop early. A trial is compared with trials of its own cell only.

    A decision is a function of the errors that the trials of a cell have had at their rungs. These errors are metrics
    in the records, so a resumed study decides as an uninterrupted one. Trials stop and never pause. Promotion, as in
    the original successive halving, saves more in large searches. Cells have 5 to 20 trials, and with promotion none
    of them would reach the end.
    """

    default_kind: ClassVar[str] = "none"
    prunes: ClassVar[bool] = True
    """False if every trial trains to the end."""

    first_rung: PositiveInt = 1
    """The step of the first comparison. Every scheduler that stops trials needs it."""
    reduction: Annotated[int, Field(ge=2)] = 3
    """Steps grow by this factor from rung to rung, and 1/reduction of the trials go on. Not for `median`."""

    @abstractmethod
    def ladder(self, number: int, steps: int) -> tuple[int, ...]:
        """The rungs of trial `number`: the steps of its comparisons. The last step, `steps`, is no rung."""

    def bracket(self, number: int, steps: int) -> int:
        """The bracket of trial `number`. Trials are compared within their bracket."""
        return 0

    @abstractmethod
    def survives(self, number: int, rung: int, rungs: Mapping[int, RungErrors]) -> bool:
        """True if trial `number`, whose error at `rung` was just added, goes on. The best trial so far always does.

        `rungs` maps the rungs of the trial's bracket to the errors so far.
        """

    @abstractmethod
    def survives_rank(self, earlier: Sequence[int], rank: int) -> bool:
        """`survives` for trials with one error at all rungs, given as a rank; `earlier` are the ranks of the others."""

    def faults(self, fewest: float, most: int) -> Iterator[Fault]:
        """What the scheduler cannot do with trials of `fewest` to `most` steps."""
        if self.prunes and self.first_rung >= fewest:
            what = f"scheduler.first_rung {self.first_rung} is not before the last of {fewest} steps"
            yield Fault(("scheduler", "first_rung"), what, f"write a step below {fewest}")

    def trained_share(self, points: int, steps: int, seeds: int = 1) -> float:
        """Steps that `points` points of a cell are expected to train, as a share of training all seeds to the end.

        The expectation assumes that points come one after the other, in random order. It also assumes that curves do
        not cross: the order at the first rung is the order at the last, and the order of one seed that of the others.
        """
        if not (self.prunes and points):
            return 1.0
        return _trained_share(self, points, steps, seeds)  # pyright: ignore[reportArgumentType]  frozen models are hashable

    @model_validator(mode="after")
    def _first_rung_given(self) -> Self:
        if self.prunes and "first_rung" not in self.model_fields_set:
            raise ValueError(
                f"{self.kind} needs first_rung; write the step of the first comparison, as in first_rung: 500"
            )
        return self


@cache
def _trained_share(scheduler: Scheduler, points: int, steps: int, seeds: int) -> float:
    rng = np.random.default_rng(0)
    orders = [rng.permutation(points).tolist() for _ in range(DRAWS)]
    return float(np.mean([_mean_steps(scheduler, ranks, steps, seeds) for ranks in orders]) / (steps * seeds))


def _mean_steps(scheduler: Scheduler, ranks: list[int], steps: int, seeds: int) -> float:
    """Mean steps of points that come in this order."""
    seen: dict[tuple[int, int, int], list[int]] = defaultdict(list)
    total = 0
    for number, rank in enumerate(ranks):
        bracket = scheduler.bracket(number, steps)
        for place in range(seeds):
            last = steps
            for rung in scheduler.ladder(number, steps):
                earlier = seen[place, bracket, rung]
                goes_on = scheduler.survives_rank(earlier, rank)
                earlier.append(rank)
                if not goes_on:
                    last = rung
                    break
            total += last
            if last < steps:
                break
    return total / len(ranks)


class NoScheduler(Scheduler, kind="none"):
    """The default."""

    prunes = False

    def ladder(self, number: int, steps: int) -> tuple[int, ...]:
        return ()

    def survives(self, number: int, rung: int, rungs: Mapping[int, RungErrors]) -> bool:
        return True

    def survives_rank(self, earlier: Sequence[int], rank: int) -> bool:
        return True
