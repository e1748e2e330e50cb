"""Gaussian mixtures: posteriors by softmax attention, and on them loops that are EM or Lloyd's algorithm.

The net reads points, tokens of d coordinates, and K centres to start from: the K tokens before the points, or the
first K points themselves. A softmax over the centres' tokens, with scores μ·x/σ² - |μ|²/2σ² + log π, *is* the
posterior, so that an E-step is exact (the slides have it as an approximation); what costs is dividing by the counts.
After t loops the first K tokens put out the centres after t iterations, or every point its posterior given those.
"""

from collections.abc import Sequence
from typing import Literal

import torch
from pydantic import Field, PositiveFloat, PositiveInt
from torch import Tensor
from typing_extensions import override

from loopscale.core.prompt import Prompt
from loopscale.models.architecture import Kind
from loopscale.models.base import Net
from loopscale.theory.constructions.base import Construction, Design
from loopscale.theory.constructions.gadgets import SURE
from loopscale.theory.constructions.gates import alike, newton
from loopscale.theory.constructions.piecewise import Piecewise, geometric, whole
from loopscale.theory.constructions.plan import Plan, Rows, Term

SOURCE = "Transformers versus the EM Algorithm in Multi-class Clustering 2025, the softmax E-step"


class Mixture(Construction):
    """What its constructions share: which tokens are points and centres, and the E-step."""

    components: PositiveInt = 3
    """K."""
    starts: Literal["tokens", "points"] = "tokens"
    """Whether the first K tokens are the centres to start from and no points, or points and such centres at once."""
    weights: tuple[PositiveFloat, ...] | None = None
    """The components' shares, in proportion; `None` for equal ones."""
    radius: PositiveFloat = 10.0
    """No point is farther from 0: masks must be larger than scores."""

    def rows(self, dim: int, **more: int) -> Rows:
        count = self.components
        return Rows(x=dim, mu=dim, r=count, C=count, point=1, centre=1, one=1, b=1, prior=1, **more)

    def points(self, prompt: Prompt) -> int:
        """How many of the prompt's tokens are points."""
        self.require(prompt.length > self.components, "more tokens than components")
        shares = len(self.weights or ())
        self.require(shares in (0, self.components), f"{shares} components, one for each of its weights")
        return prompt.length - (self.components if self.starts == "tokens" else 0)

    def positions(self, rows: Rows, prompt: Prompt) -> Tensor:
        code = torch.eye(prompt.length, self.components)
        shares = torch.tensor(self.weights or [1.0] * self.components, dtype=torch.float64)
        centre = code.sum(1)
        point = 1 - centre if self.starts == "tokens" else torch.ones(prompt.length)
        prior = code.double() @ (shares / shares.sum()).log()
        return rows.state(prompt.length, one=1.0, C=code, centre=centre, point=point, prior=prior)

    def own(self, rows: Rows, bound: float) -> list[Term]:
        """Keeps a centre to itself, and points out."""
        return alike(rows["one"], bound, (rows["C"], rows["C"]))

    def norms(self, rows: Rows, of: str, precision: float) -> Plan:
        """b = -|μ|²/2σ² at the centres."""
        own = self.own(rows, self.radius**2)
        return Plan().head([(rows[of], rows[of]), *own], [(-precision / 2 * rows["one"], rows["b"])])

    def placed(self, rows: Rows, plan: Plan) -> Plan:
        """Of tokens that were read into x and μ alike, a centre keeps the one and a point the other."""
        for kept, kind in (("mu", "centre"), ("x", "point")):
            plan.gate(rows[kept], rows[kind].expand_as(rows[kept]), self.radius)
        return plan

    def expectation(self, rows: Rows, precision: float) -> Plan:
        """r is the posterior over the components given a token's x."""
        away = 2 * SURE + 4 * precision * self.radius**2  # a share, too, may be as small as e^-745
        score = [
            (precision * rows["x"], rows["mu"]),
            (rows["one"], rows["b"] + rows["prior"]),
            (away * rows["one"], rows["centre"] - rows["one"]),
        ]
        return Plan().head(score, [(rows["C"], rows["r"])])

    def ends(self, rows: Rows) -> Tensor:
        """The read-in, of a token into x and μ alike."""
        return (rows["x"] + rows["mu"]).T


