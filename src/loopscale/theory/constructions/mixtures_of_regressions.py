"""Mixtures of linear regressions by EM whose M-steps are gradient steps, as loops over softmax and relu attention.

The net reads K tokens (β_c, 0), the coefficients to start from, and then pairs (x_i, y_i), a token each. After t loops
the first K tokens put out the coefficients after t iterations: r_ic in proportion to exp(-(y_i - x_i·β_c)² / 2σ²), and
then β_c <- β_c + rate · (1/n) Σ_i r_ic (y_i - x_i·β_c) x_i, as often as an M-step has steps.
"""

from collections.abc import Sequence
from typing import ClassVar

import torch
from jaxtyping import Float
from pydantic import PositiveFloat, PositiveInt
from torch import Tensor
from torch.nn.functional import pad
from typing_extensions import override

from loopscale.core.prompt import Prompt
from loopscale.models.architecture import Kind
from loopscale.theory.constructions.base import Construction, Design
from loopscale.theory.constructions.example import Example, Limit
from loopscale.theory.constructions.gates import alike
from loopscale.theory.constructions.piecewise import Piecewise, even
from loopscale.theory.constructions.plan import Plan, Rows
from loopscale.theory.constructions.posteriors import at, choice, posterior


class MixtureOfRegressions(Construction):
    """What both have: the tokens, residuals, the softmax over components and a gradient step."""

    source: ClassVar[str] = "Jin et al. 2024 (mixtures of linear regressions), EM with gradient steps"
    algorithm: ClassVar[str] = "expectation_maximisation_by_gradient"
    components: PositiveInt = 2
    """K, of equal shares."""
    noise: PositiveFloat = 1.0
    """σ, the standard deviation of y given its component and x."""
    rate: PositiveFloat = 0.5
    """η, of a gradient step on the mean over the pairs."""
    gradient_steps: PositiveInt = 1
    """Of an M-step, with posteriors as they are."""
    largest: PositiveFloat = 20.0
    """No residual is larger, and no coordinate of a token: masks must be larger than scores, knots reach as far."""

    @override
    def example(
        self, rng: torch.Generator, dim: int = 3, count: int = 40, prompts: int = 4, steps: int = 8
    ) -> Example:
        # A residual is at most 2 dim reach² and the noise; with larger x descent could diverge.
        reach = min(self.largest, (self.largest / (2 * dim + 1)) ** 0.5, (2 / self.rate) ** 0.5)
        x, noise, truth, start = (
            reach * (2 * torch.rand(prompts, *size, generator=rng, dtype=torch.float64) - 1)
            for size in ((count, dim), (count, 1), (self.components, dim), (self.components, dim))
        )
        of = torch.arange(count) % self.components
        y = (x * truth[:, of]).sum(-1, keepdim=True) + noise / 4
        tokens = torch.cat([pad(start, (0, 1)), torch.cat([x, y], 2)], 1)
        found = em_by_gradient(x, y, start, self.noise, self.rate, self.gradient_steps, steps)
        return at(slice(self.components), tokens, found)

    def pairs(self, prompt: Prompt) -> int:
        """n; the other tokens are the K that hold coefficients."""
        self.require(prompt.length > self.components, "more tokens than components")
        self.require(
            prompt.dim_in == prompt.dim_out + 1, "tokens of x's coordinates and y's, and targets of x's alone"
        )
        return prompt.length - self.components

    def rows(self, prompt: Prompt, identities: int) -> Rows:
        dim, count = prompt.dim_out, self.components
        sizes = dict.fromkeys(("C", "rho", "s", "r", "w"), count)
        return Rows(x=dim, y=1, beta=dim, **sizes, id=identities, one=1, point=1, centre=1)

    def placed(self, rows: Rows) -> Plan:
        """Of tokens that were read into x and β alike, one of the K keeps its β and a pair its x."""
        plan, point = Plan().gate(rows["beta"], rows["centre"], self.largest), rows["point"]
        return plan.gate(rows["x"], point, self.largest).gate(rows["y"], point, self.largest)

    def residuals(self, rows: Rows) -> Plan:
        """ρ_c = y - x·β_c at the pairs."""
        plan = Plan().pair([(rows["x"], rows["beta"])], [(-rows["C"], rows["rho"])])
        return plan.add(rows["y"].expand_as(rows["rho"]), rows["rho"])

    def expectation(self, rows: Rows) -> Plan:
        """r is the softmax over c of s_c, which the codes of the K tokens pick out of a pair's own state."""
        return choice(rows, [(rows["s"], rows["C"])], (self.largest / self.noise) ** 2).clear(rows["s"])

    def step(self, rows: Rows, pairs: int, last: bool) -> Plan:
        """β_c += η/n Σ w_c x; the posteriors stay for another step unless this is the last."""
        plan = Plan().pair([(rows["C"], rows["w"])], [(self.rate / pairs * rows["x"], rows["beta"])])
        for done in ("rho", "w", *(["r"] if last else [])):
            plan.clear(rows[done])
        return plan

    def closed(
        self, rows: Rows, prompt: Prompt, identities: Tensor, loop: Sequence[tuple[Plan, Kind]]
    ) -> Design:
        code = torch.eye(prompt.length, self.components)
        centre = code.sum(1)
        positions = rows.state(prompt.length, one=1.0, C=code, centre=centre, point=1 - centre, id=identities)
        read_in = torch.cat([rows["x"] + rows["beta"], rows["y"]]).T
        before: Kind = "relu"
        return Design(
            rows, read_in, rows["beta"], positions, [self.placed(rows)], [plan for plan, _ in loop],
            attention=[before, *(kind for _, kind in loop)],
        )  # fmt: skip


