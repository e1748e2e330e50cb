"""Functions of one number that are linear between knots, in the hidden units of an MLP or in heads of relu attention.

The distance to a smooth function is at most h² max|f''| / 8 for pieces of length h. With knots in geometric
progression on [a, b] that of t^p is, relative to it, |p (p - 1)| / 8 · (ln(b / a) / pieces)². On knots at whole
numbers every function of counts is exact.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from loopscale.theory.constructions.plan import Form, Move, Plan, Term


@dataclass(frozen=True)
class Piecewise:
    """level + Σ_m coefficient_m relu(side (t - knot_m)): constant on the far side, linear on beyond the near one."""

    level: float
    side: Literal[-1, 1]
    knots: Float[Tensor, " pieces"]
    coefficients: Float[Tensor, " pieces"]

    @classmethod
    def through(
        cls, function: Callable[[Tensor], Tensor], knots: Float[Tensor, " n"], side: Literal[-1, 1]
    ) -> "Piecewise":
        """The function at the knots, and lines between them.

        Side -1 is for 1/t, t^-1/2, √t and log t: their coefficients are then of one sign and nothing cancels, where
        on side 1 a first slope of 1/t_0 would round as its size. Side 1 does for squares on even pieces.
        """
        values = function(knots)
        slopes = values.diff() / knots.diff()
        flat = slopes.new_zeros(1)
        if side == 1:
            return cls(values[0].item(), side, knots[:-1], torch.cat([flat, slopes]).diff())
        return cls(values[-1].item(), side, knots[1:], torch.cat([slopes, flat]).diff())

    def __call__(self, t: Tensor) -> Tensor:
        """What it computes, as a formula."""
        return self.level + (self.side * (t[..., None] - self.knots)).relu() @ self.coefficients

    def units(self, plan: Plan, argument: Form, target: Tensor, flag: Tensor | None = None) -> Plan:
        """The MLP adds f of each row of the argument to the target's (or to its only row), at tokens whose flag is 1.

        Where the flag is 0 nothing is added if the argument is 0 there (and on side -1 also if it is positive).
        Without a flag every token gets it.
        """
        for number, row in zip(argument.split(1), target.expand(len(argument), -1).split(1), strict=True):
            writes = self.coefficients[:, None] * row
            if flag is None:
                plan.constant(row, self.level)
                plan.unit(self.side * number.expand(len(self.knots), -1), -self.side * self.knots, writes)
            else:
                plan.unit(flag, 0.0, self.level * row)
                plan.unit(self.side * (number - self.knots[:, None] * flag), 0.0, writes)
        return plan

    def heads(self, plan: Plan, product: Term, move: Move, flag: Term, gate: Iterable[Term] = ()) -> Plan:
        """A head a piece and one more, of relu attention: f(product) times what is moved.

        `flag` is 1 for the tokens that receive; `gate` keeps others out where what is moved is not 0 there.
        """
        (query, key), (source, target), (receives, is_key), gate = product, move, flag, list(gate)
        plan.head([flag, *gate], [(self.level * source, target)])
        for knot, coefficient in zip(self.knots.tolist(), self.coefficients.tolist(), strict=True):
            score = [(self.side * query, key), (-self.side * knot * receives, is_key)]
            plan.head([*score, *gate], [(coefficient * source, target)])
        return plan


def geometric(low: float, high: float, pieces: int) -> Float[Tensor, " knots"]:
    """Knots of so many pieces, each longer than the one before by the same factor."""
    return low * (high / low) ** torch.linspace(0, 1, pieces + 1, dtype=torch.float64)


def even(low: float, high: float, pieces: int) -> Float[Tensor, " knots"]:
    """Knots of so many pieces of the same length."""
    return torch.linspace(low, high, pieces + 1, dtype=torch.float64)


def whole(low: int, high: int) -> Float[Tensor, " knots"]:
    """Knots at the whole numbers low .. high, for functions of counts."""
    return torch.arange(low, high + 1, dtype=torch.float64)
