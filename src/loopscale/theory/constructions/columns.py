"""Matrices held by registers, a column each: sums of squares, products and Newton's iteration for an inverse.

Register j has e_j in the rows `e`, the j-th column of S in `s`, and that of a matrix worked on in `m`. Products of
symmetric matrices need one block: a head with query A, key B and value C adds C B' A, column by column.
"""

import torch
from torch import Tensor

from loopscale.theory.constructions.logic import Signed, passing
from loopscale.theory.constructions.plan import Plan, Rows


def registers(rows: Rows, dim: int, **multiples: float) -> Tensor:
    """The states of `dim` registers, with multiples of the identity in the matrices named."""
    identity = torch.eye(dim, dtype=torch.float64)
    return rows.state(dim, one=1.0, e=identity, **{name: c * identity for name, c in multiples.items()})


def add_squares(plan: Plan, rows: Rows, kind: Signed, target: str = "s", factor: float = 1.0) -> Plan:
    """Heads that add factor · Σ x_i x_i' to a matrix."""
    return passing(plan, kind, [(rows["e"], rows["x"])], [(factor * rows["x"], rows[target])])


def apply(
    plan: Plan, rows: Rows, kind: Signed, matrix: str, source: str, target: str, factor: float = 1.0
) -> Plan:
    """Heads that give every token factor · a matrix times what it has in the rows `source`."""
    return passing(plan, kind, [(rows[source], rows["e"])], [(factor * rows[matrix], rows[target])])


def inverse_step(rows: Rows, kind: Signed) -> Plan:
    """M <- 2M - M S M: attention subtracts half of it, the MLP doubles."""
    plan = passing(Plan(), kind, [(rows["m"], rows["s"])], [(-0.5 * rows["m"], rows["m"])])
    return plan.add(rows["m"], rows["m"])