class RegressionsEM(MixtureOfRegressions, kind="regressions_em"):
    """Exactly, in 5 + 3 (`gradient_steps` - 1) layers an iteration: squares and products by gated relu attention."""

    @override
    def design(self, prompt: Prompt) -> Design:
        pairs = self.pairs(prompt)
        rows = self.rows(prompt, prompt.length)
        loop: list[tuple[Plan, Kind]] = []
        for n in range(self.gradient_steps):
            loop.append((self.residuals(rows), "relu"))
            if n == 0:
                loop.append((self._squared(rows), "relu"))
                loop.append((self.expectation(rows), "softmax"))
            loop.append((self._weighted(rows), "relu"))
            loop.append((self.step(rows, pairs, last=n + 1 == self.gradient_steps), "relu"))
        return self.closed(rows, prompt, torch.eye(prompt.length), loop)

    def _squared(self, rows: Rows) -> Plan:
        """s_c = -ρ_c² / 2σ², a head each: a square is no less than 0, and needs no second."""
        plan, own = Plan(), alike(rows["one"], self.largest**2, (rows["id"], rows["id"]))
        for rho, s in zip(rows["rho"].split(1), rows["s"].split(1), strict=True):
            plan.head([(rho, rho), *own], [(-0.5 / self.noise**2 * rows["one"], s)])
        return plan

    def _weighted(self, rows: Rows) -> Plan:
        """w_c = r_c ρ_c."""
        plan, own = Plan(), alike(rows["one"], self.largest, (rows["id"], rows["id"]))
        for r, rho, w in zip(*(rows[name].split(1) for name in ("r", "rho", "w")), strict=True):
            plan.pair([(r, rho)], [(rows["one"], w)], own)
        return plan


class RegressionsEMByKnots(MixtureOfRegressions, kind="regressions_em_by_knots"):
    """In 3 layers an iteration, 2 for each gradient step after its first: squares by knots in the MLPs.

    The product r ρ is ((r + ρ)² - (r - ρ)²) / 4. Tokens need no identities.
    """

    pieces: PositiveInt = 256
    """M, of squares up to `largest` and 1 more on either side."""

    @property
    @override
    def limit(self) -> Limit:
        return Limit("pieces", 2.0, (128.0, 512.0, 2048.0))

    @override
    def design(self, prompt: Prompt) -> Design:
        pairs = self.pairs(prompt)
        rows = self.rows(prompt, 1)
        loop: list[tuple[Plan, Kind]] = []
        for n in range(self.gradient_steps):
            residual = self.residuals(rows)
            if n == 0:
                half = -0.5 / self.noise**2 * rows["s"]
                loop.append((self._squares(residual, rows["rho"] + rows["y"], half, rows), "relu"))
                loop.append((self._weighted(rows, self.expectation(rows), rows["rho"]), "softmax"))
            else:
                loop.append((self._weighted(rows, residual, rows["rho"] + rows["y"]), "relu"))
            loop.append((self.step(rows, pairs, last=n + 1 == self.gradient_steps), "relu"))
        return self.closed(rows, prompt, torch.zeros(prompt.length, 1), loop)

    def _squares(self, plan: Plan, argument: Tensor, target: Tensor, rows: Rows) -> Plan:
        reach = self.largest + 1
        square = Piecewise.through(torch.square, even(-reach, reach, self.pieces), 1)
        return square.units(plan, argument, target, rows["one"])

    def _weighted(self, rows: Rows, plan: Plan, rho: Tensor) -> Plan:
        """w = r ρ, of what attention leaves in the rows."""
        self._squares(plan, rows["r"] + rho, rows["w"] / 4, rows)
        return self._squares(plan, rows["r"] - rho, -rows["w"] / 4, rows)


def em_by_gradient(
    x: Float[Tensor, "prompts pairs dim"],
    y: Float[Tensor, "prompts pairs 1"],
    beta: Float[Tensor, "prompts K dim"],
    noise: float,
    rate: float,
    gradient_steps: int,
    steps: int,
) -> Float[Tensor, "steps prompts K dim"]:
    """The coefficients after every iteration, of which each is an E-step and so many steps of descent."""
    shares, found = beta.new_ones(beta.shape[1]), []
    for _ in range(steps):
        r = posterior((y - x @ beta.mT).square(), noise**2, shares)
        for _ in range(gradient_steps):
            beta = beta + rate / x.shape[1] * (r * (y - x @ beta.mT)).mT @ x
        found.append(beta)
    return torch.stack(found)
