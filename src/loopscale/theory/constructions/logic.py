"""Logic and arithmetic out of heads and units: conjunctions, selection, the largest of several, switches, products."""

from collections.abc import Iterable
from typing import Literal

from torch import Tensor

from loopscale.theory.constructions.piecewise import Piecewise
from loopscale.theory.constructions.plan import Move, Plan, Rows, Term

Signed = Literal["linear", "relu"]
"""Kinds of attention in which heads can pass a score as it is: one of linear attention, two of relu."""


FAR = 1e9
"""More than scores of softmax differ by, by so much that exp(-FAR) and all near it is 0."""


def passing(plan: Plan, kind: Signed, score: Iterable[Term], move: Iterable[Move]) -> Plan:
    """Heads that pass a score as it is."""
    return plan.head(score, move) if kind == "linear" else plan.pair(score, move)


def among(rows: Rows, flag: Tensor) -> Term:
    """What is added to a score of softmax so that only keys with a flag are seen; it costs them no precision."""
    return FAR * rows["one"], flag - rows["one"]


def agreeing(rows: Rows, *matches: Term, payload: Term | None = None) -> list[Term]:
    """A score whose relu is 1 where all these pairs of one-hots agree, else 0.

    A `payload`, the product of what the query reads and what the key does, in 0 .. 1, takes the place of the 1.
    """
    if payload is None:
        return [*matches, ((1.0 - len(matches)) * rows["one"], rows["one"])]
    doubled: list[Term] = [(2 * query, key) for query, key in matches]
    return [payload, *doubled, (-2.0 * len(matches) * rows["one"], rows["one"])]


def largest(plan: Plan, entries: Tensor, target: Tensor) -> list[Plan]:
    """The MLPs that add the largest of the rows of `entries` to one row, two by two, and leave those rows 0.

    The first level is `plan`'s, and each of the others a block of its own: ceil(log2 of how many) in all.
    """
    plans, running = [plan], len(entries)
    while True:
        level, winners = plans[-1].clear(entries[:running]), -(-running // 2)
        for n in range(winners):
            to = target if winners == 1 else entries[n : n + 1]
            last = entries[min(2 * n + 1, running - 1)][None]
            level.add(last, to).unit(entries[2 * n][None] - last, 0.0, to)
        if winners == 1:
            return plans
        running = winners
        plans.append(Plan())


def bits(plan: Plan, source: Tensor, target: Tensor, threshold: float) -> Plan:
    """The MLP adds 1 to the target's rows where the source's, never negative, reach a threshold, 0 where they are 0.

    Both are so in floating point as well; in between it is the source over the threshold.
    """
    return plan.constant(target, 1.0).unit(-source / threshold, 1.0, -target)


def switched(plan: Plan, source: Tensor, switch: Tensor, bound: float, target: Tensor) -> Plan:
    """The MLP adds the source's rows, at most `bound` in size, times switches that are 0 or 1, to the target's."""
    on = bound * switch
    return plan.unit(source + on, -bound, target).unit(-source + on, -bound, -target)


def times(plan: Plan, first: Tensor, second: Tensor, target: Tensor, square: Piecewise) -> Plan:
    """The MLP adds products of two forms' rows to the target's, by squares: ((a + b)² - (a - b)²) / 4."""
    return square.units(square.units(plan, first + second, target / 4), first - second, -target / 4)
