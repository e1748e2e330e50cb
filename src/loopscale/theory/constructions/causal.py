"""Gradient descent in a decoder: every x carries weights of its own, of the pairs before it (AlgoFormer, theorem 4.2).

The net reads x_1, y_1, x_2, y_2, .. under a causal mask and guesses y at every x at once. The state of x_i keeps w_i;
a loop is a step on (1/2(i-1)) Σ_{j<i} (w_i·x_j - y_j)². Lemma A.5 as printed lets x_i see itself, which leaves a
term (w·x_i)x_i / c: here the pairs are held by the y tokens, and an x sees none but those before it.
"""

import torch
from jaxtyping import Float
from pydantic import PositiveFloat
from torch import Tensor
from torch.nn.functional import normalize
from typing_extensions import override

from loopscale.core.prompt import Prompt
from loopscale.models.architecture import Kind
from loopscale.tasks.regression import Regression
from loopscale.theory.constructions.base import Construction, Design
from loopscale.theory.constructions.example import Example, Limit
from loopscale.theory.constructions.gadgets import EXPANSIONS, SEEN, Mean, Order, Variant, hidden, nearest
from loopscale.theory.constructions.plan import Form, Plan, Rows
from loopscale.theory.constructions.regression import descent, paired

AMONG = 40.0
"""exp(-40) is far below rounding; more would round a score of which the size is used."""
COARSER = 20.0
"""How much larger than in `SEEN` c |f|² is in examples: as large as shows the order, so that rounding matters least."""
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
    """How products are summed: by softmax with mirrored keys or with a sink, or exactly by relu or linear attention."""
    expansion: Order = 4
    """The order of the error in `scale`, of softmax; 1 needs the sink."""
    scale: PositiveFloat = 1e-3
    """c, on the scores of softmax."""
    depth: PositiveFloat = 28.0
    """C, of the sink, which is the first token."""
    bound: PositiveFloat = 1e3
    """What no coordinate of x, and in relu and linear attention no prediction, exceeds."""

    @property
    def order(self) -> Order | None:
        """The power of `scale` with which products are summed; `None` where they are exactly."""
        return self.expansion if self.variant in ("mirrored", "sink") else None

    @property
    @override
    def limit(self) -> Limit | None:
        return descent_limit(self.order, self.rate) if self.order else None

    @override
    def example(self, rng: torch.Generator) -> Example:
        # With rate · |x|² <= 1 no w_k is longer than w, here as long as the longest x: predictions are at most |x|².
        longest = min(self.rate**-0.5, self.bound**0.5, self.bound)
        xs, ys = problem(rng, dim=4, points=13, longest=longest)
        ys = longest * ys
        each = torch.full((13,), self.rate, dtype=torch.float64) if self.order else rates(self.rate, 13)
        return at_queries(paired(xs, ys), descents(xs, ys, each, steps=12))

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


def descents(
    xs: Float[Tensor, "prompts points dim"],
    ys: Float[Tensor, "prompts points targets"],
    rates: Float[Tensor, " points"],
    steps: int,
) -> Float[Tensor, "steps prompts points targets"]:
    """What descent on the points before each one guesses at it, with its own rate, after every step; at first 0."""
    guesses = xs.new_zeros(steps, *ys.shape)
    for i in range(1, len(rates)):
        guesses[:, :, i] = descent(xs[:, : i + 1], ys[:, : i + 1], rates[i].item(), steps)
    return guesses


def problem(
    rng: torch.Generator, dim: int, points: int, longest: float
) -> tuple[Float[Tensor, "prompts points dim"], Float[Tensor, "prompts points 1"]]:
    """xs, the longest of a prompt as long as that, and ys = w·x with |w| = 1, for 8 prompts."""
    xs = torch.randn(8, points, dim, generator=rng, dtype=torch.float64)
    xs = xs * stretch(xs, longest)
    return xs, xs @ normalize(torch.randn(8, dim, 1, generator=rng, dtype=torch.float64), dim=1)


def stretch(
    xs: Float[Tensor, "prompts points *more dim"], longest: float
) -> Float[Tensor, "prompts 1 *more 1"]:
    """What a prompt is to be multiplied by for its longest x to be as long as that."""
    return longest / xs.norm(dim=-1, keepdim=True).amax(1, keepdim=True)


def descent_limit(order: Order, rate: float) -> Limit:
    """Of descent on features that are as long as `rate` allows, |f|² = 1 / rate: what has to be small is c |f|²."""
    return Limit("scale", float(order), tuple(COARSER * rate * scale for scale in SEEN[order]))


def at_queries(
    tokens: Float[Tensor, "prompts tokens dim_in"], guesses: Float[Tensor, "steps prompts points dim_out"]
) -> Example:
    """An example where what is put out at every x counts."""
    expected = guesses.new_full((len(guesses), *tokens.shape[:2], guesses.shape[3]), torch.nan)
    expected[:, :, ::2] = guesses
    return Example(tokens, expected)
