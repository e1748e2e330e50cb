"""Functions of one number, linear between knots, as hidden units of an MLP or as heads of relu attention.

The error for a smooth function f is at most h² max|f''| / 8 with pieces of length h. For f = t^p and geometric knots
on [a, b] the relative error is at most `|p (p - 1)| / 8 · (ln(b / a) / pieces)²`. With knots at the integers every
function of a count is exact.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float
from torch import Tensor

from loopscale.theory.constructions.block_plan import BlockPlan, Form, Move, Term


@dataclass(frozen=True)
class Piecewise:
    """level + Σ_m coefficient_m relu(side · (t - knot_m)).

    With side 1 the function is constant below the first knot, and its last piece continues beyond the last knot.
    With side -1 the function is constant above the last knot, and its first piece continues below the first knot.
    """

    level: float
    side: Literal[-1, 1]
    knots: Float[Tensor, " pieces"]
    coefficients: Float[Tensor, " pieces"]

    @classmethod
    def through(
        cls, function: Callable[[Tensor], Tensor], knots: Float[Tensor, " n"], side: Literal[-1, 1]
    ) -> "Piecewise":
        """The interpolation of `function` at the knots.

        Use side -1 for 1/t, t^-1/2, √t and log t: all coefficients then have one sign, so that nothing cancels.
        Side 1 would have a first slope of the size 1/t_0, with as large a rounding error. Side 1 suits squares and
        other smooth functions on uniform knots.
        """
        values = function(knots)
        slopes = values.diff() / knots.diff()
        flat = slopes.new_zeros(1)
        if side == 1:
            return cls(values[0].item(), side, knots[:-1], torch.cat([flat, slopes]).diff())
        return cls(values[-1].item(), side, knots[1:], torch.cat([slopes, flat]).diff())

    def __call__(self, t: Tensor) -> Tensor:
        """The value, computed from the formula."""
        return self.level + (self.side * (t[..., None] - self.knots)).relu() @ self.coefficients

    def add_units(
        self, plan: BlockPlan, argument: Form, target: Tensor, flag: Tensor | None = None
    ) -> BlockPlan:
        """The MLP adds f(argument) to the target, row by row, at tokens whose flag is 1.

        All rows are added to the same target row if the target has one row only. Without a flag every token receives
        the value. A token with flag 0 receives nothing if its argument is 0, and with side -1 also if it is positive.
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

    def add_heads(
        self, plan: BlockPlan, product: Term, move: Move, flag: Term, gate: Iterable[Term] = ()
    ) -> BlockPlan:
        """Heads of relu attention, one per piece and one for the constant, that add f(product) · source to the target.

        `flag` is 1 for the tokens that receive. `gate` keeps out the keys whose source is not 0.
        """
        (query, key), (source, target), (receives, is_key), gate = product, move, flag, list(gate)
        plan.head([flag, *gate], [(self.level * source, target)])
        for knot, coefficient in zip(self.knots.tolist(), self.coefficients.tolist(), strict=True):
            score = [(self.side * query, key), (-self.side * knot * receives, is_key)]
            plan.head([*score, *gate], [(coefficient * source, target)])
        return plan


def geometric_knots(low: float, high: float, pieces: int) -> Float[Tensor, " knots"]:
    """Knots from low to high in geometric progression."""
    return low * (high / low) ** torch.linspace(0, 1, pieces + 1, dtype=torch.float64)


def uniform_knots(low: float, high: float, pieces: int) -> Float[Tensor, " knots"]:
    """Knots from low to high at equal distances."""
    return torch.linspace(low, high, pieces + 1, dtype=torch.float64)


def integer_knots(low: int, high: int) -> Float[Tensor, " knots"]:
    """Knots at the integers low, ..., high, for functions of counts."""
    return torch.arange(low, high + 1, dtype=torch.float64)