class Posterior(Mixture, kind="gaussian_posterior"):
    """The posterior over the components, `dim_out`, at every point: a softmax layer after one that squares centres."""

    source = SOURCE
    algorithm = "e_step"
    variance: PositiveFloat = 1.0
    """σ², of every component."""

    @property
    @override
    def order(self) -> int | None:
        return None

    @override
    def net(self, prompt: Prompt) -> Net:
        self.points(prompt)
        self.require(prompt.dim_out == self.components, "targets of a coordinate for each component")
        rows = self.rows(prompt.dim_in)
        plans = [
            self.placed(rows, self.norms(rows, "x", 1 / self.variance)),
            self.expectation(rows, 1 / self.variance),
        ]
        kinds: list[Kind] = ["relu", "softmax"]
        positions = self.positions(rows, prompt)
        return Design(rows, self.ends(rows), rows["r"], positions, plans, attention=kinds).net(prompt.length)


class Iterated(Mixture):
    """A loop of an E-step and three layers or more that make centres of it."""

    reads: Literal["centres", "posteriors"] = "centres"
    """What is put out: centres at the first K tokens, or at every point its posterior, by a layer after the loop."""

    def closed(
        self, rows: Rows, prompt: Prompt, precision: float, maximisation: Sequence[Plan], norms: Plan
    ) -> Net:
        """The net, given what follows the E-step in a loop, all of it relu attention."""
        wanted = prompt.dim_in if self.reads == "centres" else self.components
        self.require(prompt.dim_out == wanted, f"targets of {wanted} coordinates where {self.reads} are read")
        first = self.placed(rows, self.norms(rows, "x", precision))
        expectation = self.expectation(rows, precision)
        after = [] if self.reads == "centres" else [expectation]
        summing: list[Kind] = ["relu" for _ in (*maximisation, norms)]
        kinds: list[Kind] = ["relu", "softmax", *summing, *(["softmax"] if after else [])]
        out = rows["mu" if self.reads == "centres" else "r"]
        return Design(
            rows, self.ends(rows), out, self.positions(rows, prompt),
            [first], [expectation, *maximisation, norms], after, attention=kinds,
        ).net(prompt.length)  # fmt: skip


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
    polish: int = Field(2, ge=0, le=4)
    """q."""
    fewest: PositiveFloat = 1.0
    """The knots begin at this sum of posteriors; a component that has less is where the error is no longer small."""

    @property
    @override
    def order(self) -> int | None:
        return 2 if self.shares == "estimated" else 2 ** (self.polish + 1)

    @override
    def net(self, prompt: Prompt) -> Net:
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
        precision = 1 / self.variance
        return self.closed(rows, prompt, precision, layers, self.norms(rows, "mu", precision))


class Lloyd(Iterated, kind="lloyd"):
    """Lloyd's algorithm (k-means), 4 layers an iteration: EM at a variance so small that posteriors are 0 or 1.

    The distance falls with exp(-`sharpness` · gap), where the gap is that of a point's squared distances, halved, to
    the two nearest centres. Counts are whole numbers then and their reciprocals exact. A centre without points stays
    where it is.
    """

    source = SOURCE
    algorithm = "lloyd"
    sharpness: PositiveFloat = 100.0
    """1/σ²."""

    @property
    @override
    def order(self) -> int | None:
        return None

    @override
    def net(self, prompt: Prompt) -> Net:
        count = self.points(prompt)
        rows = self.rows(prompt.dim_in, S=prompt.dim_in, n=1, nu=1, empty=1)
        centre, one, empty = rows["centre"], rows["one"], rows["empty"]
        sums = summed(rows, Piecewise.through(torch.reciprocal, whole(1, max(count, 2)), -1))
        sums.unit(centre - rows["n"], 0.0, empty)
        own = self.own(rows, 2.0)
        means = divided(rows, own).head([(centre - empty, one), *own], [(-rows["mu"], rows["mu"])])
        layers = [sums, means.clear(empty)]
        return self.closed(rows, prompt, self.sharpness, layers, self.norms(rows, "mu", self.sharpness))


def summed(rows: Rows, reciprocal: Piecewise) -> Plan:
    """At the centres S = Σ r x and n = Σ r over the points; then ν = 1/n, and room for the next posterior."""
    score, moves = (rows["C"], rows["r"]), [(rows["x"], rows["S"]), (rows["point"], rows["n"])]
    plan = reciprocal.units(Plan().head([score], moves), rows["n"], rows["nu"], rows["centre"])
    return plan.clear(rows["r"]).clear(rows["b"])


def divided(rows: Rows, own: list[Term]) -> Plan:
    """At the centres, μ += ν S."""
    plan = Plan().head([(rows["nu"], rows["one"]), *own], [(rows["S"], rows["mu"])])
    return plan.clear(rows["S"]).clear(rows["n"]).clear(rows["nu"])
