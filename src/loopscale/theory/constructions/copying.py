"""Copy the last q tokens to every token, with one layer of q heads [@gao2024, lemma A.3].

The net reads x_1, ..., x_N. Token t ends up with x_t, x_{t-1}, ..., x_{t-q}, bit by bit. Inputs before x_1 count as 0:
a register with data 0 stands at t = 0 and is the nearest key for any earlier time. In the lemma the softmax instead
averages arbitrary tokens there, and a feed-forward layer removes the result.
"""

from itertools import pairwise
from typing import Literal

import torch
from jaxtyping import Float
from pydantic import PositiveInt
from torch import Tensor
from torch.nn.functional import pad
from typing_extensions import override

from loopscale.core.prompt import Prompt
from loopscale.theory.constructions.base import Construction, Design
from loopscale.theory.constructions.block_plan import BlockPlan, Form, StateRows, Term
from loopscale.theory.constructions.example import Example, Stated
from loopscale.theory.constructions.gadgets import nearest_position

SYSTEM = "AlgoFormer"


class Copying(Construction, kind="copying"):
    """In: x of d coordinates. Out, at token t: (q + 1) d coordinates, the newest first."""

    source = "@gao2024, lemma A.3"
    algorithm = "copy of the last tokens"
    lags: PositiveInt = 3
    """q, the number of heads."""
    attention: Literal["softmax", "relu"] = "softmax"
    """softmax puts all weight on one key by large weights. relu needs none: its score is 1 at that key only."""
    causal: bool = True
    """True for a decoder, in which relu attention divides by the position. False for an encoder, in which relu
    attention divides by all N + 1 tokens."""

    @override
    def stated(self, prompt: Prompt) -> Stated:
        return Stated("arbitrarily close for a large temperature; no rate", "1", f"q = {self.lags}")

    @override
    def example(self, rng: torch.Generator) -> Example:
        xs = torch.randn(8, 20, 3, generator=rng, dtype=torch.float64)
        return Example(xs, lagged(xs, self.lags)[None])

    @override
    def design(self, prompt: Prompt) -> Design:
        dim, copies = prompt.dim_in, self.lags + 1
        self.require(
            prompt.dim_out == copies * dim,
            f"{copies * dim} outputs: {copies} times the {dim} coordinates of x",
        )
        rows = StateRows(x=dim, lagged=self.lags * dim, one=1, t=1, t2=1, t3=1)
        plan = BlockPlan()
        for lag in range(1, copies):
            target = rows.part("lagged", (lag - 1) * dim, dim)
            if self.attention == "softmax":
                add_lagged(rows, plan, lag, target)
            else:
                divisor = 1 if self.causal else prompt.length + 1
                plan.head(self._indicator(rows, lag), [(divisor * rows["x"], target)])
        t = torch.arange(prompt.length + 1).double()
        positions = rows.state(len(t), one=1.0, t=t, t2=t**2, t3=t**3)
        read_out, normaliser = torch.cat([rows["x"], rows["lagged"]]), "position" if self.causal else "length"
        return Design(
            rows,
            rows.read_in("x"),
            read_out,
            positions,
            [plan],
            (),
            (),
            self.attention,
            self.causal,
            normaliser,
        )

    def _indicator(self, rows: StateRows, lag: int) -> list[Term]:
        """The score 1 - (t_i - lag - t_j)². A decoder multiplies the score by its divisor, the position t_i + 1."""
        powers = [rows[name] for name in ("one", "t", "t2", "t3")]
        zeroth, first, second = (low + high if self.causal else low for low, high in pairwise(powers))
        constant = zeroth - (second - 2 * lag * first + lag**2 * zeroth)
        return [(constant, rows["one"]), (2 * (first - lag * zeroth), rows["t"]), (-zeroth, rows["t2"])]


def add_lagged(rows: StateRows, plan: BlockPlan, lag: int, target: Form) -> BlockPlan:
    """A softmax head that adds the x of `lag` tokens before to the target, exactly. A negative lag looks ahead."""
    return plan.head(nearest_position(rows, float(lag), p="t", p2="t2"), [(rows["x"], target)])


def lagged(xs: Float[Tensor, "prompts tokens dim"], lags: int) -> Float[Tensor, "prompts tokens outputs"]:
    """x_t, x_{t-1}, ..., x_{t-lags} at every token, with zeros before the first token."""
    return windows(xs, lags + 1).flip(2).flatten(2)


def windows(xs: Float[Tensor, "prompts tokens dim"], size: int) -> Float[Tensor, "prompts tokens size dim"]:
    """The window of `size` tokens that ends at each token, the oldest first, with zeros before the first token."""
    return pad(xs, (0, 0, size - 1, 0)).unfold(1, size, 1).mT
