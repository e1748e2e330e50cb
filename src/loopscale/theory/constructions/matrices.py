"""Matrices held by registers, one column per register: sums of squares, products, Newton's iteration for an inverse.

Register j has e_j in the rows `e`, and the j-th column of S in the rows `s`. Other rows hold columns of further
matrices, such as `m`. A product of symmetric matrices needs one block: a head with query A, key B and value C adds
C B' A, column by column.
"""

import torch
from torch import Tensor

from loopscale.theory.constructions.block_plan import BlockPlan, StateRows
from loopscale.theory.constructions.logic import SignedAttention, signed_heads


def register_states(rows: StateRows, dim: int, **multiples: float) -> Tensor:
    """The states of `dim` registers. Each named matrix is the given multiple of the identity."""
    identity = torch.eye(dim, dtype=torch.float64)
    return rows.state(dim, one=1.0, e=identity, **{name: c * identity for name, c in multiples.items()})


def add_squares(
    plan: BlockPlan, rows: StateRows, kind: SignedAttention, target: str = "s", factor: float = 1.0
) -> BlockPlan:
    """Heads that add factor · Σ_i x_i x_i' to the target matrix."""
    return signed_heads(plan, kind, [(rows["e"], rows["x"])], [(factor * rows["x"], rows[target])])


def multiply(
    plan: BlockPlan,
    rows: StateRows,
    kind: SignedAttention,
    matrix: str,
    source: str,
    target: str,
    factor: float = 1.0,
) -> BlockPlan:
    """Heads that add factor · matrix · source to the target rows of every token."""
    return signed_heads(plan, kind, [(rows[source], rows["e"])], [(factor * rows[matrix], rows[target])])


def inverse_step(rows: StateRows, kind: SignedAttention) -> BlockPlan:
    """M <- 2M - M S M. Attention gives M - M S M / 2, and the MLP doubles the result."""
    plan = signed_heads(BlockPlan(), kind, [(rows["m"], rows["s"])], [(-0.5 * rows["m"], rows["m"])])
    return plan.add(rows["m"], rows["m"])
