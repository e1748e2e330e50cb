"""Gaussian mixtures by loops: EM with softmax and relu attention, EM with softmax attention, Lloyd's algorithm.

The net reads points of d coordinates, one per token, and K initial centres: either K tokens before the points, or
the first K points. The E-step is exact (`posteriors.py`). The M-step has to divide by the components' counts. After
t loops the first K tokens output the centres after t iterations, or every point outputs its posterior given these
centres.
"""

import math
from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Literal

import torch
from jaxtyping import Float
from pydantic import Field, PositiveFloat, PositiveInt
from torch import Tensor
from torch.nn.functional import one_hot
from typing_extensions import override

from loopscale.core.prompt import Prompt
from loopscale.models.architecture import Kind
from loopscale.theory.constructions.base import Design
from loopscale.theory.constructions.block_plan import BlockPlan, Form, StateRows, Term
from loopscale.theory.constructions.example import Example, Limit
from loopscale.theory.constructions.gadgets import UNDERFLOW
from loopscale.theory.constructions.logic import newton_step
from loopscale.theory.constructions.piecewise import Piecewise, geometric_knots, integer_knots, uniform_knots
from loopscale.theory.constructions.posteriors import E_STEP, GaussianMixture, posterior, squared_distances

SYSTEM = "clustering"

MEASURABLE_PIECES = {
    2.0: (32.0, 64.0, 128.0, 256.0, 512.0),
    4.0: (12.0, 24.0, 48.0),
    8.0: (6.0, 12.0, 24.0),
    16.0: (6.0, 8.0, 10.0),
}
"""By order: numbers of pieces at which the order shows. Fewer are too coarse, more are dominated by rounding."""


class IteratedMixture(GaussianMixture):
    """A loop of an E-step and further layers of one kind of attention. The layer before the loop has the same kind."""

    reads: Literal["centres", "posteriors"] = "centres"
    """The output. centres: at the first K tokens. posteriors: at every point, by one more layer after the loop."""

    @abstractmethod
    def assignments(
        self, squares: Float[Tensor, "prompts points K"], shares: Float[Tensor, "*prompts K"]
    ) -> Float[Tensor, "prompts points K"]:
        """The posterior, from the squared distances to the centres and the current estimates of the shares."""

    @override
    def example(
        self, rng: torch.Generator, dim: int = 2, count: int | None = None, prompts: int = 8, steps: int = 5
    ) -> Example:
        tokens, points, starts = self.random_tokens(rng, dim, count or self.example_points, prompts)
        centres, posteriors = em_iterates(points, starts, self.priors, self.assignments, steps)
        if self.reads == "centres":
            return Example.at(slice(self.components), tokens, centres)
        return Example.at(slice(-points.shape[1], None), tokens, posteriors)

    def looped_design(
        self,
        rows: StateRows,
        prompt: Prompt,
        precision: float,
        first: BlockPlan,
        loop: Sequence[BlockPlan],
        kind: Kind,
    ) -> Design:
        """The net, from the layer that computes |μ|² of the initial centres, and the layers of the loop."""
        wanted = prompt.dim_in if self.reads == "centres" else self.components
        self.require(prompt.dim_out == wanted, f"targets of {wanted} coordinates to output {self.reads}")
        after = [] if self.reads == "centres" else [self.expectation(rows, precision)]
        m_step: list[Kind] = [kind for _ in loop[1:]]
        kinds: list[Kind] = [kind, "softmax", *m_step, *(["softmax"] if after else [])]
        out = rows["mu" if self.reads == "centres" else "r"]
        read_in, positions, before = (
            self.read_in(rows),
            self.positions(rows, prompt),
            [self.placement(rows, first)],
        )
        return Design(rows, read_in, out, positions, before, loop, after, attention=kinds)

    def relu_design(
        self, rows: StateRows, prompt: Prompt, precision: float, maximisation: Sequence[BlockPlan]
    ) -> Design:
        """The net with relu attention in all layers except the E-step, from the layers that compute μ from r."""
        loop = [self.expectation(rows, precision), *maximisation, self.norms(rows, "mu", precision)]
        return self.looped_design(rows, prompt, precision, self.norms(rows, "x", precision), loop, "relu")


