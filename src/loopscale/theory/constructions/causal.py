"""Gradient descent in a decoder: every x carries weights of its own, of the pairs before it (AlgoFormer, theorem 4.2).

The net reads x_1, y_1, x_2, y_2, .. under a causal mask and guesses y at every x at once. The state of x_i keeps w_i;
a loop is a step on (1/2(i-1)) Σ_{j<i} (w_i·x_j - y_j)². Lemma A.5 as printed lets x_i see itself, which leaves a
term (w·x_i)x_i / c: here the pairs are held by the y tokens, and an x sees none but those before it.
"""

from typing import Literal

import torch
from jaxtyping import Float
from pydantic import PositiveFloat
from torch import Tensor
from typing_extensions import override

from loopscale.core.prompt import Prompt
from loopscale.models.architecture import Kind
from loopscale.tasks.regression import Regression
from loopscale.theory.constructions.base import Construction, Design
from loopscale.theory.constructions.gadgets import EXPANSIONS, Mean, Variant, hidden, nearest
from loopscale.theory.constructions.plan import Form, Plan, Rows

AMONG = 40.0
"""exp(-40) is far below rounding; more would round a score of which the size is used."""
FLAGS = ("one", "tx", "ty", "f1", "f2", "p", "tau", "t2", "log")


class Decoder:
    """Tokens x_1, y_1, x_2, .. and the layers that pair them: xc on y_j is x_j, and 0 on every x."""

    def __init__(self, rows: Rows, length: int) -> None:
        self.rows, self.length = rows, length

    def positions(self, **more: Tensor) -> Float[Tensor, "length D"]:
        """p counts pairs, tau tokens, both from 1; f1 and f2 are the first two tokens; log is that of i - 1."""
        index = torch.arange(self.length, dtype=torch.float64)
        p, odd, tau = index // 2 + 1, index % 2, index + 1
        log = (1 - odd) * (p - 1).clamp_min(1).log()
        flags = {"f1": (index == 0).double(), "f2": (index == 1).double(), "log": log}
        return self.rows.state(
            self.length, one=1.0, tx=1 - odd, ty=odd, p=p, tau=tau, t2=tau**2, **flags, **more
        )

    def previous(self, source: Form, target: Form) -> Plan:
        """Every token takes this from the one before it; the first from itself."""
        lag = self.rows["one"]
        return Plan().head(nearest(self.rows, lag=lag, p="tau", p2="t2"), [(source, target)])

    def paired(self, bound: float) -> Plan:
        """xc. The first token, which sees but itself, is cleared."""
        rows = self.rows
        return self.previous(rows["x"], rows["xc"]).gate(rows["xc"], rows["ty"], bound)

    def own(self) -> tuple[Form, Form]:
        """The term of a score that falls with the distance from a token to those before it, by 1 a pair."""
        rows = self.rows
        return torch.cat([-rows["p"], rows["one"]]), torch.cat([rows["one"], rows["p"]])


class CausalDescent(Construction, kind="causal_gradient_descent"):
    """The solver `gradient_descent` with the same rate, at every query, with two layers before the loop and one after.

    relu and linear are exact, but divide by the number of tokens seen, 2i - 1, which no weights can undo for every
    query: a step of theirs is `rate` (i-1)/(2i-1).
    """

    source = "Gao et al. 2024 (AlgoFormer), lemma A.5 and theorem 4.2, which names Newton and proves descent"
    solves, every_query = Regression, True
    algorithm = "gradient_descent"
    rate: PositiveFloat = 0.1
    """η, for the mean over the pairs seen."""
    variant: Variant = "mirrored"
    expansion: Literal[1, 2, 4] = 4
    scale: PositiveFloat = 1e-3
    """c, on the scores of softmax."""
    depth: PositiveFloat = 28.0
    """C, of the sink, which is the first token."""
    bound: PositiveFloat = 1e3
    """What no coordinate of x, and in relu and linear attention no prediction, exceeds."""

    @property
    @override
    def order(self) -> int | None:
        return self.expansion if self.variant in ("mirrored", "sink") else None

    @override
    def design(self, prompt: Prompt) -> Design:
        self.require(prompt.dim_out == 1 < prompt.dim_in, "tokens of x's coordinates and then one y")
        self.require(
            self.variant != "mirrored" or self.expansion > 1, "expansion 2 or 4, where keys are mirrored"
        )
        dim = prompt.dim_in - 1
        rows = Rows(x=dim, y=1, xc=dim, kx=dim, ky=1, w=dim, out=1, **dict.fromkeys(FLAGS, 1))
        decoder = Decoder(rows, prompt.length)
        summing: Kind = "softmax" if self.order else "linear" if self.variant == "linear" else "relu"
        reading: Kind = "softmax" if self.order else "relu"
        return Design(
            rows, torch.cat([rows["x"], rows["y"]]).T, rows["out"], decoder.positions(),
            [decoder.paired(self.bound), self._mirrored(decoder)], [self._step(rows)], [self._read(decoder)],
            attention=["softmax", "softmax", summing, reading], causal=True, normaliser="position",
        )  # fmt: skip

    def _mirrored(self, decoder: Decoder) -> Plan:
        """(kx, ky): a pair on its y, and with the opposite sign on the x after it, so that x_i sees i - 1 of either."""
        rows = decoder.rows
        pair, keys = torch.cat([rows["xc"], rows["y"]]), torch.cat([rows["kx"], rows["ky"]])
        return decoder.previous(-pair, keys).add(pair, keys)

    def _step(self, rows: Rows) -> Plan:
        """w_i <- w_i - rate Σ_j (w_i·x_j - y_j) x_j / (i - 1). A y token asks with 0, and stays at 0."""
        query, move = torch.cat([rows["w"], -rows["tx"]]), (-self.rate * rows["xc"], rows["w"])
        key = torch.cat([rows["kx"], rows["ky"]] if self.variant == "mirrored" else [rows["xc"], rows["y"]])
        mean = Mean(self.variant, 1, self.expansion, self.scale, self.depth)
        others = {
            "mirrored": [hidden(rows, rows["f1"])],
            "sink": [(self.depth * rows["one"] + rows["log"], rows["f1"])],
        }
        return mean.add(Plan(), query, key, move, others.get(self.variant, []))

    def _read(self, decoder: Decoder) -> Plan:
        """out = w_i·x_i: a token weighs itself against the second one, which has nothing."""
        rows, (far, near) = decoder.rows, decoder.own()
        if not self.order:
            mask = [(self.bound * far, near)]
            return Plan().pair([(rows["w"], rows["x"])], [(rows["tau"], rows["out"])], mask)
        # near the second token the distance does not count: (p_i - p_j)(1 - f2_j)
        seen = torch.cat([rows["one"] - rows["f2"], rows["p"] - rows["f2"]])
        plan = Plan()
        for factor, weight in EXPANSIONS[max(self.expansion, 2)]:
            score = [(factor * self.scale * rows["w"], rows["x"]), (AMONG * far, seen)]
            plan.head(score, [(4 * weight / self.scale * rows["tx"], rows["out"])])
        return plan


def rates(rate: float, points: int) -> Float[Tensor, " points"]:
    """The steps that relu and linear attention take at each x, (i-1)/(2i-1) of `rate`."""
    i = torch.arange(1, points + 1, dtype=torch.float64)
    return rate * (i - 1) / (2 * i - 1)
