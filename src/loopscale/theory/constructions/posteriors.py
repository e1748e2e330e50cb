"""Gaussian mixtures: the posterior over the components, which *is* softmax attention, exactly.

The net reads points, tokens of d coordinates, and K centres: the K tokens before the points, or the first K points
themselves. A softmax over the centres' tokens with scores μ·x/σ² - |μ|²/2σ² + log π is an E-step (for the slides it
approximates one). Loops around it are in `gaussian_mixtures.py`.
"""

from typing import Literal

import torch
from pydantic import PositiveFloat, PositiveInt
from torch import Tensor
from typing_extensions import override

from loopscale.core.prompt import Prompt
from loopscale.models.architecture import Kind
from loopscale.theory.constructions.base import Construction, Design
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
        """b = -|μ|²/2σ² at the centres, in relu attention."""
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
