"""Gradient descent in a decoder: every x has its own weights, fitted to the pairs before it [@gao2024, theorem 4.2].

The net reads x_1, y_1, x_2, y_2, ... under a causal mask and predicts y at every x. The state of x_i holds w_i. A loop
is one step on `(1/2(i-1)) Σ_{j<i} (w_i·x_j - y_j)²`. Correction: in lemma A.5 as printed, x_i attends to itself, which
leaves a term (w·x_i) x_i / c. Here the y tokens hold the pairs, so that an x attends only to pairs before it.
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
from loopscale.theory.constructions.base import Design
from loopscale.theory.constructions.block_plan import BlockPlan, Form, StateRows
from loopscale.theory.constructions.example import Example, Limit, Stated
from loopscale.theory.constructions.gadgets import (
    EXPANSIONS,
    AnySums,
    hide_keys,
    nearest_position,
)
from loopscale.theory.constructions.regression import interleaved_tokens, least_squares_descent

SYSTEM = "AlgoFormer"

GENTLE_MASK = 40.0
"""Score gap of a mask. exp(-40) is far below rounding. A larger gap would round the score, whose value matters here."""
EXAMPLE_SCALE_FACTOR = 20.0
"""Examples use c |f|² larger by this factor than in `MEASURABLE_SCALES`, so that rounding matters less.