class GaussianEM(IteratedMixture, kind="gaussian_em"):
    """EM for isotropic components of a known variance. 4 + `polish` layers per iteration.

    Two parts are not exact. The reciprocal of a component's count uses knots and then `polish` of Newton's steps. The
    logarithm of an estimated share uses knots only.
    """

    source = E_STEP
    algorithm = "expectation_maximisation"
    variance: PositiveFloat = 1.0
    """σ², of every component."""
    shares: Literal["fixed", "estimated"] = "fixed"
    """fixed: the shares stay as `weights` gives them. estimated: EM updates the shares."""
    pieces: PositiveInt = 64
    """M, the number of pieces of 1/t and of log t."""
    polish: int = Field(2, ge=0, le=3)
    """q, the number of Newton's steps for the reciprocal."""
    fewest: PositiveFloat = 1.0
    """The first knot, a sum of posteriors. The error is no longer small for a component with a smaller sum."""

    @property
    @override
    def limit(self) -> Limit | None:
        order = 2.0 if self.shares == "estimated" else 2.0 ** (self.polish + 1)
        # A single component has all points, and their number is a knot: the result is exact.
        return Limit("pieces", order, MEASURABLE_PIECES[order]) if self.components > 1 else None

    @property
    @override
    def example_points(self) -> int:
        return max(super().example_points, self.components * math.ceil(4 * self.fewest))

    @override
    def assignments(self, squares: Tensor, shares: Tensor) -> Tensor:
        return posterior(squares, self.variance, shares if self.shares == "estimated" else self.priors)

    @override
    def design(self, prompt: Prompt) -> Design:
        count = self.points(prompt)
        self.require(count > self.fewest, f"more than {self.fewest:g} points")
        rows = self.rows(prompt.dim_in, S=prompt.dim_in, n=1, nu=1)
        knots = geometric_knots(self.fewest, float(count), self.pieces)
        sums = sum_plan(rows, Piecewise.through(torch.reciprocal, knots, -1)).clear(rows["mu"])
        own = self.own(rows, 2 * count / self.fewest)
        step = newton_step(
            BlockPlan(), (rows["n"], rows["nu"]), rows["nu"], 1.0, (rows["centre"], rows["one"]), own
        )
        means = mean_plan(rows, self.own(rows, 2 / self.fewest))
        if self.shares == "estimated":
            share = Piecewise.through(lambda n: (n / count).log(), knots, -1)
            share.add_units(means.clear(rows["prior"]), rows["n"], rows["prior"], rows["centre"])
        layers = [sums, *[step] * self.polish, means]
        return self.relu_design(rows, prompt, 1 / self.variance, layers)


class SoftmaxGaussianEM(IteratedMixture, kind="gaussian_em_softmax"):
    """EM for isotropic components of a known variance, with softmax attention only. 2 layers per iteration.

    A softmax over the points with scores log r_c has the weights r_ic / Σ_i r_ic, so that its denominator divides by
    the count. Logarithms and squares of centres are piecewise linear functions in the MLPs.
    """

    source = E_STEP
    algorithm = "expectation_maximisation"
    variance: PositiveFloat = 1.0
    """σ², of every component."""
    pieces: PositiveInt = 1024
    """M, the number of pieces of log r_c (for each component) and of squares up to `radius` (for each coordinate)."""
    least: float = Field(1e-9, gt=0, lt=1)
    """The first knot, a posterior. A smaller posterior counts as more than a third of this one."""

    @property
    @override
    def limit(self) -> Limit | None:
        # The posterior of a single component is 1, which is a knot: the result is exact.
        return Limit("pieces", 2.0, (128.0, 512.0, 2048.0)) if self.components > 1 else None

    @override
    def assignments(self, squares: Tensor, shares: Tensor) -> Tensor:
        return posterior(squares, self.variance, self.priors)

    @override
    def design(self, prompt: Prompt) -> Design:
        self.points(prompt)
        rows, precision = self.rows(prompt.dim_in, l=self.components), 1 / self.variance
        log = Piecewise.through(torch.log, geometric_knots(self.least, 1.0, self.pieces), -1)
        expectation = self.expectation(rows, precision).clear(rows["mu"]).clear(rows["b"])
        log.add_units(expectation, rows["r"], rows["l"], rows["one"])
        gap = 2 * UNDERFLOW - 2 * log(torch.zeros(1, dtype=torch.float64)).item()
        score = [(rows["C"], rows["l"]), (gap * rows["one"], rows["point"] - rows["one"])]
        means = BlockPlan().head(score, [(rows["x"], rows["mu"])]).clear(rows["r"]).clear(rows["l"])
        loop = [expectation, self._squares(rows, means, rows["mu"])]
        return self.looped_design(
            rows, prompt, precision, self._squares(rows, BlockPlan(), rows["x"]), loop, "softmax"
        )

    def _squares(self, rows: StateRows, plan: BlockPlan, of: Form) -> BlockPlan:
        """b = -|μ|²/2σ² at every token. Tokens of points are never keys."""
        square = Piecewise.through(torch.square, uniform_knots(-self.radius, self.radius, self.pieces), 1)
        return square.add_units(plan, of, -0.5 / self.variance * rows["b"], rows["one"])


