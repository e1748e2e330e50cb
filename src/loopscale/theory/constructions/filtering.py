"""The next state of a chain of thought, by gradient descent on the level that the prompt has come to (AlgoFormer,
theorem 3.3).

The net reads chains x, s^1, .., s^L of N samples, s^l = leaky(W_l s^{l-1}), and then one that stops at level ρ < L: x,
s^1, .., s^ρ. It finds out where the prompt ends and so what ρ is, keeps of all tokens those of level ρ, each with
leaky^{-1} of its successor, and descends from W = 0 on (1/2N) Σ |W s^ρ_j - leaky^{-1}(s^{ρ+1}_j)|², which is a
regression since leaky ReLU can be undone. One net for every ρ. It is not the filter of seven layers of Li et al.
that the theorem uses: two do, since a token's place says its level, and all see the last one (no decoder can do this
as it stands: samples would have to learn ρ from a token after them).
"""

from typing import ClassVar

import torch
from jaxtyping import Float
from pydantic import Field, PositiveInt
from torch import Tensor
from torch.nn.functional import leaky_relu
from typing_extensions import override

from loopscale.core.prompt import Prompt
from loopscale.theory.constructions.autoregression import Descent
from loopscale.theory.constructions.base import Design
from loopscale.theory.constructions.causal import stretch
from loopscale.theory.constructions.example import Example
from loopscale.theory.constructions.gadgets import SURE, hidden, nearest
from loopscale.theory.constructions.plan import Plan, Rows
from loopscale.theory.constructions.regression import descent


class Filtering(Descent, kind="filtering"):
    """In and out: a state's coordinates. At the last token, wherever the prompt ends, stands leaky(W_k s^ρ).

    A prompt's full length is N samples of L + 1 tokens and L more; those up to L - 1 tokens shorter fit the same net.
    """

    source = "Gao et al. 2024 (AlgoFormer), theorem 3.3"
    algorithm = "filtering, and gradient descent on the level kept"
    FLAGS: ClassVar[tuple[str, ...]] = ("one", "t", "t2", "sink", "level", "end", "last", "wanted", "kept")
    levels: PositiveInt = 4
    """L."""
    slope: float = Field(0.2, gt=0, le=1)
    """Of the leaky ReLU of the chains, below 0."""

    @override
    def design(self, prompt: Prompt) -> Design:
        chain = self.levels + 1
        samples = (prompt.length + 1) // chain - 1
        fits = (prompt.length + 1) % chain == 0 and samples > 0
        self.require(fits, f"{chain} tokens for each of N samples and {self.levels} more")
        self.require(prompt.dim_in == prompt.dim_out, "states of as many coordinates as their successors")
        rows = Rows(s=prompt.dim_in, u=prompt.dim_in, out=prompt.dim_in, **dict.fromkeys(self.FLAGS, 1))
        others = [(self.away * rows["one"], rows["kept"]), hidden(rows, rows["last"], self.away)]
        answer = Plan().unit(rows["u"], 0.0, rows["out"]).unit(-rows["u"], 0.0, -self.slope * rows["out"])
        return Design(
            rows, rows["s"].T, rows["out"], self._positions(rows, prompt.length),
            [self._end(rows), self._filter(rows, prompt.length)],
            [self.descend(rows, samples, rows["s"], others)], [answer],
            attention=["softmax", "softmax", "relu" if self.variant == "relu" else "softmax", "softmax"],
            normaliser="none", registers=1,
        )  # fmt: skip

    @override
    def example(self, rng: torch.Generator) -> Example:
        """The last chain stops at level L - 1, as it does in a prompt of full length."""
        states = chains(rng, dim=3, samples=12, levels=self.levels, slope=self.slope)
        # Chains stay so whatever each is multiplied by, and each level; descent converges if no state is longer.
        states = states / states[:, :, -2:-1].norm(dim=3, keepdim=True)
        states = states * stretch(states, self.rate**-0.5)
        guesses = successors(states[:, :, -2:], self.slope, self.rate, steps=10)
        return Example.at_last(states.flatten(1, 2)[:, :-1], guesses)

    def _end(self, rows: Rows) -> Plan:
        """The largest t there is, to every token, and a flag for the token that has it."""
        t, end = rows["t"], rows["end"]
        return Plan().head([(SURE * rows["one"], t)], [(t, end)]).unit(t - end, 1.0, rows["last"])

    def _filter(self, rows: Rows, longest: int) -> Plan:
        """u is minus what W s should be, and 0 at the last token; of the keys that are not wanted `kept` is -1."""
        level, wanted, u = rows["level"], rows["wanted"], rows["u"]
        to_sink = (SURE * (longest + 3) ** 2 * (rows["last"] + rows["sink"]), rows["sink"])
        plan = Plan().head([*nearest(rows, -1.0, p="t", p2="t2"), to_sink], [(rows["s"], u)])
        plan.head([(SURE * rows["one"], rows["last"])], [(level, wanted)])
        plan.unit(u, 0.0, -2 * u).unit(-u, 0.0, (1 + 1 / self.slope) * u)
        for bias, height in ((1.0, 1), (0.0, -2), (-1.0, 1)):
            plan.unit(level - wanted, bias, height * rows["kept"])
        return plan

    def _positions(self, rows: Rows, length: int) -> Tensor:
        t = torch.arange(length + 1).double()
        token = (t > 0).double()
        level = torch.where(t > 0, (t - 1) % (self.levels + 1), -1.0)
        return rows.state(len(t), one=1.0, t=t, t2=t**2, sink=1 - token, level=level, kept=-token)


def successors(
    states: Float[Tensor, "prompts chains 2 dim"], slope: float, rate: float, steps: int
) -> Float[Tensor, "steps prompts dim"]:
    """What descent on all chains but the last says of its second state, of two that follow one another."""
    known, following = states.unbind(2)
    wanted = torch.where(following > 0, following, following / slope)
    return leaky_relu(descent(known, wanted, rate, steps), slope)


def chains(
    rng: torch.Generator, dim: int, samples: int, levels: int, slope: float, prompts: int = 8
) -> Float[Tensor, "prompts chains states dim"]:
    """x, s^1, .., s^L of the samples and of one more, each s^l by an orthogonal matrix that a prompt's chains share."""
    states = [torch.randn(prompts, samples + 1, dim, generator=rng, dtype=torch.float64)]
    for _ in range(levels):
        weight = torch.linalg.qr(torch.randn(prompts, dim, dim, generator=rng, dtype=torch.float64))[0]
        states.append(leaky_relu(states[-1] @ weight.mT, slope))
    return torch.stack(states, 2)
