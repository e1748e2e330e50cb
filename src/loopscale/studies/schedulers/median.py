"""The median stopping rule [@golovin2017, section 3.2.2]."""

import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import Self

import numpy as np
from pydantic import model_validator

from loopscale.notation.mistakes import Fault
from loopscale.studies.schedulers.base import RungErrors, Scheduler

ENOUGH = 3
"""Other trials that must have reached a rung before the rule stops a trial; the default of Ray Tune and Vizier."""
MOST_COMPARISONS = 10_000


class MedianStopping(Scheduler, kind="median"):
    """A trial stops if its best error so far is worse than the median of the other trials' running averages.

    Rungs are the multiples of the first rung.
    """

    def ladder(self, number: int, steps: int) -> tuple[int, ...]:
        return tuple(range(self.first_rung, steps, self.first_rung))

    def survives(self, number: int, rung: int, rungs: Mapping[int, RungErrors]) -> bool:
        others = [other for other in rungs[rung].errors if other != number]
        if len(others) < ENOUGH:
            return True
        so_far = [each.errors for step, each in rungs.items() if step <= rung]
        averages = [np.mean([errors[other] for errors in so_far if other in errors]) for other in others]
        best = min(errors[number] for errors in so_far if number in errors)
        return bool(best <= np.median(averages))

    def survives_rank(self, earlier: Sequence[int], rank: int) -> bool:
        return len(earlier) < ENOUGH or rank <= statistics.median(earlier)

    def faults(self, fewest: float, most: int) -> Iterator[Fault]:
        yield from super().faults(fewest, most)
        if (comparisons := most // self.first_rung) > MOST_COMPARISONS:
            what = f"scheduler.first_rung {self.first_rung} makes {comparisons:,} comparisons of a trial"
            yield Fault(("scheduler", "first_rung"), what, f"write {most // MOST_COMPARISONS} or more")

    @model_validator(mode="after")
    def _no_reduction(self) -> Self:
        if "reduction" in self.model_fields_set:
            raise ValueError("median has no reduction; leave it out, or write kind: asha")
        return self