class Lloyd(IteratedMixture, kind="lloyd"):
    """Lloyd's algorithm (k-means), 4 layers per iteration: EM with so small a variance that posteriors are 0 or 1.

    The error falls like exp(-`sharpness` · gap). The gap is half the difference of a point's squared distances to
    the two nearest centres. Counts are then integers, and their reciprocals exact. A centre without points does not
    move.
    """

    source = E_STEP
    algorithm = "lloyd"
    sharpness: PositiveFloat = 1e6
    """1/σ²."""

    @override
    def assignments(self, squares: Tensor, shares: Tensor) -> Tensor:
        return one_hot(squares.argmin(-1), self.components).double()

    @override
    def design(self, prompt: Prompt) -> Design:
        count = self.points(prompt)
        rows = self.rows(prompt.dim_in, S=prompt.dim_in, n=1, nu=1, empty=1)
        centre, one, empty = rows["centre"], rows["one"], rows["empty"]
        sums = sum_plan(rows, Piecewise.through(torch.reciprocal, integer_knots(1, max(count, 2)), -1))
        sums.unit(centre - rows["n"], 0.0, empty)
        own = self.own(rows, 2.0)
        means = mean_plan(rows, own).head([(centre - empty, one), *own], [(-rows["mu"], rows["mu"])])
        return self.relu_design(rows, prompt, self.sharpness, [sums, means.clear(empty)])


def sum_plan(rows: StateRows, reciprocal: Piecewise) -> BlockPlan:
    """The block that computes S = Σ r x, n = Σ r and ν = 1/n at the centres, and clears r and b."""
    score, moves = (rows["C"], rows["r"]), [(rows["x"], rows["S"]), (rows["point"], rows["n"])]
    plan = reciprocal.add_units(BlockPlan().head([score], moves), rows["n"], rows["nu"], rows["centre"])
    return plan.clear(rows["r"]).clear(rows["b"])


def mean_plan(rows: StateRows, own: list[Term]) -> BlockPlan:
    """The block that adds ν S to μ at the centres."""
    plan = BlockPlan().head([(rows["nu"], rows["one"]), *own], [(rows["S"], rows["mu"])])
    return plan.clear(rows["S"]).clear(rows["n"]).clear(rows["nu"])


def em_iterates(
    points: Float[Tensor, "prompts points dim"],
    centres: Float[Tensor, "prompts K dim"],
    shares: Float[Tensor, " K"],
    assignments: Callable[[Tensor, Tensor], Tensor],
    steps: int,
) -> tuple[Float[Tensor, "steps prompts K dim"], Float[Tensor, "steps prompts points K"]]:
    """The centres after every iteration, and the posteriors given these. A centre without points does not move."""
    r, iterates = assignments(squared_distances(points, centres), shares), []
    for _ in range(steps):
        counts = r.sum(1)[..., None]
        centres = torch.where(counts > 0, r.mT @ points / counts, centres)
        r = assignments(squared_distances(points, centres), r.mean(1))
        iterates.append((centres, r))
    means, posteriors = (torch.stack(parts) for parts in zip(*iterates, strict=True))
    return means, posteriors
