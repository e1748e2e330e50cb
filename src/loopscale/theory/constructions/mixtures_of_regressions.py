"""Mixtures of linear regressions by EM with gradient M-steps, by softmax and relu attention [@jin2024].

The net reads K tokens (β_c, 0), the initial coefficients, and then pairs (x_i, y_i), one per token. After t loops
the first K tokens output the coefficients after t iterations. The E-step is `r_ic ∝ exp(-(y_i - x_i·β_c)² / 2σ²)`.
The M-step repeats `β_c <- β_c + rate · (1/n) Σ_i r_ic (y_i - x_i·β_c) x_i`, `gradient_steps` times.
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
from loopscale.theory.constructions.block_plan import BlockPlan, StateRows
from loopscale.theory.constructions.example import Example, Limit, Stated
from loopscale.theory.constructions.logic import gate_terms
from loopscale.theory.constructions.piecewise import Piecewise, uniform_knots
from loopscale.theory.constructions.posteriors import component_softmax, posterior

SYSTEM = "mixtures of regressions"


class MixtureOfRegressions(Construction):
    """Shared by both constructions: the tokens, residuals, the softmax over components, and a gradient step."""

    source: ClassVar[str] = "@jin2024 (EM with gradient steps)"
    algorithm: ClassVar[str] = "expectation_maximisation_by_gradient"
    components: PositiveInt = 2
    """K, the number of components. All have equal shares."""
    noise: PositiveFloat = 1.0
    """σ, the standard deviation of y given its component and x."""
    rate: PositiveFloat = 0.5
    """η, the step size for the mean over the pairs."""
    gradient_steps: PositiveInt = 1
    """The number of gradient steps per M-step. The posteriors stay fixed during an M-step."""
    largest: PositiveFloat = 20.0
    """An upper bound on residuals and token coordinates. Masks must exceed scores, and knots must cover the range."""

    @override
    def stated(self, prompt: Prompt) -> Stated:
        return Stated("an error after training, and no distance to EM")

    @override
    def example(
        self, rng: torch.Generator, dim: int = 3, count: int = 40, prompts: int = 4, steps: int = 8
    ) -> Example:
        # A residual is at most 2 dim reach² plus noise. With larger x descent could diverge.
        reach = min(self.largest, (self.largest / (2 * dim + 1)) ** 0.5, (2 / self.rate) ** 0.5)
        x, noise, truth, start = (
            reach * (2 * torch.rand(prompts, *size, generator=rng, dtype=torch.float64) - 1)
            for size in ((count, dim), (count, 1), (self.components, dim), (self.components, dim))
        )
        component = torch.arange(count) % self.components
        y = (x * truth[:, component]).sum(-1, keepdim=True) + noise / 4
        tokens = torch.cat([pad(start, (0, 1)), torch.cat([x, y], 2)], 1)
        iterates = em_by_gradient(x, y, start, self.noise, self.rate, self.gradient_steps, steps)
        return Example.at(slice(self.components), tokens, iterates)

    def pairs(self, prompt: Prompt) -> int:
        """n. The other tokens are the K that hold coefficients. Raises ValueError if the prompt does not fit."""
        self.require(prompt.length > self.components, "more tokens than components")
        self.require(
            prompt.dim_in == prompt.dim_out + 1,
            "tokens that hold x's coordinates and y, and targets with x's coordinates",
        )
        return prompt.length - self.components

    def rows(self, prompt: Prompt, identities: int) -> StateRows:
        dim, count = prompt.dim_out, self.components
        sizes = dict.fromkeys(("C", "rho", "s", "r", "w"), count)
        return StateRows(x=dim, y=1, beta=dim, **sizes, id=identities, one=1, point=1, centre=1)

    def placement(self, rows: StateRows) -> BlockPlan:
        """The read-in fills both x and β. The block keeps β at the K first tokens and x and y at pairs."""
        plan, point = BlockPlan().gate(rows["beta"], rows["centre"], self.largest), rows["point"]
        return plan.gate(rows["x"], point, self.largest).gate(rows["y"], point, self.largest)

    def residuals(self, rows: StateRows) -> BlockPlan:
        """ρ_c = y - x·β_c at the pairs."""
        plan = BlockPlan().signed_pair([(rows["x"], rows["beta"])], [(-rows["C"], rows["rho"])])
        return plan.add(rows["y"].expand_as(rows["rho"]), rows["rho"])

    def expectation(self, rows: StateRows) -> BlockPlan:
        """r becomes the softmax over c of s_c. The codes of the first K tokens, as keys, select s_c from the state."""
        return component_softmax(rows, [(rows["s"], rows["C"])], (self.largest / self.noise) ** 2).clear(
            rows["s"]
        )

    def step(self, rows: StateRows, pairs: int, last: bool) -> BlockPlan:
        """β_c += η/n Σ_i w_ic x_i. Posteriors stay for a further gradient step, and are cleared in the last step."""
        plan = BlockPlan().signed_pair(
            [(rows["C"], rows["w"])], [(self.rate / pairs * rows["x"], rows["beta"])]
        )
        for name in ("rho", "w", *(["r"] if last else [])):
            plan.clear(rows[name])
        return plan

    def looped_design(
        self, rows: StateRows, prompt: Prompt, identities: Tensor, loop: Sequence[tuple[BlockPlan, Kind]]
    ) -> Design:
        code = torch.eye(prompt.length, self.components)
        centre = code.sum(1)
        positions = rows.state(prompt.length, one=1.0, C=code, centre=centre, point=1 - centre, id=identities)
        read_in = torch.cat([rows["x"] + rows["beta"], rows["y"]]).T
        before: list[BlockPlan] = [self.placement(rows)]
        kinds: list[Kind] = ["relu", *(kind for _, kind in loop)]
        plans = [plan for plan, _ in loop]
        return Design(rows, read_in, rows["beta"], positions, before, plans, attention=kinds)


class RegressionsEM(MixtureOfRegressions, kind="regressions_em"):
    """EM with gradient M-steps, exactly: squares and products by gated relu attention.

    5 + 3 (`gradient_steps` - 1) layers per iteration.
    """

    @override
    def design(self, prompt: Prompt) -> Design:
        pairs = self.pairs(prompt)
        rows = self.rows(prompt, prompt.length)
        loop: list[tuple[BlockPlan, Kind]] = []
        for n in range(self.gradient_steps):
            loop.append((self.residuals(rows), "relu"))
            if n == 0:
                loop.append((self._squared(rows), "relu"))
                loop.append((self.expectation(rows), "softmax"))
            loop.append((self._weighted(rows), "relu"))
            loop.append((self.step(rows, pairs, last=n + 1 == self.gradient_steps), "relu"))
        return self.looped_design(rows, prompt, torch.eye(prompt.length), loop)

    def _squared(self, rows: StateRows) -> BlockPlan:
        """s_c = -ρ_c² / 2σ². One head suffices for each component, because a square is not negative."""
        plan, own = BlockPlan(), gate_terms(rows["one"], self.largest**2, (rows["id"], rows["id"]))
        for rho, s in zip(rows["rho"].split(1), rows["s"].split(1), strict=True):
            plan.head([(rho, rho), *own], [(-0.5 / self.noise**2 * rows["one"], s)])
        return plan

    def _weighted(self, rows: StateRows) -> BlockPlan:
        """w_c = r_c ρ_c."""
        plan, own = BlockPlan(), gate_terms(rows["one"], self.largest, (rows["id"], rows["id"]))
        for r, rho, w in zip(*(rows[name].split(1) for name in ("r", "rho", "w")), strict=True):
            plan.signed_pair([(r, rho)], [(rows["one"], w)], own)
        return plan


class RegressionsEMByKnots(MixtureOfRegressions, kind="regressions_em_by_knots"):
    """EM with gradient M-steps, with piecewise linear squares in the MLPs.

    3 layers per iteration, and 2 for each further gradient step. The product r ρ is ((r + ρ)² - (r - ρ)²) / 4.
    Tokens need no identities.
    """

    pieces: PositiveInt = 256
    """M, the number of pieces of squares. The knots reach `largest` + 1 on either side."""

    @property
    @override
    def limit(self) -> Limit:
        return Limit("pieces", 2.0, (128.0, 512.0, 2048.0))

    @override
    def design(self, prompt: Prompt) -> Design:
        pairs = self.pairs(prompt)
        rows = self.rows(prompt, 1)
        loop: list[tuple[BlockPlan, Kind]] = []
        for n in range(self.gradient_steps):
            residual = self.residuals(rows)
            if n == 0:
                half = -0.5 / self.noise**2 * rows["s"]
                loop.append((self._squares(residual, rows["rho"] + rows["y"], half, rows), "relu"))
                loop.append((self._weighted(rows, self.expectation(rows), rows["rho"]), "softmax"))
            else:
                loop.append((self._weighted(rows, residual, rows["rho"] + rows["y"]), "relu"))
            loop.append((self.step(rows, pairs, last=n + 1 == self.gradient_steps), "relu"))
        return self.looped_design(rows, prompt, torch.zeros(prompt.length, 1), loop)

    def _squares(self, plan: BlockPlan, argument: Tensor, target: Tensor, rows: StateRows) -> BlockPlan:
        reach = self.largest + 1
        square = Piecewise.through(torch.square, uniform_knots(-reach, reach, self.pieces), 1)
        return square.add_units(plan, argument, target, rows["one"])

    def _weighted(self, rows: StateRows, plan: BlockPlan, rho: Tensor) -> BlockPlan:
        """w = r ρ, from the rows after attention."""
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
    """The coefficients after every iteration: an E-step and `gradient_steps` steps of gradient descent."""
    shares, iterates = beta.new_ones(beta.shape[1]), []
    for _ in range(steps):
        r = posterior((y - x @ beta.mT).square(), noise**2, shares)
        for _ in range(gradient_steps):
            beta = beta + rate / x.shape[1] * (r * (y - x @ beta.mT)).mT @ x
        iterates.append(beta)
    return torch.stack(iterates)
