"""A decoder that copies every x to the token of its y: x_1, y_1, x_2, y_2, ... become pairs that share a token.

The net reads tokens (x, 0) and (0, y) in turn. After two layers the second token of a pair is (x, y). Causal ReLU
attention divides by the position i. The result is exact at every token, and the weights depend on neither N nor d.
The second layer uses the score 2 p_i (1 + p_j - p_i), where p counts pairs. The mask gives p_j <= p_i, so only the
token's own pair has a positive score. This score is 2 p_i = i and cancels the division by i.
"""

from typing import ClassVar

import torch
from jaxtyping import Float
from pydantic import PositiveInt
from torch import Tensor
from typing_extensions import override

from loopscale.core.prompt import Prompt
from loopscale.theory.constructions.base import Construction, Design
from loopscale.theory.constructions.block_plan import BlockPlan, Form, StateRows
from loopscale.theory.constructions.example import Example, Stated
from loopscale.theory.constructions.regression import interleaved_tokens

SYSTEM = "sparse recovery"


class FormatConversion(Construction, kind="format_conversion"):
    """In: x, then y of `targets` coordinates. Out, in the last layer: the same tokens, with x repeated beside its y.

    Correction: proposition 6 prints the input as the output. This output is what the proof needs and what `lista`
    reads. The encoder format of the proposition consists of the output tokens 2, 4, ..., 2N, 2N + 1, with the
    positions p, one and 1 - e.
    """

    source = "@he2024, proposition 6 of @liu2025slides"
    algorithm = "copy of every x to the token of its y"
    targets: PositiveInt = 1
    """The number of coordinates of y."""

    @override
    def stated(self, prompt: Prompt) -> Stated:
        return Stated("exact", layers="2", heads="3", width="any from d + 6; hidden 2, norm at most 12")

    @override
    def example(self, rng: torch.Generator) -> Example:
        xs, ys = (torch.randn(8, 11, k, generator=rng, dtype=torch.float64) for k in (3, self.targets))
        tokens = interleaved_tokens(xs, ys)
        pairs = with_repeated_x(tokens, self.targets)
        return Example(tokens, torch.stack([torch.full_like(pairs, torch.nan), pairs]))

    @override
    def design(self, prompt: Prompt) -> Design:
        self.require(
            prompt.dim_in > self.targets, f"tokens that hold x's coordinates and then {self.targets} of y"
        )
        self.require(prompt.dim_out == prompt.dim_in, "outputs of the same size as the tokens")
        rows = StateRows(x=prompt.dim_in - self.targets, y=self.targets, **AlternatingTokens.SIZES)
        tokens = torch.cat([rows["x"], rows["y"]])
        positions, plans = AlternatingTokens.positions(rows, prompt.length), conversion_plans(rows, rows["x"])
        return Design(
            rows, tokens.T, tokens, positions, plans, attention="relu", causal=True, normaliser="position"
        )


class AlternatingTokens:
    """State rows with which a token finds its pair: the pair number p, the flag e of a y, and scratch rows s1, s2."""

    SIZES: ClassVar[dict[str, int]] = dict.fromkeys(("s1", "s2", "p", "one", "e"), 1)

    @staticmethod
    def positions(rows: StateRows, length: int) -> Tensor:
        index = torch.arange(length)
        return rows.state(length, p=index // 2 + 1.0, one=1.0, e=(index % 2).double())


def conversion_plans(rows: StateRows, target: Form) -> list[BlockPlan]:
    """Two blocks of causal ReLU attention that add the x of a pair to the target rows of its y."""
    s1, s2, p, one, e = (rows[name] for name in AlternatingTokens.SIZES)
    # At the y of pair p the means over its 2p tokens are s1 = p, s2 = 1 - 3 (p + 1) / 2 + (p + 1) (2p + 1) / 2 = p².
    pair_number = (
        BlockPlan().head([(e, one)], [(2 * p - one, s1), (one - 3 * p, s2)]).head([(e, p)], [(3 * p, s2)])
    )
    own_pair = BlockPlan().head([(2 * s1, p), (2 * (s1 - s2), one)], [(rows["x"], target)])
    for row in (s1, s2):
        own_pair.unit(row, 0.0, -row)
    return [pair_number, own_pair]


def with_repeated_x(
    tokens: Float[Tensor, "prompts tokens dim"], targets: int
) -> Float[Tensor, "prompts tokens dim"]:
    """The tokens x_1, y_1, x_2, ..., with every x repeated beside its y."""
    pairs = tokens.clone()
    pairs[:, 1::2, :-targets] = tokens[:, :-1:2, :-targets]
    return pairs
