"""The last q tokens copied to every token by one layer of q heads (AlgoFormer, lemma A.3).

The net reads x_1 .. x_N, and token t ends up with x_t, x_{t-1}, .., x_{t-q}, to the bit. What is before the first is
0: a register without data stands at t = 0, and is the nearest there is to any earlier time. The lemma instead lets
softmax average arbitrary tokens there, and has a feed-forward layer take the result away.
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
from loopscale.theory.constructions.example import Example
from loopscale.theory.constructions.gadgets import nearest
from loopscale.theory.constructions.plan import Form, Plan, Rows, Term


class Copying(Construction, kind="copying"):
    """In: d coordinates. Out, at token t: (q + 1) d coordinates, the newest first."""

    source = "Gao et al. 2024 (AlgoFormer), lemma A.3"
    algorithm = "copy of the last tokens"
    lags: PositiveInt = 3
    """q, heads."""
    attention: Literal["softmax", "relu"] = "softmax"
    """relu has a score that is 1 at the token and else negative, so no key far above the others: no large weights."""
    causal: bool = True
    """Whether the net is a decoder, with relu over the tokens in sight; else it is over all N + 1 of them."""

    @override
    def example(self, rng: torch.Generator) -> Example:
        xs = torch.randn(8, 20, 3, generator=rng, dtype=torch.float64)
        return Example(xs, lagged(xs, self.lags)[None])

    @override
    def design(self, prompt: Prompt) -> Design:
        dim, times = prompt.dim_in, self.lags + 1
        self.require(
            prompt.dim_out == times * dim, f"{times} times as many outputs as x has coordinates, {dim}"
        )
        rows = Rows(x=dim, lagged=self.lags * dim, one=1, t=1, t2=1, t3=1)
        plan = Plan()
        for lag in range(1, times):
            target = rows.part("lagged", (lag - 1) * dim, dim)
            if self.attention == "softmax":
                back(rows, plan, lag, target)
            else:
                seen = 1 if self.causal else prompt.length + 1
                plan.head(self._exactly(rows, lag), [(seen * rows["x"], target)])
        t = torch.arange(prompt.length + 1).double()
        places = rows.state(len(t), one=1.0, t=t, t2=t**2, t3=t**3)
        return Design(
            rows, rows["x"].T, torch.cat([rows["x"], rows["lagged"]]), places, [plan],
            attention=self.attention, causal=self.causal, registers=1,
            normaliser="position" if self.causal else "length",
        )  # fmt: skip

    def _exactly(self, rows: Rows, lag: int) -> list[Term]:
        """1 - (t_i - lag - t_j)²; in a decoder t_i + 1 times that, for the tokens in sight."""
        powers = [rows[name] for name in ("one", "t", "t2", "t3")]
        zeroth, first, second = (low + high if self.causal else low for low, high in pairwise(powers))
        constant = zeroth - (second - 2 * lag * first + lag**2 * zeroth)
        return [(constant, rows["one"]), (2 * (first - lag * zeroth), rows["t"]), (-zeroth, rows["t2"])]


def back(rows: Rows, plan: Plan, lag: int, target: Form) -> Plan:
    """A head of softmax that adds the x of `lag` tokens before (or after, below 0), exactly."""
    return plan.head(nearest(rows, float(lag), p="t", p2="t2"), [(rows["x"], target)])


def lagged(xs: Float[Tensor, "prompts tokens dim"], lags: int) -> Float[Tensor, "prompts tokens outputs"]:
    """x_t, x_{t-1}, .., x_{t-lags}, with zeros before the first."""
    return windows(xs, lags + 1).flip(2).flatten(2)


def windows(xs: Float[Tensor, "prompts tokens dim"], size: int) -> Float[Tensor, "prompts tokens size dim"]:
    """So many tokens that end at each, the oldest first, with zeros before the first."""
    return pad(xs, (0, 0, size - 1, 0)).unfold(1, size, 1).mT