Features have the largest length that `rate` allows, |f|² = 1 / rate.
"""
FLAGS = ("one", "tx", "ty", "f1", "f2", "p", "tau", "t2", "log")


class CausalPairTokens:
    """Layers that pair the tokens x_1, y_1, x_2, ...: the row xc is x_j on the token of y_j, and 0 on every x."""

    def __init__(self, rows: StateRows, length: int) -> None:
        self.rows, self.length = rows, length

    def positions(self, **more: Tensor) -> Float[Tensor, "length D"]:
        """The states without data. p counts pairs and tau counts tokens, both from 1. f1 and f2 flag the first two
        tokens. The row `log` holds log(i - 1).
        """
        index = torch.arange(self.length, dtype=torch.float64)
        p, odd, tau = index // 2 + 1, index % 2, index + 1
        log = (1 - odd) * (p - 1).clamp_min(1).log()
        flags = {"f1": (index == 0).double(), "f2": (index == 1).double(), "log": log}
        return self.rows.state(
            self.length, one=1.0, tx=1 - odd, ty=odd, p=p, tau=tau, t2=tau**2, **flags, **more
        )

    def previous(self, source: Form, target: Form) -> BlockPlan:
        """Every token adds `source` of the previous token to `target`. The first token reads itself."""
        return BlockPlan().head(nearest_position(self.rows, lag=1.0, p="tau", p2="t2"), [(source, target)])

    def pairing(self, bound: float) -> BlockPlan:
        """The block that fills xc. It clears xc of the first token, which attends to itself."""
        rows = self.rows
        return self.previous(rows["x"], rows["xc"]).gate(rows["xc"], rows["ty"], bound)

    def design(
        self,
        before: list[BlockPlan],
        loop: list[BlockPlan],
        after: list[BlockPlan],
        kinds: list[Kind],
        **initial: Tensor,
    ) -> Design:
        """The decoder with these blocks. Relu and linear attention divide by the position."""
        read_in, positions = self.rows.read_in("x", "y"), self.positions(**initial)
        return Design(
            self.rows,
            read_in,
            self.rows["out"],
            positions,
            before,
            loop,
            after,
            attention=kinds,
            causal=True,
            normaliser="position",
        )

    def distance_term(self) -> tuple[Form, Form]:
        """A score term that is the negative distance, in pairs, from a token to an earlier token."""
        rows = self.rows
        return torch.cat([-rows["p"], rows["one"]]), torch.cat([rows["one"], rows["p"]])


class CausalDescent(AnySums, kind="causal_gradient_descent"):
    """The solver `gradient_descent` with the same rate, at every query. Two layers before the loop, one after it.

    relu and linear attention are exact, but they divide by the number of visible tokens, 2i - 1. No weights can undo
    this division for every query. Their step at query i is `rate` (i-1)/(2i-1).
    """

    source = "@gao2024, lemma A.5 and theorem 4.2 (stated for Newton, proved for descent)"
    solves, every_query = Regression, True
    algorithm = "gradient_descent"
    rate: PositiveFloat = 0.1
    """η, the step size for the mean over the pairs before the query."""
    scale: PositiveFloat = 1e-3
    """c, the factor of the softmax scores."""
    bound: PositiveFloat = 1e3
    """An upper bound on the coordinates of x and, in relu and linear attention, on the predictions."""

    @property
    @override
    def limit(self) -> Limit | None:
        return self.scale_limit(EXAMPLE_SCALE_FACTOR * self.rate) if self.order else None

    @override
    def stated(self, prompt: Prompt) -> Stated:
        return Stated.of_loops("gradient step", layers="1 pre + 1 loop + 2 post", heads="2")

    @override
    def example(self, rng: torch.Generator) -> Example:
        # Steps with rate · |x|² <= 1 keep |w_k| <= |w|. Here |w| is the length of the longest x, so that
        # predictions are at most |x|².
        longest = min(self.rate**-0.5, self.bound**0.5, self.bound)
        xs, ys = random_scaled_regression(rng, dim=4, points=13, longest=longest)
        ys = longest * ys
        nominal = torch.full((13,), self.rate, dtype=torch.float64)
        rates = nominal if self.order else effective_rates(self.rate, 13)
        outputs = prefix_descents(xs, ys, rates, steps=12)
        return Example.at(slice(None, None, 2), interleaved_tokens(xs, ys), outputs)

    @override
    def design(self, prompt: Prompt) -> Design:
        self.require(prompt.dim_out == 1 < prompt.dim_in, "tokens that hold x's coordinates and then one y")
        self.require(self.variant != "mirrored" or self.expansion > 1, "expansion 2 or 4 with mirrored keys")
        dim = prompt.dim_in - 1
        rows = StateRows(x=dim, y=1, xc=dim, kx=dim, ky=1, w=dim, out=1, **dict.fromkeys(FLAGS, 1))
        decoder = CausalPairTokens(rows, prompt.length)
        summing: Kind = "softmax" if self.order else "linear" if self.variant == "linear" else "relu"
        reading: Kind = "softmax" if self.order else "relu"
        before = [decoder.pairing(self.bound), self._mirrored(decoder)]
        kinds: list[Kind] = ["softmax", "softmax", summing, reading]
        return decoder.design(before, [self._step(rows)], [self._read(decoder)], kinds)

    def _mirrored(self, decoder: CausalPairTokens) -> BlockPlan:
        """Fill (kx, ky): the pair on its y, and its negative on the next x. So x_i sees i - 1 of each sign."""
        rows = decoder.rows
        pair, keys = torch.cat([rows["xc"], rows["y"]]), torch.cat([rows["kx"], rows["ky"]])
        return decoder.previous(-pair, keys).add(pair, keys)

    def _step(self, rows: StateRows) -> BlockPlan:
        """w_i <- w_i - rate Σ_j (w_i·x_j - y_j) x_j / (i - 1). At a y the query is 0, so that w stays 0."""
        query, move = torch.cat([rows["w"], -rows["tx"]]), (-self.rate * rows["xc"], rows["w"])
        key = torch.cat([rows["kx"], rows["ky"]] if self.variant == "mirrored" else [rows["xc"], rows["y"]])
        mean = self.summed_by(self.variant)
        selection = {
            "mirrored": [hide_keys(rows, rows["f1"])],
            "sink": [(self.depth * rows["one"] + rows["log"], rows["f1"])],
        }
        return mean.add(BlockPlan(), query, key, move, selection.get(self.variant, []))

    def _read(self, decoder: CausalPairTokens) -> BlockPlan:
        """out = w_i·x_i. Softmax divides its weight between the token itself and the second token, whose value is 0."""
        rows, (ahead, behind) = decoder.rows, decoder.distance_term()
        if not self.order:
            mask = [(self.bound * ahead, behind)]
            return BlockPlan().signed_pair([(rows["w"], rows["x"])], [(rows["tau"], rows["out"])], mask)
        # The mask is -(p_i - p_j)(1 - f2_j): the second token is not hidden.
        key = torch.cat([rows["one"] - rows["f2"], rows["p"] - rows["f2"]])
        plan = BlockPlan()
        for factor, weight in EXPANSIONS[max(self.expansion, 2)]:
            score = [(factor * self.scale * rows["w"], rows["x"]), (GENTLE_MASK * ahead, key)]
            plan.head(score, [(4 * weight / self.scale * rows["tx"], rows["out"])])
        return plan


def effective_rates(rate: float, points: int) -> Float[Tensor, " points"]:
    """The step size of relu and linear attention at each x: (i-1)/(2i-1) of `rate`."""
    i = torch.arange(1, points + 1, dtype=torch.float64)
    return rate * (i - 1) / (2 * i - 1)


def prefix_descents(
    xs: Float[Tensor, "prompts points dim"],
    ys: Float[Tensor, "prompts points targets"],
    rates: Float[Tensor, " points"],
    steps: int,
) -> Float[Tensor, "steps prompts points targets"]:
    """The prediction at each point, after every step of descent on the points before it. Each point has its own rate.

    The prediction at the first point is 0.
    """
    guesses = xs.new_zeros(steps, *ys.shape)
    for i in range(1, len(rates)):
        guesses[:, :, i] = least_squares_descent(xs[:, : i + 1], ys[:, : i + 1], rates[i].item(), steps)
    return guesses


def random_scaled_regression(
    rng: torch.Generator, dim: int, points: int, longest: float
) -> tuple[Float[Tensor, "prompts points dim"], Float[Tensor, "prompts points 1"]]:
    """xs whose longest x has the length `longest` in each of 8 prompts, and ys = w·x with |w| = 1."""
    xs = torch.randn(8, points, dim, generator=rng, dtype=torch.float64)
    xs = xs * length_factor(xs, longest)
    return xs, xs @ normalize(torch.randn(8, dim, 1, generator=rng, dtype=torch.float64), dim=1)


def length_factor(
    xs: Float[Tensor, "prompts points *more dim"], longest: float
) -> Float[Tensor, "prompts 1 *more 1"]:
    """The factor that gives the longest x of a prompt the length `longest`."""
    return longest / xs.norm(dim=-1, keepdim=True).amax(1, keepdim=True)
