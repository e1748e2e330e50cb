"""Gaussian mixtures by loops: EM with relu attention beside the softmax, EM with softmax alone, Lloyd's algorithm.

The net reads points, tokens of d coordinates, and K centres to start from: the K tokens before the points, or the
first K points themselves. The E-step is exact (`posteriors.py`); what costs is dividing by the components' counts.
After t loops the first K tokens put out the centres after t iterations, or every point its posterior given those.
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
from loopscale.theory.constructions.example import Example, Limit
from loopscale.theory.constructions.gadgets import SURE
from loopscale.theory.constructions.gates import newton
from loopscale.theory.constructions.piecewise import Piecewise, even, geometric, whole
from loopscale.theory.constructions.plan import Form, Plan, Rows, Term
from loopscale.theory.constructions.posteriors import SOURCE, Mixture, apart, at, posterior

SEEN = {
    2.0: (32.0, 64.0, 128.0, 256.0, 512.0), 4.0: (12.0, 24.0, 48.0),
    8.0: (6.0, 12.0, 24.0), 16.0: (6.0, 8.0, 10.0),
}  # fmt: skip
"""By order: numbers of pieces that are neither too few for it nor so many that rounding is larger."""


class Iterated(Mixture):
    """A loop that begins with an E-step and goes on with layers of one kind of attention, as before the loop."""

    reads: Literal["centres", "posteriors"] = "centres"
    """What is put out: centres at the first K tokens, or at every point its posterior, by a layer after the loop."""

    @abstractmethod
    def assigned(
        self, squares: Float[Tensor, "prompts points K"], shares: Float[Tensor, "*prompts K"]
    ) -> Float[Tensor, "prompts points K"]:
        """The posterior, given the squared distances from the centres and the shares as they are estimated."""

    @override
    def example(
        self, rng: torch.Generator, dim: int = 2, count: int | None = None, prompts: int = 8, steps: int = 5
    ) -> Example:
        tokens, points, starts = self.drawn(rng, dim, count or self.crowd, prompts)
        centres, posteriors = em(points, starts, self.priors, self.assigned, steps)
        if self.reads == "centres":
            return at(slice(self.components), tokens, centres)
        return at(slice(-points.shape[1], None), tokens, posteriors)

    def closed(
        self, rows: Rows, prompt: Prompt, precision: float, first: Plan, loop: Sequence[Plan], kind: Kind
    ) -> Design:
        """The net, given the layer that squares the starts, and those of a loop."""
        wanted = prompt.dim_in if self.reads == "centres" else self.components
        self.require(prompt.dim_out == wanted, f"targets of {wanted} coordinates where {self.reads} are read")
        after = [] if self.reads == "centres" else [self.expectation(rows, precision)]
        others: list[Kind] = [kind for _ in loop[1:]]
        kinds: list[Kind] = [kind, "softmax", *others, *(["softmax"] if after else [])]
        out = rows["mu" if self.reads == "centres" else "r"]
        return Design(
            rows, self.ends(rows), out, self.positions(rows, prompt),
            [self.placed(rows, first)], loop, after, attention=kinds,
        )  # fmt: skip

    def summing(self, rows: Rows, prompt: Prompt, precision: float, maximisation: Sequence[Plan]) -> Design:
        """The net in which all but the E-step is relu attention, given what makes μ of r."""
        loop = [self.expectation(rows, precision), *maximisation, self.norms(rows, "mu", precision)]
        return self.closed(rows, prompt, precision, self.norms(rows, "x", precision), loop, "relu")


class ExpectationMaximisation(Iterated, kind="gaussian_em"):
    """EM for isotropic components of a known variance, 4 + `polish` layers an iteration.

    All is exact but the reciprocal of a component's count, by knots and then `polish` of Newton's steps, and the
    logarithm of its share where that is estimated, by knots alone.
    """

    source = SOURCE
    algorithm = "expectation_maximisation"
    variance: PositiveFloat = 1.0
    """σ², of every component."""
    shares: Literal["fixed", "estimated"] = "fixed"
    """Whether the components' shares stay what `weights` says."""
    pieces: PositiveInt = 64
    """M, of 1/t and of log t."""
    polish: int = Field(2, ge=0, le=3)
    """q."""
    fewest: PositiveFloat = 1.0
    """The knots begin at this sum of posteriors; a component that has less is where the error is no longer small."""

    @property
    @override
    def limit(self) -> Limit | None:
        order = 2.0 if self.shares == "estimated" else 2.0 ** (self.polish + 1)
        # A single component has all the points, and their count is a knot.
        return Limit("pieces", order, SEEN[order]) if self.components > 1 else None

    @property
    @override
    def crowd(self) -> int:
        return max(super().crowd, self.components * math.ceil(4 * self.fewest))

    @override
    def assigned(self, squares: Tensor, shares: Tensor) -> Tensor:
        return posterior(squares, self.variance, shares if self.shares == "estimated" else self.priors)

    @override
    def design(self, prompt: Prompt) -> Design:
        count = self.points(prompt)
        self.require(count > self.fewest, f"more than {self.fewest:g} points")
        rows = self.rows(prompt.dim_in, S=prompt.dim_in, n=1, nu=1)
        knots = geometric(self.fewest, float(count), self.pieces)
        sums = summed(rows, Piecewise.through(torch.reciprocal, knots, -1)).clear(rows["mu"])
        own = self.own(rows, 2 * count / self.fewest)
        step = newton(Plan(), (rows["n"], rows["nu"]), rows["nu"], 1.0, (rows["centre"], rows["one"]), own)
        means = divided(rows, self.own(rows, 2 / self.fewest))
        if self.shares == "estimated":
            share = Piecewise.through(lambda n: (n / count).log(), knots, -1)
            share.units(means.clear(rows["prior"]), rows["n"], rows["prior"], rows["centre"])
        layers = [sums, *[step] * self.polish, means]
        return self.summing(rows, prompt, 1 / self.variance, layers)


