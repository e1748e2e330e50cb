"""Gaussian mixtures: softmax attention over the centres is the posterior over the components, exactly.

The net reads points of d coordinates, one per token, and K centres: either K tokens before the points, or the first K
points. A softmax over the centres' tokens with scores μ·x/σ² - |μ|²/2σ² + log π is an E-step. (@yang2025slides claims
an approximation only.) The loops around the E-step are in `gaussian_mixtures.py`.
"""

from collections.abc import Iterable
from typing import Literal

import torch
from jaxtyping import Float
from pydantic import PositiveFloat, PositiveInt
from torch import Tensor
from typing_extensions import override

from loopscale.core.prompt import Prompt
from loopscale.models.architecture import Kind
from loopscale.theory.constructions.base import Construction, Design
from loopscale.theory.constructions.block_plan import BlockPlan, StateRows, Term
from loopscale.theory.constructions.example import Example, Stated
from loopscale.theory.constructions.gadgets import UNDERFLOW
from loopscale.theory.constructions.logic import gate_terms

SYSTEM = "clustering"

E_STEP = "@he2025em (its E-step)"


class GaussianMixture(Construction):
    """Shared by all constructions for Gaussian mixtures: the roles of the tokens, and the E-step."""

    components: PositiveInt = 3
    """K."""
    starts: Literal["tokens", "points"] = "tokens"
    """The initial centres. tokens: the first K tokens, which are not points. points: the first K points."""
    weights: tuple[PositiveFloat, ...] | None = None
    """The components' shares, up to a common factor. `None` for equal shares."""
    radius: PositiveFloat = 10.0
    """An upper bound on the norm of the points. Masks must exceed the scores."""

    def rows(self, dim: int, **more: int) -> StateRows:
        count = self.components
        return StateRows(x=dim, mu=dim, r=count, C=count, point=1, centre=1, one=1, b=1, prior=1, **more)

    def points(self, prompt: Prompt) -> int:
        """The number of points in the prompt. Raises ValueError if the prompt does not fit."""
        self.require(prompt.length > self.components, "more tokens than components")
        return prompt.length - (self.components if self.starts == "tokens" else 0)

    @property
    def priors(self) -> Float[Tensor, " components"]:
        """The initial shares of the components."""
        weights = self.weights or [1.0] * self.components
        count = len(weights)
        self.require(count == self.components, f"{count} components, one for each of its weights")
        return torch.tensor(weights, dtype=torch.float64) / sum(weights)

    def positions(self, rows: StateRows, prompt: Prompt) -> Tensor:
        code = torch.eye(prompt.length, self.components)
        centre = code.sum(1)
        point = 1 - centre if self.starts == "tokens" else torch.ones(prompt.length)
        prior = code.double() @ self.priors.log()
        return rows.state(prompt.length, one=1.0, C=code, centre=centre, point=point, prior=prior)

    def own(self, rows: StateRows, bound: float) -> list[Term]:
        """Gate terms with which each centre attends to itself only, and points attend to no token."""
        return gate_terms(rows["one"], bound, (rows["C"], rows["C"]))

    def norms(self, rows: StateRows, of: str, precision: float) -> BlockPlan:
        """b = -|μ|²/2σ² at the centres, by relu attention."""
        own = self.own(rows, self.radius**2)
        return BlockPlan().head([(rows[of], rows[of]), *own], [(-precision / 2 * rows["one"], rows["b"])])

    def placement(self, rows: StateRows, plan: BlockPlan) -> BlockPlan:
        """The read-in fills both x and μ. The block keeps μ at centres and x at points."""
        return plan.gate(rows["mu"], rows["centre"], self.radius).gate(rows["x"], rows["point"], self.radius)

    def expectation(self, rows: StateRows, precision: float) -> BlockPlan:
        """The block in which r becomes the posterior over the components given x."""
        score = [(precision * rows["x"], rows["mu"]), (rows["one"], rows["b"] + rows["prior"])]
        return component_softmax(rows, score, 4 * precision * self.radius**2)

    def read_in(self, rows: StateRows) -> Tensor:
        """The read-in, which fills both x and μ."""
        return (rows["x"] + rows["mu"]).T

    @override
    def stated(self, prompt: Prompt) -> Stated:
        return Stated("the E-step and the M-step, approximately")

    @property
    def example_points(self) -> int:
        """The number of points in an example."""
        return 20 * self.components

    def random_tokens(
        self, rng: torch.Generator, dim: int, count: int, prompts: int
    ) -> tuple[Float[Tensor, "prompts tokens dim"], ...]:
        """Random tokens, their points (the components take turns), and the initial centres."""
        means, points, starts = (
            self.radius / 8 * torch.randn(prompts, number, dim, generator=rng, dtype=torch.float64)
            for number in (self.components, count, self.components)
        )
        points, starts = points + means[:, torch.arange(count) % self.components], starts / 2 + means
        for vectors in (points, starts):
            vectors *= (self.radius / vectors.norm(dim=-1, keepdim=True)).clamp(max=1)
        if self.starts == "points":
            return points, points, points[:, : self.components]
        return torch.cat([starts, points], 1), points, starts


class GaussianPosterior(GaussianMixture, kind="gaussian_posterior"):
    """The posterior over the components at every point: a layer that computes |μ|², then a softmax layer."""

    source = E_STEP
    algorithm = "e_step"
    variance: PositiveFloat = 1.0
    """σ², of every component."""

    @override
    def design(self, prompt: Prompt) -> Design:
        self.points(prompt)
        self.require(prompt.dim_out == self.components, "one target coordinate per component")
        rows = self.rows(prompt.dim_in)
        plans = [
            self.placement(rows, self.norms(rows, "x", 1 / self.variance)),
            self.expectation(rows, 1 / self.variance),
        ]
        kinds: list[Kind] = ["relu", "softmax"]
        positions = self.positions(rows, prompt)
        return Design(rows, self.read_in(rows), rows["r"], positions, plans, attention=kinds)

    @override
    def example(
        self, rng: torch.Generator, dim: int = 2, count: int | None = None, prompts: int = 8
    ) -> Example:
        tokens, points, centres = self.random_tokens(rng, dim, count or self.example_points, prompts)
        last = posterior(squared_distances(points, centres), self.variance, self.priors)
        first = torch.full_like(last, torch.nan)
        return Example.at(slice(-points.shape[1], None), tokens, torch.stack([first, last]))


def component_softmax(rows: StateRows, score: Iterable[Term], spread: float) -> BlockPlan:
    """The E-step: r becomes a softmax over the components' tokens. `spread` bounds the score differences."""
    gap = 2 * UNDERFLOW + spread  # the logarithm of a share adds up to 745
    terms = [*score, (gap * rows["one"], rows["centre"] - rows["one"])]
    return BlockPlan().head(terms, [(rows["C"], rows["r"])])


def posterior(
    squares: Float[Tensor, "prompts points K"], variance: float, shares: Float[Tensor, "*prompts K"]
) -> Float[Tensor, "prompts points K"]:
    """The posterior over the components, from squared distances between the points and the components' predictions."""
    return torch.softmax(shares.log()[..., None, :] - squares / (2 * variance), -1)


def squared_distances(
    points: Float[Tensor, "prompts points dim"], centres: Float[Tensor, "prompts K dim"]
) -> Float[Tensor, "prompts points K"]:
    """The squared distances between points and centres."""
    return (points[:, :, None] - centres[:, None]).square().sum(-1)
