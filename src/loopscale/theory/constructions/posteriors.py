"""Gaussian mixtures: the posterior over the components, which *is* softmax attention, exactly.

The net reads points, tokens of d coordinates, and K centres: the K tokens before the points, or the first K points
themselves. A softmax over the centres' tokens with scores μ·x/σ² - |μ|²/2σ² + log π is an E-step (for the slides it
approximates one). Loops around it are in `gaussian_mixtures.py`.
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
from loopscale.theory.constructions.example import Example
from loopscale.theory.constructions.gadgets import SURE
from loopscale.theory.constructions.gates import alike
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
        return prompt.length - (self.components if self.starts == "tokens" else 0)

    @property
    def priors(self) -> Float[Tensor, " components"]:
        """The components' shares to begin with."""
        weights = self.weights or [1.0] * self.components
        count = len(weights)
        self.require(count == self.components, f"{count} components, one for each of its weights")
        return torch.tensor(weights, dtype=torch.float64) / sum(weights)

    def positions(self, rows: Rows, prompt: Prompt) -> Tensor:
        code = torch.eye(prompt.length, self.components)
        centre = code.sum(1)
        point = 1 - centre if self.starts == "tokens" else torch.ones(prompt.length)
        prior = code.double() @ self.priors.log()
        return rows.state(prompt.length, one=1.0, C=code, centre=centre, point=point, prior=prior)

    def own(self, rows: Rows, bound: float) -> list[Term]:
        """Keeps a centre to itself, and points out."""
        return alike(rows["one"], bound, (rows["C"], rows["C"]))

    def norms(self, rows: Rows, of: str, precision: float) -> Plan:
        """b = -|μ|²/2σ² at the centres, in relu attention."""
        own = self.own(rows, self.radius**2)
        return Plan().head([(rows[of], rows[of]), *own], [(-precision / 2 * rows["one"], rows["b"])])

    def placed(self, rows: Rows, plan: Plan) -> Plan:
        """Of tokens that were read into x and μ alike, a centre keeps the one and a point the other."""
        return plan.gate(rows["mu"], rows["centre"], self.radius).gate(rows["x"], rows["point"], self.radius)

    def expectation(self, rows: Rows, precision: float) -> Plan:
        """r is the posterior over the components given a token's x."""
        score = [(precision * rows["x"], rows["mu"]), (rows["one"], rows["b"] + rows["prior"])]
        return choice(rows, score, 4 * precision * self.radius**2)

    def ends(self, rows: Rows) -> Tensor:
        """The read-in, of a token into x and μ alike."""
        return (rows["x"] + rows["mu"]).T

    @property
    def crowd(self) -> int:
        """How many points an example has."""
        return 20 * self.components

    def drawn(
        self, rng: torch.Generator, dim: int, count: int, prompts: int
    ) -> tuple[Float[Tensor, "prompts tokens dim"], ...]:
        """Tokens; the points among them, around a centre each in turn; and the centres to start from."""
        means, points, starts = (
            self.radius / 8 * torch.randn(prompts, number, dim, generator=rng, dtype=torch.float64)
            for number in (self.components, count, self.components)
        )
        points, starts = points + means[:, torch.arange(count) % self.components], starts / 2 + means
        for each in (points, starts):
            each *= (self.radius / each.norm(dim=-1, keepdim=True)).clamp(max=1)
        if self.starts == "points":
            return points, points, points[:, : self.components]
        return torch.cat([starts, points], 1), points, starts


class Posterior(Mixture, kind="gaussian_posterior"):
    """The posterior over the components, `dim_out`, at every point: a softmax layer after one that squares centres."""

    source = SOURCE
    algorithm = "e_step"
    variance: PositiveFloat = 1.0
    """σ², of every component."""

    @override
    def design(self, prompt: Prompt) -> Design:
        self.points(prompt)
        self.require(prompt.dim_out == self.components, "targets of a coordinate for each component")
        rows = self.rows(prompt.dim_in)
        plans = [
            self.placed(rows, self.norms(rows, "x", 1 / self.variance)),
            self.expectation(rows, 1 / self.variance),
        ]
        kinds: list[Kind] = ["relu", "softmax"]
        positions = self.positions(rows, prompt)
        return Design(rows, self.ends(rows), rows["r"], positions, plans, attention=kinds)

    @override
    def example(
        self, rng: torch.Generator, dim: int = 2, count: int | None = None, prompts: int = 8
    ) -> Example:
        tokens, points, centres = self.drawn(rng, dim, count or self.crowd, prompts)
        found = posterior(apart(points, centres), self.variance, self.priors)
        first = torch.full_like(found, torch.nan)
        return at(slice(-points.shape[1], None), tokens, torch.stack([first, found]))


def choice(rows: Rows, score: Iterable[Term], spread: float) -> Plan:
    """The E-step: r becomes a softmax over the components' tokens, of scores that differ by so much, and a share's."""
    away = 2 * SURE + spread  # a share, too, may be as small as e^-745
    masked = [*score, (away * rows["one"], rows["centre"] - rows["one"])]
    return Plan().head(masked, [(rows["C"], rows["r"])])


def posterior(
    squares: Float[Tensor, "prompts points K"], variance: float, shares: Float[Tensor, "*prompts K"]
) -> Float[Tensor, "prompts points K"]:
    """Over the components, of points that are as far, squared, from what each component expects."""
    return torch.softmax(shares.log()[..., None, :] - squares / (2 * variance), -1)


def apart(
    points: Float[Tensor, "prompts points dim"], centres: Float[Tensor, "prompts K dim"]
) -> Float[Tensor, "prompts points K"]:
    """Squared distances."""
    return (points[:, :, None] - centres[:, None]).square().sum(-1)


def at(
    where: slice,
    tokens: Float[Tensor, "prompts tokens dim_in"],
    found: Float[Tensor, "steps prompts some dim_out"],
) -> Example:
    """An example in which only some of the tokens count."""
    steps, prompts, _, dim_out = found.shape
    expected = torch.full((steps, prompts, tokens.shape[1], dim_out), torch.nan, dtype=torch.float64)
    expected[:, :, where] = found
    return Example(tokens, expected)
