"""Newton's iteration for the inverse of a covariance, with full attention [@gao2024, lemma A.4 and theorem 4.1].

The net reads x_1, y_1, ..., x_N, y_N, x_test. Let `S = X'X/N`, `M_0 = start · S` and `M_{k+1} = 2 M_k - M_k S M_k`.
The state holds m_i = M_k x_i on every x, including x_test. The output is `(1/N) Σ_j y_j x_j'm_test = w_k·x_test`.
"""

import torch
from jaxtyping import Float
from pydantic import PositiveFloat
from torch import Tensor
from typing_extensions import override

from loopscale.core.prompt import Prompt
from loopscale.models.architecture import Kind
from loopscale.theory.constructions.base import Design
from loopscale.theory.constructions.block_plan import BlockPlan, StateRows
from loopscale.theory.constructions.example import Example, Stated
from loopscale.theory.constructions.regression import (
    FullAttention,
    PairTokens,
    interleaved_tokens,
    random_linear_regression,
)

SYSTEM = "AlgoFormer"


class Newton(FullAttention, kind="newton"):
    """An `algoformer`: two layers before the loop, one block in the loop, one layer after the loop.

    `start` must be below 2 / λmax(S)². With the paper's value 2/|SS'| the residual of the largest eigenvalue is -1
    and never shrinks. With fewer pairs than coordinates the iteration converges to the pseudo-inverse.
    """

    source = "@gao2024, lemma A.4 and theorem 4.1"
    algorithm = "newton"
    start: PositiveFloat = 0.05
    """α: M_0 = α S."""

    @override
    def design(self, prompt: Prompt) -> Design:
        pairs, targets = self.pairs(prompt), prompt.dim_out
        dim = prompt.dim_in - targets
        rows = StateRows(x=dim, y=targets, kx=dim, m=dim, yx=targets, out=targets, **PairTokens.SIZES)
        tokens, mean = (
            PairTokens(rows, pairs, sink=self.variant == "sink"),
            self.summed_by(self.variant, max(pairs, 1)),
        )
        key = rows["x"] if self.variant == "sink" else rows["kx"]
        keys = [*tokens.unseen(self.variant), *mean.sink(rows)]
        copy = tokens.keys(tokens.copy(BlockPlan(), "yx", 1.0), self.variant)
        start = mean.add(BlockPlan(), rows["x"], key, (self.start * rows["x"], rows["m"]), keys)
        # Attention computes m - M S M x / 2, and the MLP doubles the result.
        loop = mean.add(BlockPlan(), rows["m"], key, (-rows["m"] / 2, rows["m"]), keys).add(
            rows["m"], rows["m"]
        )
        read = mean.add(BlockPlan(), rows["m"], key, (rows["yx"], rows["out"]), keys)
        read_in, before = rows.read_in("x", "y"), [copy, start]
        kinds: list[Kind] = ["softmax", self.summing, self.summing, self.summing]
        return Design(rows, read_in, rows["out"], tokens.positions, before, [loop], [read], kinds)

    @override
    def stated(self, prompt: Prompt) -> Stated:
        return Stated.of_loops("Newton step", layers="1 pre + 1 loop + 2 post", heads="2")

    @override
    def example(self, rng: torch.Generator) -> Example:
        xs, ys = random_linear_regression(rng, dim=5, pairs=20)
        guesses = newton_iterates(xs[:, :-1], ys[:, :-1], xs[:, -1], self.start, steps=12, share=1 / 20)
        return Example.at_last(interleaved_tokens(xs, ys), guesses)


def newton_iterates(
    xs: Float[Tensor, "prompts pairs dim"],
    ys: Float[Tensor, "prompts pairs targets"],
    query: Float[Tensor, "prompts dim"],
    start: float,
    steps: int,
    share: float,
) -> Float[Tensor, "steps prompts targets"]:
    """w_k·query after every step, for w_k = M_k S_y, S = share · X'X, S_y = share · X'Y and M_0 = start · S."""
    second, moment = share * xs.mT @ xs, share * xs.mT @ ys
    inverse, guesses = start * second, []
    for _ in range(steps):
        inverse = 2 * inverse - inverse @ second @ inverse
        guesses.append((query[:, None] @ inverse @ moment)[:, 0])
    return torch.stack(guesses)
