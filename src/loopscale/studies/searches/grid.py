"""All combinations of the values of each range, in random order."""

import itertools
import math
import random
from collections.abc import Iterator, Mapping
from typing import Self

from pydantic import model_validator

from loopscale.notation.mistakes import Fault
from loopscale.notation.space import Axis, Choice
from loopscale.studies.searches.base import Feasible, Point, Search, optuna

MOST_POINTS = 10_000


class Grid(Search, kind="grid"):
    """Ranges need `points: n`, the number of values to take, or `step: n`; choices take all of their values."""

    adaptive = False
    exhaustive = True

    def sampler(self, seed: int, size: int) -> "optuna.samplers.BaseSampler":
        raise NotImplementedError("a grid lists its points")

    def listed_points(self, space: Mapping[str, Axis], seed: int) -> list[Point]:
        """All points, shuffled. In order, early trials would all lie at one end of every range.

        A scheduler would then compare similar points only, and a search that is stopped early would say little.
        """
        values = [axis.grid() for axis in space.values()]
        points = [dict(zip(space, each, strict=True)) for each in itertools.product(*values)]
        random.Random(seed).shuffle(points)
        return points

    def count(self, space: Mapping[str, Axis], feasible: Feasible | None = None) -> int:
        if space and feasible:
            return sum(map(feasible, self.listed_points(space, 0)))
        return math.prod(len(axis.grid()) for axis in space.values()) if space else 0

    def faults(self, nuisance: Mapping[str, Axis]) -> Iterator[Fault]:
        without_points = [
            path
            for path, axis in nuisance.items()
            if not isinstance(axis, Choice) and axis.points is None and axis.step is None
        ]
        for path in without_points:
            what = f"a grid cannot cross the range of {path}"
            yield Fault(
                ("nuisance", path), what, "write points: n or step: n with the range, or choice: [...]"
            )
        if not without_points and (size := self.count(nuisance)) > MOST_POINTS:
            what = f"the grid has {size:,} points in a cell"
            yield Fault(
                ("search",), what, f"write fewer values: at most {MOST_POINTS:,} points can be planned"
            )

    @model_validator(mode="after")
    def _all_points(self) -> Self:
        if "trials" in self.model_fields_set:
            raise ValueError("a grid tries all of its points; leave trials out, or write kind: random")
        return self
