"""What pruning is expected to save: a stated expectation, for nobody knows curves before they are trained.

Trials come one after the other, in random order of how good they are, and the order at the first rung is
the order at the last: curves do not cross.
"""

import math
import statistics
from collections import defaultdict
from functools import cache

import numpy as np

from loopscale.studies.parts import Scheduler

DRAWS = 200
ENOUGH = 3
"""The median rule compares with no fewer."""


@cache
def share(kind: str, first_rung: int, reduction: int, trials: int, steps: int) -> float:
    """Steps that `trials` of one cell are expected to train, as a share of training them all to the end."""
    if kind == "none" or not trials:
        return 1.0
    scheduler = Scheduler.model_construct(kind=kind, first_rung=first_rung, reduction=reduction)
    rng = np.random.default_rng(0)
    return float(
        np.mean([_trained(scheduler, rng.permutation(trials).tolist(), steps) for _ in range(DRAWS)]) / steps
    )


def _trained(scheduler: Scheduler, ranks: list[int], steps: int) -> float:
    """Mean steps of trials of these ranks, in this order."""
    seen: dict[tuple[int, int], list[int]] = defaultdict(list)
    total = 0
    for number, rank in enumerate(ranks):
        bracket, rungs = _ladder(scheduler, number, steps)
        total += next((rung for rung in rungs if not _goes_on(scheduler, seen[bracket, rung], rank)), steps)
    return total / len(ranks)


def _ladder(scheduler: Scheduler, number: int, steps: int) -> tuple[int, list[int]]:
    first, reduction = scheduler.first_rung, scheduler.reduction
    if scheduler.kind == "median":
        return 0, list(range(first, steps, first))
    depth = 1 + max(0, math.floor(math.log(max(steps - 1, 1) / first, reduction) + 1e-9))
    bracket = number % depth if scheduler.kind == "hyperband" else 0
    return bracket, [first * reduction**k for k in range(bracket, depth) if first * reduction**k < steps]


def _goes_on(scheduler: Scheduler, seen: list[int], rank: int) -> bool:
    others = list(seen)
    seen.append(rank)
    if scheduler.kind == "median":
        return len(others) < ENOUGH or rank <= statistics.median(others)
    return sum(other < rank for other in others) < math.ceil(len(seen) / scheduler.reduction)
