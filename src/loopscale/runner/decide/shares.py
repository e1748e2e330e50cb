"""The shares of studies in a cluster.

The shares are max-min fair by weight. Trials are assigned one at a time, always to the study with the least share for
its weight. Each study counts with the resource that its trials use most (dominant resource fairness, @ghodsi2011).
Rounding follows Sainte-Lague, as in elections. Slots that a study cannot use go to the others.
"""

import heapq
import math
from collections.abc import Mapping
from dataclasses import dataclass, field

UNLIMITED = 10**9
"""More trials than any study runs."""


@dataclass(frozen=True)
class StudyDemand:
    """Demand of one study."""

    weight: float
    demand: int
    """Number of trials that could run now."""
    running: int
    """Number of trials that run or wait for a worker."""
    trial: Mapping[str, float] = field(default_factory=lambda: {"CPU": 1.0})
    """Resources of one trial, by Ray's names."""


@dataclass(frozen=True)
class Share:
    """Number of trials that a study may run."""

    trials: int = UNLIMITED
    contested: bool = False
    """Whether other studies wait for slots that the study holds beyond its share."""


def fair_shares(demands: Mapping[str, StudyDemand], capacity: Mapping[str, float]) -> dict[str, Share]:
    """The share of each study, by the study's name; at least one trial each.

    A study alone has no limit: trials that do not fit wait in Ray, where an autoscaler sees them.
    """
    if len(demands) < 2:
        return {name: Share() for name in demands}
    trials = _divide(demands, capacity)
    held: dict[str, float] = {}
    for study in demands.values():
        for resource, amount in study.trial.items():
            held[resource] = held.get(resource, 0.0) + amount * study.running
    overfull = any(amount > capacity.get(resource, 0.0) + 1e-9 for resource, amount in held.items())
    return {name: Share(trials[name], overfull and demands[name].running > trials[name]) for name in demands}


def _divide(demands: Mapping[str, StudyDemand], capacity: Mapping[str, float]) -> dict[str, int]:
    trials = dict.fromkeys(demands, 1)
    left = dict(capacity)
    for study in demands.values():
        _subtract(left, study)
    heap = [
        (_weighted_share(study, capacity, 1), name) for name, study in demands.items() if study.demand > 1
    ]
    heapq.heapify(heap)
    while heap:
        _, name = heapq.heappop(heap)
        study = demands[name]
        if any(left.get(resource, 0.0) + 1e-9 < amount for resource, amount in study.trial.items() if amount):
            continue  # `left` only shrinks, so the study's trials will not fit later either
        _subtract(left, study)
        trials[name] += 1
        if trials[name] < study.demand:
            heapq.heappush(heap, (_weighted_share(study, capacity, trials[name]), name))
    return trials


def _subtract(left: dict[str, float], study: StudyDemand) -> None:
    for resource, amount in study.trial.items():
        left[resource] = left.get(resource, 0.0) - amount


def _weighted_share(study: StudyDemand, capacity: Mapping[str, float], trials: int) -> float:
    """The study's dominant share of the cluster, half a trial ahead, over its weight."""
    parts = [
        amount / capacity[resource] for resource, amount in study.trial.items() if capacity.get(resource)
    ]
    return (trials + 0.5) * max(parts, default=math.inf) / study.weight
