"""How many trials each of several studies may run at once where they share a cluster: arithmetic, and nothing of Ray.

Shares are max-min fair by weight. Trials are handed out one at a time, always to the study that has the least for its
weight, measured by the resource of which its trials take most (dominant resource fairness, Ghodsi et al. 2011); where
nobody can have an exact share, rounding is Sainte-Lague's, as in elections. What a study cannot use is the others'.
"""

import heapq
import math
from collections.abc import Mapping
from dataclasses import dataclass, field

ALL = 10**9
"""More trials than anybody runs: no limit."""


@dataclass(frozen=True)
class Claim:
    """What a study says of itself."""

    weight: float
    demand: int
    """How many trials it could have at work now."""
    running: int
    """How many it has, those included that still wait for a place."""
    trial: Mapping[str, float] = field(default_factory=lambda: {"CPU": 1.0})
    """What one of its trials takes, as Ray names it."""


@dataclass(frozen=True)
class Room:
    """How many trials a study may have at work."""

    trials: int = ALL
    wanted: bool = False
    """Whether others wait for what it has beyond that: it should give it back."""


def rooms(claims: Mapping[str, Claim], capacity: Mapping[str, float]) -> dict[str, Room]:
    """The room of every claim by its name; at least one trial each.

    One study alone has no limit: what does not fit waits in Ray, where an autoscaler sees it.
    """
    if len(claims) < 2:
        return {name: Room() for name in claims}
    given = _shares(claims, capacity)
    held: dict[str, float] = {}
    for claim in claims.values():
        for name, amount in claim.trial.items():
            held[name] = held.get(name, 0.0) + amount * claim.running
    crowded = any(amount > capacity.get(name, 0.0) + 1e-9 for name, amount in held.items())
    return {name: Room(given[name], crowded and claims[name].running > given[name]) for name in claims}


def _shares(claims: Mapping[str, Claim], capacity: Mapping[str, float]) -> dict[str, int]:
    given = dict.fromkeys(claims, 1)
    left = dict(capacity)
    for claim in claims.values():
        _take(left, claim)
    waiting = [(_cost(claim, capacity, 1), name) for name, claim in claims.items() if claim.demand > 1]
    heapq.heapify(waiting)
    while waiting:
        _, name = heapq.heappop(waiting)
        claim = claims[name]
        if any(left.get(each, 0.0) + 1e-9 < amount for each, amount in claim.trial.items() if amount):
            continue  # nothing is ever put back: it will not fit later either
        _take(left, claim)
        given[name] += 1
        if given[name] < claim.demand:
            heapq.heappush(waiting, (_cost(claim, capacity, given[name]), name))
    return given


def _take(left: dict[str, float], claim: Claim) -> None:
    for name, amount in claim.trial.items():
        left[name] = left.get(name, 0.0) - amount


def _cost(claim: Claim, capacity: Mapping[str, float], given: int) -> float:
    """How much of the cluster the study has for its weight, half a trial ahead."""
    parts = [amount / capacity[name] for name, amount in claim.trial.items() if capacity.get(name)]
    return (given + 0.5) * max(parts, default=math.inf) / claim.weight
