"""Mixtures of linear regressions by EM whose M-steps are gradient steps, as loops over softmax and relu attention.

The net reads K tokens (β_c, 0), the coefficients to start from, and then pairs (x_i, y_i), a token each. After t loops
the first K tokens put out the coefficients after t iterations: r_ic in proportion to exp(-(y_i - x_i·β_c)² / 2σ²), and
then β_c <- β_c + rate · (1/n) Σ_i r_ic (y_i - x_i·β_c) x_i, as often as an M-step has steps.
"""

from collections.abc import Sequence
from typing import ClassVar

import torch
from pydantic import PositiveFloat, PositiveInt
from torch import Tensor
from typing_extensions import override

from loopscale.core.prompt import Prompt
from loopscale.models.architecture import Kind
from loopscale.theory.constructions.base import Construction, Design
from loopscale.theory.constructions.gadgets import SURE
from loopscale.theory.constructions.gates import alike
from loopscale.theory.constructions.piecewise import Piecewise, even
from loopscale.theory.constructions.plan import Plan, Rows


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
        return Rows(x=dim, y=1, beta=dim, **sizes, id=identities, one=1, pair=1, component=1)

    def placed(self, rows: Rows) -> Plan:
        """Of tokens that were read into x and β alike, one of the K keeps its β and a pair its x."""
        plan = Plan()
        for kept, kind in (("beta", "component"), ("x", "pair"), ("y", "pair")):
            plan.gate(rows[kept], rows[kind].expand_as(rows[kept]), self.largest)
        return plan

    def residuals(self, rows: Rows) -> Plan:
        """ρ_c = y - x·β_c at the pairs."""
        plan = Plan().pair([(rows["x"], rows["beta"])], [(-rows["C"], rows["rho"])])
        return plan.add(rows["y"].expand_as(rows["rho"]), rows["rho"])

    def expectation(self, rows: Rows) -> Plan:
        """r is the softmax over c of s_c, which the codes of the K tokens pick out of a pair's own state."""
        away = SURE + (self.largest / self.noise) ** 2
        score = [(rows["s"], rows["C"]), (away * rows["one"], rows["component"] - rows["one"])]
        return Plan().head(score, [(rows["C"], rows["r"])]).clear(rows["s"])

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
        component = code.sum(1)
        positions = rows.state(
            prompt.length, one=1.0, C=code, component=component, pair=1 - component, id=identities
        )
        read_in = torch.cat([rows["x"] + rows["beta"], rows["y"]]).T
        before: Kind = "relu"
        return Design(
            rows, read_in, rows["beta"], positions, [self.placed(rows)], [plan for plan, _ in loop],
            attention=[before, *(kind for _, kind in loop)],
        )  # fmt: skip


class RegressionsEM(MixtureOfRegressions, kind="regressions_em"):
    """Exactly, in 5 + 3 (`gradient_steps` - 1) layers an iteration: squares and products by gated relu attention."""

    @property
    @override
    def order(self) -> int | None:
        return None

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
    def order(self) -> int | None:
        return 2

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
