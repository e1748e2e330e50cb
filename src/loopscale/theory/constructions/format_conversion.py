"""A decoder that gives every y the x it belongs to: from x_1, y_1, x_2, y_2, .. to pairs that share a token.

The net reads tokens (x, 0) and (0, y) by turns; after its two layers the second token of a pair is (x, y). ReLU
attention over the i tokens in sight, exact at every token, with weights that depend neither on their number nor on d.
The tokens' numbers are enough for it: a score 2 p_i (1 + p_j - p_i) is positive at the own pair alone, of the pairs
p_j <= p_i in sight, and there it is i = 2 p_i, which undoes the division by i.
"""

from typing import ClassVar

import torch
from jaxtyping import Float
from pydantic import PositiveInt
from torch import Tensor
from typing_extensions import override

from loopscale.core.prompt import Prompt
from loopscale.theory.constructions.base import Construction, Design
from loopscale.theory.constructions.example import Example
from loopscale.theory.constructions.plan import Form, Plan, Rows
from loopscale.theory.constructions.regression import paired


class FormatConversion(Construction, kind="format_conversion"):
    """In: x of `dim_in` - targets coordinates, then y. Out, in the last layer: the same, x repeated beside its y.

    Proposition 6 prints the input as the output; what its proof needs, and `lista` reads, is this. What it calls the
    encoder's format are the tokens 2, 4, .., 2N, 2N + 1 of the output, and p, one and 1 - e for their positions.
    """

    source = "Slides on He et al. 2025 (transformers and PCA), proposition 6"
    algorithm = "copy of every x to the token of its y"
    targets: PositiveInt = 1
    """Coordinates of y."""

    @override
    def example(self, rng: torch.Generator) -> Example:
        xs, ys = (torch.randn(8, 11, k, generator=rng, dtype=torch.float64) for k in (3, self.targets))
        tokens = paired(xs, ys)
        pairs = converted(tokens, self.targets)
        return Example(tokens, torch.stack([torch.full_like(pairs, torch.nan), pairs]))

    @override
    def design(self, prompt: Prompt) -> Design:
        self.require(prompt.dim_in > self.targets, f"tokens of x's coordinates and then {self.targets} of y")
        self.require(prompt.dim_out == prompt.dim_in, "outputs of the shape of the tokens")
        rows = Rows(x=prompt.dim_in - self.targets, y=self.targets, **Turns.SIZES)
        tokens = torch.cat([rows["x"], rows["y"]])
        return Design(
            rows, tokens.T, tokens, Turns.positions(rows, prompt.length), conversion(rows, rows["x"]),
            attention="relu", causal=True, normaliser="position",
        )  # fmt: skip


class Turns:
    """The rows that tokens x and y by turns need to find their own pair: its number p, e at a y, and room for two."""

    SIZES: ClassVar[dict[str, int]] = dict.fromkeys(("s1", "s2", "p", "one", "e"), 1)

    @staticmethod
    def positions(rows: Rows, length: int) -> Tensor:
        index = torch.arange(length)
        return rows.state(length, p=index // 2 + 1.0, one=1.0, e=(index % 2).double())


def conversion(rows: Rows, target: Form) -> list[Plan]:
    """Two layers that add a pair's x to these rows of its y, for causal relu attention over the tokens' number."""
    s1, s2, p, one, e = (rows[name] for name in Turns.SIZES)
    # At the y of pair p the means over its 2p tokens are s1 = p, s2 = 1 - 3 (p + 1) / 2 + (p + 1) (2p + 1) / 2 = p².
    number = Plan().head([(e, one)], [(2 * p - one, s1), (one - 3 * p, s2)]).head([(e, p)], [(3 * p, s2)])
    own = Plan().head([(2 * s1, p), (2 * (s1 - s2), one)], [(rows["x"], target)])
    for row in (s1, s2):
        own.unit(row, 0.0, -row)
    return [number, own]


def converted(
    tokens: Float[Tensor, "prompts tokens dim"], targets: int
) -> Float[Tensor, "prompts tokens dim"]:
    """The tokens x_1, y_1, x_2, .. with every x repeated beside its y."""
    pairs = tokens.clone()
    pairs[:, 1::2, :-targets] = tokens[:, :-1:2, :-targets]
    return pairs
