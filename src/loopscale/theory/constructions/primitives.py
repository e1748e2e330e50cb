"""Parts of nets with relu attention: tokens that see only themselves, conjunctions, functions by pieces.

All are exact but for functions that are not themselves piecewise linear.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from loopscale.theory.constructions.plan import Move, Plan, Rows, Term

Signed = Literal["linear", "relu"]
"""Kinds of attention in which heads can pass a score as it is: one of linear attention, two of relu."""


FAR = 1e9
"""More than scores of softmax differ by, by so much that exp(-FAR) and all near it is 0."""


def passing(plan: Plan, kind: Signed, score: Iterable[Term], move: Iterable[Move]) -> Plan:
    """Heads that pass a score as it is."""
    return plan.head(score, move) if kind == "linear" else plan.pair(score, move)


def itself(rows: Rows, bound: float, identity: str = "id") -> list[Term]:
    """What is added to a score, at most `bound` in size, so that a token is seen by itself alone.

    Identities are one-hot; a token without one sees nothing. Rounding is that of numbers as large as the bound,
    which should therefore be tight.
    """
    return [(bound * rows[identity], rows[identity]), (-bound * rows["one"], rows["one"])]


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


@dataclass(frozen=True)
class Pieces:
    """A function by its values at knots, linear in between: the flat end's value and a kink at every other knot.

    right: flat beyond the last knot, and going on as it begins below the first. left: the other way round.
    1/t, its roots and the logarithm want `right`: all kinks then have one sign, and no digits cancel.
    """

    knots: Float[Tensor, " kinks"]
    kinks: Float[Tensor, " kinks"]
    level: float
    side: Literal["right", "left"]

    @classmethod
    def of(
        cls,
        function: Callable[[Tensor], Tensor],
        knots: Float[Tensor, " knots"],
        side: Literal["right", "left"] = "right",
    ) -> "Pieces":
        values = function(knots)
        slopes = values.diff() / knots.diff()
        if side == "right":
            return cls(knots[1:], torch.cat([slopes.diff(), -slopes[-1:]]), values[-1].item(), side)
        return cls(knots[:-1], torch.cat([slopes[:1], slopes.diff()]), values[0].item(), side)

    def add(self, plan: Plan, source: Tensor, target: Tensor, flag: Tensor | None = None) -> Plan:
        """The MLP adds the function of what each row of `source` reads to a row of `target`.

        With a flag, a row that is 0 or 1, tokens without it get nothing, if their source is 0.
        """
        sign = -1.0 if self.side == "right" else 1.0
        for read, written in zip(source, target, strict=True):
            reads = (sign * read).expand(len(self.knots), -1)
            offset = -sign * self.knots
            if flag is None:
                plan.constant(written[None], self.level)
            else:
                plan.unit(flag, 0.0, self.level * written[None])
                reads, offset = reads + offset[:, None] * flag, torch.zeros_like(offset)
            plan.unit(reads, offset, self.kinks[:, None] * written)
        return plan


def geometric(first: float, last: float, pieces: int) -> Float[Tensor, " knots"]:
    """Knots for powers of t: the relative error of t^p is then |p(p-1)|/8 (ln(last / first) / pieces)² throughout."""
    return torch.logspace(0, 1, pieces + 1, base=last / first, dtype=torch.float64) * first


def uniform(first: float, last: float, pieces: int) -> Float[Tensor, " knots"]:
    return torch.linspace(first, last, pieces + 1, dtype=torch.float64)


def bits(plan: Plan, source: Tensor, target: Tensor, threshold: float) -> Plan:
    """The MLP adds 1 to the target's rows where the source's, never negative, reach a threshold, 0 where they are 0.

    Both are so in floating point as well; in between it is the source over the threshold.
    """
    return plan.constant(target, 1.0).unit(-source / threshold, 1.0, -target)


def switched(plan: Plan, source: Tensor, switch: Tensor, bound: float, target: Tensor) -> Plan:
    """The MLP adds the source's rows, at most `bound` in size, times switches that are 0 or 1, to the target's."""
    on = bound * switch
    return plan.unit(source + on, -bound, target).unit(-source + on, -bound, -target)


def times(plan: Plan, first: Tensor, second: Tensor, target: Tensor, square: Pieces) -> Plan:
    """The MLP adds products of two forms' rows to the target's, by squares: ((a + b)² - (a - b)²) / 4."""
    return square.add(square.add(plan, first + second, target / 4), first - second, -target / 4)
