"""Newton's iteration for the inverse of a covariance, by full attention (AlgoFormer, lemma A.4 and theorem 4.1).

The net reads x_1, y_1, .., x_N, y_N, x_test. With S = X'X/N, M_0 = start · S and M_{k+1} = 2 M_k - M_k S M_k, its state
keeps m_i = M_k x_i on every x, the test token too; what is read out is (1/N) Σ_j y_j x_j'm_test = w_k·x_test.
"""

import torch
from jaxtyping import Float
from pydantic import PositiveFloat
from torch import Tensor
from typing_extensions import override

from loopscale.core.prompt import Prompt
from loopscale.theory.constructions.base import Design
from loopscale.theory.constructions.example import Example
from loopscale.theory.constructions.plan import Plan, Rows
from loopscale.theory.constructions.regression import FullAttention, Tokens, paired, problem


class Newton(FullAttention, kind="newton"):
    """The whole algorithm as an `algoformer`: two layers before the loop, one block in it, one after it.

    `start` has to lie below 2 / λmax(S)² (the paper's 2/|SS'| does not converge: the residual of the largest
    eigenvalue is then -1, and squares to 1). With fewer pairs than coordinates it converges to the pseudo-inverse.
    """

    source = "Gao et al. 2024 (AlgoFormer), lemma A.4 and theorem 4.1"
    algorithm = "newton"
    start: PositiveFloat = 0.05
    """α: M_0 = α S."""

    @override
    def design(self, prompt: Prompt) -> Design:
        pairs, targets = self.pairs(prompt), prompt.dim_out
        dim = prompt.dim_in - targets
        rows = Rows(x=dim, y=targets, kx=dim, m=dim, yx=targets, out=targets, **Tokens.SIZES)
        tokens, mean = Tokens(rows, pairs, sink=self.variant == "sink"), self.mean(pairs)
        key = rows["x"] if self.variant == "sink" else rows["kx"]
        keys = [*tokens.unseen(self.variant), *mean.sink(rows)]
        copied = tokens.keys(tokens.copy(Plan(), "yx", 1.0), self.variant)
        begun = mean.add(Plan(), rows["x"], key, (self.start * rows["x"], rows["m"]), keys)
        # The MLP doubles what attention leaves: 2 (m - M S M x / 2).
        loop = mean.add(Plan(), rows["m"], key, (-rows["m"] / 2, rows["m"]), keys).add(rows["m"], rows["m"])
        read = mean.add(Plan(), rows["m"], key, (rows["yx"], rows["out"]), keys)
        return Design(
            rows, torch.cat([rows["x"], rows["y"]]).T, rows["out"], tokens.positions, [copied, begun], [loop], [read],
            attention=["softmax", self.summing, self.summing, self.summing], registers=tokens.registers,
        )  # fmt: skip

    @override
    def example(self, rng: torch.Generator) -> Example:
        xs, ys = problem(rng, dim=5, pairs=20)
        guesses = iteration(xs[:, :-1], ys[:, :-1], xs[:, -1], self.start, steps=12, share=1 / 20)
        return Example.at_last(paired(xs, ys), guesses)


def iteration(
    xs: Float[Tensor, "prompts pairs dim"],
    ys: Float[Tensor, "prompts pairs targets"],
    query: Float[Tensor, "prompts dim"],
    start: float,
    steps: int,
    share: float,
) -> Float[Tensor, "steps prompts targets"]:
    """w_k·query for w_k = M_k S_y, M_k of Newton's iteration on S = share · X'X from start · S, S_y = share · X'Y."""
    second, moment = share * xs.mT @ xs, share * xs.mT @ ys
    inverse, guesses = start * second, []
    for _ in range(steps):
        inverse = 2 * inverse - inverse @ second @ inverse
        guesses.append((query[:, None] @ inverse @ moment)[:, 0])
    return torch.stack(guesses)
