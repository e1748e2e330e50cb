"""Asynchronous successive halving [@li2020]."""

import math
from collections.abc import Mapping, Sequence

from loopscale.studies.schedulers.base import RungErrors, Scheduler


class Asha(Scheduler, kind="asha"):
    """At every rung a trial goes on while it is among the best 1/reduction of the trials that have reached the rung."""

    def ladder(self, number: int, steps: int) -> tuple[int, ...]:
        first = self.first_rung * self.reduction ** self.bracket(number, steps)
        return tuple(first * self.reduction**k for k in range(64) if first * self.reduction**k < steps)

    def survives(self, number: int, rung: int, rungs: Mapping[int, RungErrors]) -> bool:
        return rungs[rung].rank(number) < math.ceil(len(rungs[rung].errors) / self.reduction)

    def survives_rank(self, earlier: Sequence[int], rank: int) -> bool:
        return sum(other < rank for other in earlier) < math.ceil((len(earlier) + 1) / self.reduction)
