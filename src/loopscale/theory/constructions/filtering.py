"""The next state of a chain of thought, by descent on the level at which the prompt ends [@gao2024, theorem 3.3].

The net reads chains x, s^1, ..., s^L of N samples, with s^l = leaky(W_l s^{l-1}). The last chain stops at a level ρ
< L. Two layers find ρ at the last token, and select the states of level ρ with leaky^{-1} of their successors. The
loop descends from W = 0 on `(1/2N) Σ_j |W s^ρ_j - leaky^{-1}(s^{ρ+1}_j)|²`. This is a linear regression, because
leaky ReLU is invertible. The same net works for every ρ.

The theorem uses the filter of @li2023 with seven layers. Two layers are enough here, because the position of a
token determines its level, and because every token attends to the last one. A decoder cannot do this: the samples
would have to learn ρ from a later token.
"""

from typing import ClassVar

import torch
from jaxtyping import Float
from pydantic import Field, PositiveInt
from torch import Tensor
from torch.nn.functional import leaky_relu
from typing_extensions import override

from loopscale.core.prompt import Prompt
from loopscale.theory.constructions.autoregression import PairTokenDescent
from loopscale.theory.constructions.base import Design
from loopscale.theory.constructions.block_plan import BlockPlan, StateRows
from loopscale.theory.constructions.causal import length_factor
from loopscale.theory.constructions.example import Example, Stated
from loopscale.theory.constructions.gadgets import UNDERFLOW, hide_keys, nearest_position
from loopscale.theory.constructions.regression import least_squares_descent

SYSTEM = "AlgoFormer"


class Filtering(PairTokenDescent, kind="filtering"):
    """In and out: the coordinates of a state. The last token, wherever the prompt ends, outputs leaky(W_k s^ρ).

    A full prompt has N samples of L + 1 tokens and L more tokens. The same net reads prompts that are up to L - 1
    tokens shorter.
    """

    source = "@gao2024, theorem 3.3"
    algorithm = "filtering, then gradient descent on the selected level"
    FLAGS: ClassVar[tuple[str, ...]] = ("one", "t", "t2", "sink", "level", "end", "last", "wanted", "kept")
    levels: PositiveInt = 4
    """L, the number of states of a chain after x."""
    slope: float = Field(0.2, gt=0, le=1)
    """The slope of the chains' leaky ReLU below 0."""

    @override
    def design(self, prompt: Prompt) -> Design:
        chain = self.levels + 1
        samples = (prompt.length + 1) // chain - 1
        fits = (prompt.length + 1) % chain == 0 and samples > 0
        self.require(fits, f"prompts of {chain} tokens for each of N samples and {self.levels} more")
        self.require(prompt.dim_in == prompt.dim_out, "outputs with as many coordinates as a state")
        rows = StateRows(s=prompt.dim_in, u=prompt.dim_in, out=prompt.dim_in, **dict.fromkeys(self.FLAGS, 1))
        selection = [(self.mask * rows["one"], rows["kept"]), hide_keys(rows, rows["last"], self.mask)]
        u, out = rows["u"], rows["out"]
        answer = BlockPlan().unit(u, 0.0, out).unit(-u, 0.0, -self.slope * out)
        before = [self._end(rows), self._filter(rows, prompt.length)]
        loop = [self.descend(rows, samples, rows["s"], selection)]
        positions = self._positions(rows, prompt.length)
        return Design(
            rows, rows.read_in("s"), rows["out"], positions, before, loop, [answer], self.kinds(before)
        )

    @override
    def stated(self, prompt: Prompt) -> Stated:
        return Stated.of_loops("gradient step", "7 pre + 1 loop + 1 post", heads="2, and 1 after the loop")

    @override
    def example(self, rng: torch.Generator) -> Example:
        """Chains that stop at level L - 1, as in a prompt of full length."""
        states = random_chains(rng, dim=3, samples=12, levels=self.levels, slope=self.slope)
        # Scaling a chain or a level gives a chain again. Descent converges if no state is longer than rate^-1/2.
        states = states / states[:, :, -2:-1].norm(dim=3, keepdim=True)
        states = states * length_factor(states, self.rate**-0.5)
        guesses = next_states(states[:, :, -2:], self.slope, self.rate, steps=10)
        return Example.at_last(states.flatten(1, 2)[:, :-1], guesses)

    def _end(self, rows: StateRows) -> BlockPlan:
        """Every token learns the largest t, and the last token receives a flag."""
        t, end = rows["t"], rows["end"]
        return BlockPlan().head([(UNDERFLOW * rows["one"], t)], [(t, end)]).unit(t - end, 1.0, rows["last"])

    def _filter(self, rows: StateRows, longest: int) -> BlockPlan:
        """u becomes minus the regression target, and 0 at the last token. Unselected keys receive `kept` = -1."""
        level, wanted, u = rows["level"], rows["wanted"], rows["u"]
        to_sink = (UNDERFLOW * (longest + 3) ** 2 * (rows["last"] + rows["sink"]), rows["sink"])
        plan = BlockPlan().head([*nearest_position(rows, -1.0, p="t", p2="t2"), to_sink], [(rows["s"], u)])
        plan.head([(UNDERFLOW * rows["one"], rows["last"])], [(level, wanted)])
        plan.unit(u, 0.0, -2 * u).unit(-u, 0.0, (1 + 1 / self.slope) * u)
        for bias, height in ((1.0, 1), (0.0, -2), (-1.0, 1)):
            plan.unit(level - wanted, bias, height * rows["kept"])
        return plan

    def _positions(self, rows: StateRows, length: int) -> Tensor:
        t = torch.arange(length + 1).double()
        token = (t > 0).double()
        level = torch.where(t > 0, (t - 1) % (self.levels + 1), -1.0)
        return rows.state(len(t), one=1.0, t=t, t2=t**2, sink=1 - token, level=level, kept=-token)


def next_states(
    states: Float[Tensor, "prompts chains 2 dim"], slope: float, rate: float, steps: int
) -> Float[Tensor, "steps prompts dim"]:
    """The second state of the last chain, predicted by descent on the consecutive states of the other chains."""
    inputs, following = states.unbind(2)
    targets = torch.where(following > 0, following, following / slope)
    return leaky_relu(least_squares_descent(inputs, targets, rate, steps), slope)


def random_chains(
    rng: torch.Generator, dim: int, samples: int, levels: int, slope: float, prompts: int = 8
) -> Float[Tensor, "prompts chains states dim"]:
    """x, s^1, ..., s^L of the samples and of one more chain. A prompt has an orthogonal matrix for each level."""
    states = [torch.randn(prompts, samples + 1, dim, generator=rng, dtype=torch.float64)]
    for _ in range(levels):
        weight = torch.linalg.qr(torch.randn(prompts, dim, dim, generator=rng, dtype=torch.float64))[0]
        states.append(leaky_relu(states[-1] @ weight.mT, slope))
    return torch.stack(states, 2)
