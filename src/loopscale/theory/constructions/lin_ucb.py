"""Soft LinUCB: a ridge estimate, a bonus for what is not known of an arm, and a softmax over arms.

The net reads tokens (x, y, a): pairs first, with a = 0, and then the arms, with x = 0 and y = 0. Every arm solves
V z = a, V = λI + Σ x_i x_i', at once; then z·x_i y_i summed is the estimate <a, V⁻¹X'y>, and z·a is a'V⁻¹a, so
that nothing else need be solved for. Read out at the last token are the probabilities of the arms.
"""

from typing import Literal

import torch
from jaxtyping import Float
from pydantic import NonNegativeFloat, PositiveFloat, PositiveInt
from torch import Tensor
from torch.nn.functional import normalize
from typing_extensions import override

from loopscale.core.prompt import Prompt
from loopscale.models.architecture import Kind
from loopscale.theory.constructions import columns
from loopscale.theory.constructions.base import Design
from loopscale.theory.constructions.example import Example, Limit
from loopscale.theory.constructions.gates import alike
from loopscale.theory.constructions.logic import among
from loopscale.theory.constructions.piecewise import Piecewise, geometric
from loopscale.theory.constructions.plan import Plan, Rows
from loopscale.theory.constructions.ridge import (
    Curvature,
    accelerate,
    descent,
    further_pairs,
    inverses,
    momentum,
    prefixes,
    problem,
    tokens,
)


class LinUcb(Curvature, kind="lin_ucb"):
    """Arms drawn from softmax(ucb / temperature), ucb = <a, w> + width sqrt(a'V⁻¹a), w of ridge regression.

    A loop is one block and a step of the solver; two more layers follow. The root is piecewise linear: its
    relative error is (ln κ)² / 32 pieces², κ the ratio of the largest and the smallest a'V⁻¹a that the bounds allow.
    """

    source = "Lin et al. 2024 (Transformers as decision makers), theorem on soft LinUCB"
    algorithm = "soft LinUCB"
    solver: Literal["accelerated", "newton"] = "accelerated"
    """Nesterov's steps, about sqrt(κ), under a causal mask; or Newton's for V⁻¹, about log2(κ), without one."""
    width: NonNegativeFloat = 1.0
    """α, of the bonus."""
    temperature: PositiveFloat = 0.1
    """τ."""
    shortest: PositiveFloat = 0.1
    """|a| at least."""
    pieces: PositiveInt = 256
    """M, of the root."""

    @property
    @override
    def limit(self) -> Limit | None:
        # Many, as it is by chance how near to a knot the roots of a prompt lie.
        return Limit("pieces", 2, tuple(round(8 * 2 ** (k / 2)) for k in range(13))) if self.width else None

    @override
    def design(self, prompt: Prompt) -> Design:
        arms, dim = prompt.dim_out, prompt.dim_in // 2
        self.require(prompt.dim_in % 2 == 1, "tokens (x, y, a), a with as many coordinates as x")
        self.require(prompt.length >= arms, "prompts that end with a token for each arm")
        self.require(self.shortest < self.bound, "arms of different lengths: shortest below bound")
        sizes = dict.fromkeys(("x", "a", "z", "v", "g", "e", "s", "m"), dim) | {"arm": arms, "policy": arms}
        rows = Rows(**sizes, **dict.fromkeys(("y", "ucb", "q", "one", "choice"), 1))
        pairs, identity = prompt.length - arms, torch.eye(arms, dtype=torch.float64)
        largest = self.largest(pairs)
        registers, before, loop, after = self._solver(rows, dim, largest)
        after = [*after, self._index(rows, largest), self._policy(rows)]
        choices = rows.state(arms, one=1.0, choice=1.0, arm=identity)
        solving: list[Kind] = ["relu"] * (len(before) + len(loop) + len(after) - 1)
        return Design(
            rows, torch.cat([rows["x"], rows["y"], rows["a"]]).T, rows["policy"],
            torch.cat([registers, rows.state(pairs, one=1.0), choices]), before, loop, after,
            attention=[*solving, "softmax"], causal=self.solver == "accelerated", registers=dim,
        )  # fmt: skip

    @override
    def example(self, rng: torch.Generator) -> Example:
        x, y = problem(rng, dim=3, pairs=20, bound=self.bound)
        normal = torch.randn(8, 4, 3, generator=rng, dtype=torch.float64)
        length = torch.rand(8, 4, 1, generator=rng, dtype=torch.float64)
        arms = (self.shortest + (self.bound - self.shortest) * length) * normalize(normal, dim=-1)
        second, largest = prefixes(x, y, self.penalty)[0][:, -1:], self.largest(pairs=20)
        if self.solver == "newton":
            solved = arms @ inverses(second[:, 0], largest, steps=14)
        else:
            solved = descent(second, arms, largest, momentum(self.penalty, largest), steps=20)
        guesses = policies(x, y, arms, solved, self.width, self.temperature)
        return Example.at_last(tokens(x, y, arms), guesses)

    def _solver(
        self, rows: Rows, dim: int, largest: float
    ) -> tuple[Tensor, list[Plan], list[Plan], list[Plan]]:
        """Registers, and layers before, in and after the loop, which leave V⁻¹a in the rows z of the arms."""
        if self.solver == "newton":
            before = columns.add_squares(Plan(), rows, "relu")
            after = columns.apply(Plan(), rows, "relu", "m", "a", "z")
            registers = columns.registers(rows, dim, s=self.penalty, m=1 / largest)
            return registers, [before], [columns.inverse_step(rows, "relu")], [after]
        step = Plan().pair([(rows["v"], rows["x"])], [(-rows["x"] / largest, rows["g"])])
        accelerate(
            step, rows["z"], rows["v"], rows["g"], momentum(self.penalty, largest), rows["a"] / largest
        )
        return further_pairs(rows, dim, self.penalty), [], [step], []

    def _index(self, rows: Rows, largest: float) -> Plan:
        """ucb: the estimate by attention, and the bonus by the MLP, of a'z by attention of an arm to itself."""
        plan = Plan().pair([(rows["z"], rows["x"])], [(rows["y"], rows["ucb"])])
        most = self.bound**2 / self.penalty
        # Of a'V⁻¹a at most; while z is solved for, it is off by at most the root of 2 as much.
        own = alike(rows["one"], 2.5 * most, (rows["arm"], rows["arm"]))
        plan.pair([(rows["z"], rows["a"])], [(rows["one"], rows["q"])], own)
        root = Piecewise.through(torch.sqrt, geometric(self.shortest**2 / largest, most, self.pieces), -1)
        return root.units(plan, rows["q"], self.width * rows["ucb"]).clear(rows["q"])

    def _policy(self, rows: Rows) -> Plan:
        score = [(rows["one"] / self.temperature, rows["ucb"]), among(rows, rows["choice"])]
        return Plan().head(score, [(rows["arm"], rows["policy"])])


def policies(
    x: Float[Tensor, "prompts pairs dim"],
    y: Float[Tensor, "prompts pairs"],
    arms: Float[Tensor, "prompts arms dim"],
    solved: Float[Tensor, "*steps prompts arms dim"],
    width: float,
    temperature: float,
) -> Float[Tensor, "*steps prompts arms"]:
    """Soft LinUCB's, where `solved` is V⁻¹a, or as near to it as a solver is after each of its steps."""
    estimates = (solved @ x.mT @ y[..., None])[..., 0]
    bonuses = width * (solved * arms).sum(-1).relu().sqrt()
    return torch.softmax((estimates + bonuses) / temperature, -1)
