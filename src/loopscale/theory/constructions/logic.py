"""Gates, conjunctions, maxima, switches and products, built from attention heads and hidden units.

A gate adds 0 to the score of selected keys and at most -bound to all others. Relu then passes the scores of the
selected keys unchanged and sets the others to 0. The rounding error is that of numbers of the size of the bound.
"""

import math
from collections.abc import Iterable
from typing import Literal

from torch import Tensor

from loopscale.theory.constructions.block_plan import BlockPlan, Form, Move, StateRows, Term
from loopscale.theory.constructions.piecewise import Piecewise

SignedAttention = Literal["linear", "relu"]
"""Kinds of attention that can pass a signed score: with one head of linear attention, or two of relu attention."""

SOFTMAX_MASK = 1e9
"""Far above the differences of softmax scores: exp(-SOFTMAX_MASK + score) is 0."""


def signed_heads(
    plan: BlockPlan, kind: SignedAttention, score: Iterable[Term], move: Iterable[Move]
) -> BlockPlan:
    """Heads that pass a score with its sign."""
    return plan.head(score, move) if kind == "linear" else plan.signed_pair(score, move)


def gate_terms(one: Form, bound: float, *matches: Term) -> list[Term]:
    """Score terms that are 0 where every match is 1, and at most -bound where any match is 0.

    A match is an inner product in {0, 1}, for example of two one-hot codes. If a match compares the tokens' identities,
    every token attends to itself only; a token without identity (all zeros) attends to no token.
    `bound` must be at least the largest score of any two tokens that is to be suppressed. The bound is rounded up to a
    power of 2, because a score of 1 then stays exact.
    """
    power = 2.0 ** math.ceil(math.log2(bound))
    return [*((power * query, key) for query, key in matches), (-power * len(matches) * one, one)]


def newton_step(
    plan: BlockPlan, product: Term, target: Form, weight: float, flag: Term, gate: Iterable[Term] = ()
) -> BlockPlan:
    """Heads that add weight · (1 - product) · target to the target, at the tokens where the flag is 1.

    With product n r, target r and weight 1 this is Newton's step for r = 1/n: the error e = 1 - n r becomes e².
    With product v·v, target v and weight 1/2 this is a step towards |v| = 1: the error e = |v| - 1 becomes -3/2 e².
    """
    gate = list(gate)
    plan.signed_pair([product], [(-weight * target, target)], gate)
    return plan.head([flag, *gate], [(weight * target, target)])


def mask_except(rows: StateRows, flag: Tensor) -> Term:
    """A softmax score term that hides all keys without the flag. The scores of flagged keys keep their precision."""
    return SOFTMAX_MASK * rows["one"], flag - rows["one"]


def conjunction(rows: StateRows, *matches: Term, payload: Term | None = None) -> list[Term]:
    """A score whose relu is 1 where all pairs of one-hot codes match, and 0 elsewhere.

    With a `payload`, an inner product in [0, 1], the relu is the payload instead of 1.
    """
    if payload is None:
        return [*matches, ((1.0 - len(matches)) * rows["one"], rows["one"])]
    doubled: list[Term] = [(2 * query, key) for query, key in matches]
    return [payload, *doubled, (-2.0 * len(matches) * rows["one"], rows["one"])]


def add_largest(plan: BlockPlan, entries: Tensor, target: Tensor) -> list[BlockPlan]:
    """MLPs that add the largest row of `entries` to the target row, and clear the entries.

    A tournament: each of the ceil(log2(number of entries)) levels halves the number of entries. The first level
    extends `plan`. Every other level is a block of its own.
    """
    plans, running = [plan], len(entries)
    while True:
        level, winners = plans[-1].clear(entries[:running]), -(-running // 2)
        for n in range(winners):
            winner = target if winners == 1 else entries[n : n + 1]
            second = entries[min(2 * n + 1, running - 1)][None]
            level.add(second, winner).unit(entries[2 * n][None] - second, 0.0, winner)
        if winners == 1:
            return plans
        running = winners
        plans.append(BlockPlan())


def add_indicators(plan: BlockPlan, source: Tensor, target: Tensor, threshold: float) -> BlockPlan:
    """The MLP adds 1 to a target row if its source row is at least the threshold, and 0 if the source row is 0.

    Both are exact in floating point. Between 0 and the threshold the MLP adds source / threshold. The source must
    not be negative.
    """
    return plan.constant(target, 1.0).unit(-source / threshold, 1.0, -target)


def add_switched(plan: BlockPlan, source: Tensor, switch: Tensor, bound: float, target: Tensor) -> BlockPlan:
    """The MLP adds source · switch to the target rows. A switch is 0 or 1, and |source| must not exceed `bound`."""
    raised = bound * switch
    return plan.unit(source + raised, -bound, target).unit(-source + raised, -bound, -target)


def add_products(
    plan: BlockPlan, first: Tensor, second: Tensor, target: Tensor, square: Piecewise
) -> BlockPlan:
    """The MLP adds the products of rows to the target rows, as ((a + b)² - (a - b)²) / 4 by piecewise squares."""
    return square.add_units(square.add_units(plan, first + second, target / 4), first - second, -target / 4)