class SoftmaxEM(Iterated, kind="gaussian_em_softmax"):
    """EM for isotropic components of a known variance, with softmax attention alone, 2 layers an iteration.

    A softmax over the points with scores log r_c has the weights r_ic / Σ_i r_ic, so that its normaliser divides by
    the count; logarithms, and squares of centres, are functions between knots in the MLPs.
    """

    source = SOURCE
    algorithm = "expectation_maximisation"
    variance: PositiveFloat = 1.0
    """σ², of every component."""
    pieces: PositiveInt = 1024
    """M, of log r_c and of squares up to `radius`, for each component and each coordinate."""
    least: float = Field(1e-9, gt=0, lt=1)
    """The knots begin at this posterior; a lower one counts as more than a third of it."""

    @property
    @override
    def limit(self) -> Limit | None:
        # A single component has posterior 1, which is a knot.
        return Limit("pieces", 2.0, (128.0, 512.0, 2048.0)) if self.components > 1 else None

    @override
    def assigned(self, squares: Tensor, shares: Tensor) -> Tensor:
        return posterior(squares, self.variance, self.priors)

    @override
    def design(self, prompt: Prompt) -> Design:
        self.points(prompt)
        rows, precision = self.rows(prompt.dim_in, l=self.components), 1 / self.variance
        log = Piecewise.through(torch.log, geometric(self.least, 1.0, self.pieces), -1)
        expectation = self.expectation(rows, precision).clear(rows["mu"]).clear(rows["b"])
        log.units(expectation, rows["r"], rows["l"], rows["one"])
        away = 2 * SURE - 2 * log(torch.zeros(1, dtype=torch.float64)).item()
        score = [(rows["C"], rows["l"]), (away * rows["one"], rows["point"] - rows["one"])]
        means = Plan().head(score, [(rows["x"], rows["mu"])]).clear(rows["r"]).clear(rows["l"])
        loop = [expectation, self._squares(rows, means, rows["mu"])]
        return self.closed(rows, prompt, precision, self._squares(rows, Plan(), rows["x"]), loop, "softmax")

    def _squares(self, rows: Rows, plan: Plan, of: Form) -> Plan:
        """b = -|μ|²/2σ², here at every token: those of points are never keys."""
        square = Piecewise.through(torch.square, even(-self.radius, self.radius, self.pieces), 1)
        return square.units(plan, of, -0.5 / self.variance * rows["b"], rows["one"])


class Lloyd(Iterated, kind="lloyd"):
    """Lloyd's algorithm (k-means), 4 layers an iteration: EM at a variance so small that posteriors are 0 or 1.

    The distance falls with exp(-`sharpness` · gap), where the gap is that of a point's squared distances, halved, to
    the two nearest centres. Counts are whole numbers then and their reciprocals exact. A centre without points stays
    where it is.
    """

    source = SOURCE
    algorithm = "lloyd"
    sharpness: PositiveFloat = 1e6
    """1/σ²."""

    @override
    def assigned(self, squares: Tensor, shares: Tensor) -> Tensor:
        return one_hot(squares.argmin(-1), self.components).double()

    @override
    def design(self, prompt: Prompt) -> Design:
        count = self.points(prompt)
        rows = self.rows(prompt.dim_in, S=prompt.dim_in, n=1, nu=1, empty=1)
        centre, one, empty = rows["centre"], rows["one"], rows["empty"]
        sums = summed(rows, Piecewise.through(torch.reciprocal, whole(1, max(count, 2)), -1))
        sums.unit(centre - rows["n"], 0.0, empty)
        own = self.own(rows, 2.0)
        means = divided(rows, own).head([(centre - empty, one), *own], [(-rows["mu"], rows["mu"])])
        return self.summing(rows, prompt, self.sharpness, [sums, means.clear(empty)])


def summed(rows: Rows, reciprocal: Piecewise) -> Plan:
    """At the centres S = Σ r x and n = Σ r over the points; then ν = 1/n, and room for the next posterior."""
    score, moves = (rows["C"], rows["r"]), [(rows["x"], rows["S"]), (rows["point"], rows["n"])]
    plan = reciprocal.units(Plan().head([score], moves), rows["n"], rows["nu"], rows["centre"])
    return plan.clear(rows["r"]).clear(rows["b"])


def divided(rows: Rows, own: list[Term]) -> Plan:
    """At the centres, μ += ν S."""
    plan = Plan().head([(rows["nu"], rows["one"]), *own], [(rows["S"], rows["mu"])])
    return plan.clear(rows["S"]).clear(rows["n"]).clear(rows["nu"])


def em(
    points: Float[Tensor, "prompts points dim"],
    centres: Float[Tensor, "prompts K dim"],
    shares: Float[Tensor, " K"],
    assigned: Callable[[Tensor, Tensor], Tensor],
    steps: int,
) -> tuple[Float[Tensor, "steps prompts K dim"], Float[Tensor, "steps prompts points K"]]:
    """The centres after every iteration, and the posteriors given those; a centre that has no points stays."""
    r, found = assigned(apart(points, centres), shares), []
    for _ in range(steps):
        counts = r.sum(1)[..., None]
        centres = torch.where(counts > 0, r.mT @ points / counts, centres)
        r = assigned(apart(points, centres), r.mean(1))
        found.append((centres, r))
    return torch.stack([each for each, _ in found]), torch.stack([each for _, each in found])
