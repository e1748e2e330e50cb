"""CMA-ES [@hansen2016]: a normal distribution that follows the best points of each generation."""

import math
from collections.abc import Iterator, Mapping

from loopscale.notation.space import Axis, Choice
from loopscale.studies.searches.base import Search, optuna


class CMAES(Search, kind="cmaes"):
    """Suits many points and ranges of numbers. Choices are drawn at random, because they have no order.

    A single range is a search along one line. Whole numbers are rounded. A pruned or diverged point counts as the
    worst.
    """

    def sampler(self, seed: int, size: int) -> "optuna.samplers.BaseSampler":
        from loopscale.studies.cma_sampler import CmaSampler  # here, because Optuna loads slowly

        return CmaSampler(seed=seed)

    def space_warnings(self, space: Mapping[str, Axis], points: int) -> Iterator[str]:
        choices = [path for path, axis in space.items() if isinstance(axis, Choice)]
        numbers = len(space) - len(choices)
        if choices:
            yield f"cmaes draws {' and '.join(choices)} at random, because values without an order have no direction"
        generation = 4 + math.floor(3 * math.log(numbers)) if numbers else 0
        if points < 3 * generation:
            yield (
                f"cmaes learns after every {generation} points, and a cell has {points}; write kind: tpe or more trials"
            )
