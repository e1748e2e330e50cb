"""Soft LinUCB: a ridge estimate, an exploration bonus for each arm, and a softmax over the arms.

The net reads tokens (x, y, a): first pairs, with a = 0, and then arms, with x = 0 and y = 0. Every arm solves V z =
a for V = λI + Σ_i x_i x_i', all arms at once. Then Σ_i (z·x_i) y_i is the estimate <a, V⁻¹X'y>, and z·a is a'V⁻¹a,
so that no other system is solved. The last token outputs the probabilities of the arms.
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
from loopscale.tasks.bandit_games import Interaction
from loopscale.tasks.decisions import History
from loopscale.theory.constructions import matrices
from loopscale.theory.constructions.base import Design
from loopscale.theory.constructions.block_plan import BlockPlan, StateRows
from loopscale.theory.constructions.example import Example, Limit
from loopscale.theory.constructions.logic import gate_terms, mask_except
from loopscale.theory.constructions.piecewise import Piecewise, geometric_knots
from loopscale.theory.constructions.players import Player, plays_and_arms
from loopscale.theory.constructions.ridge import (
    Curvature,
    add_nesterov_update,
    inverse_iterates,
    nesterov_descent,
    nesterov_momentum,
    pair_and_arm_tokens,
    penalty_registers,
    prefix_moments,
    random_bounded_regression,
)

SYSTEM = "decision making"


class LinUcb(Curvature, Player, kind="lin_ucb"):
    """The policy softmax(ucb / temperature), ucb = <a, w> + width sqrt(a'V⁻¹a), with w from ridge regression.

    A loop is one block and one step of the solver. Two more layers follow. The square root is piecewise linear. Its
    relative error is (ln κ)² / 32 pieces², where κ is the ratio of the largest and smallest a'V⁻¹a that the bounds
    allow. The number of layers in the theorem is the bound `soft_linucb_depth`, and the regret of LinUCB is `linucb`.
    """

    source = "@lin2024, theorem 8"
    algorithm = "soft LinUCB"
    solves = Interaction
    solver: Literal["accelerated", "newton"] = "accelerated"
    """accelerated: Nesterov's steps, about sqrt(κ) of them, with a causal mask. newton: Newton's steps for V⁻¹,
    about log2(κ) of them, without a mask."""
    width: NonNegativeFloat = 1.0
    """α, the factor of the bonus."""
    temperature: PositiveFloat = 0.1
    """τ, of the softmax over arms."""
    shortest: PositiveFloat = 0.1
    """A lower bound on |a|."""
    pieces: PositiveInt = 256
    """M, the number of pieces of the square root."""

    @property
    @override
    def limit(self) -> Limit | None:
        # Many values, because the distance of a root from the next knot is random.
        return Limit("pieces", 2, tuple(round(8 * 2 ** (k / 2)) for k in range(13))) if self.width else None

    @override
    def design(self, prompt: Prompt) -> Design:
        arms, dim = prompt.dim_out, prompt.dim_in // 2
        self.require(prompt.dim_in % 2 == 1, "tokens (x, y, a) with as many coordinates in x as in a")
        self.require(prompt.length >= arms, "prompts that end with a token for each arm")
        self.require(self.shortest < self.bound, "shortest < bound")
        sizes = dict.fromkeys(("x", "a", "z", "v", "g", "e", "s", "m"), dim) | {"arm": arms, "policy": arms}
        rows = StateRows(**sizes, **dict.fromkeys(("y", "ucb", "q", "one", "choice"), 1))
        pairs, identity = prompt.length - arms, torch.eye(arms, dtype=torch.float64)
        largest = self.largest(pairs)
        registers, before, loop, after = self._solver(rows, dim, largest)
        after = [*after, self._index(rows, largest), self._policy(rows)]
        choices = rows.state(arms, one=1.0, choice=1.0, arm=identity)
        positions = torch.cat([registers, rows.state(pairs, one=1.0), choices])
        kinds: list[Kind] = [*["relu" for _ in [*before, *loop, *after[1:]]], "softmax"]
        causal, read_in = self.solver == "accelerated", rows.read_in("x", "y", "a")
        return Design(
            rows, read_in, rows["policy"], positions, before, loop, after, attention=kinds, causal=causal
        )

    @override
    def example(self, rng: torch.Generator) -> Example:
        x, y = random_bounded_regression(rng, dim=3, pairs=20, bound=self.bound)
        normal = torch.randn(8, 4, 3, generator=rng, dtype=torch.float64)
        length = torch.rand(8, 4, 1, generator=rng, dtype=torch.float64)
        arms = (self.shortest + (self.bound - self.shortest) * length) * normalize(normal, dim=-1)
        second, largest = prefix_moments(x, y, self.penalty)[0][:, -1:], self.largest(pairs=20)
        if self.solver == "newton":
            solved = arms @ inverse_iterates(second[:, 0], largest, steps=14)
        else:
            solved = nesterov_descent(
                second, arms, largest, nesterov_momentum(self.penalty, largest), steps=20
            )
        guesses = soft_policies(x, y, arms, solved, self.width, self.temperature)
        return Example.at_last(pair_and_arm_tokens(x, y, arms), guesses)

    @override
    def takes(self, history: History) -> bool:
        return isinstance(history, Interaction) and history.actions is not None

    @override
    def tokens_before(self, history: Interaction, query: int) -> Float[Tensor, "batch tokens dim_in"]:
        return plays_and_arms(history, query, self.bound, self.kind)

    def _solver(
        self, rows: StateRows, dim: int, largest: float
    ) -> tuple[Tensor, list[BlockPlan], list[BlockPlan], list[BlockPlan]]:
        """Registers, and layers before, in and after the loop. These layers leave V⁻¹a in the rows z of the arms."""
        if self.solver == "newton":
            before = matrices.add_squares(BlockPlan(), rows, "relu")
            after = matrices.multiply(BlockPlan(), rows, "relu", "m", "a", "z")
            registers = matrices.register_states(rows, dim, s=self.penalty, m=1 / largest)
            return registers, [before], [matrices.inverse_step(rows, "relu")], [after]
        step = BlockPlan().signed_pair([(rows["v"], rows["x"])], [(-rows["x"] / largest, rows["g"])])
        add_nesterov_update(
            step,
            rows["z"],
            rows["v"],
            rows["g"],
            nesterov_momentum(self.penalty, largest),
            rows["a"] / largest,
        )
        return penalty_registers(rows, dim, self.penalty), [], [step], []

    def _index(self, rows: StateRows, largest: float) -> BlockPlan:
        """Compute ucb: attention computes the estimate, and a'z from an arm to itself. The MLP computes the bonus."""
        plan = BlockPlan().signed_pair([(rows["z"], rows["x"])], [(rows["y"], rows["ucb"])])
        most = self.bound**2 / self.penalty
        # `most` bounds a'V⁻¹a. Before the solver converges a'z may be larger, by a factor of at most √2.
        own = gate_terms(rows["one"], 2.5 * most, (rows["arm"], rows["arm"]))
        plan.signed_pair([(rows["z"], rows["a"])], [(rows["one"], rows["q"])], own)
        root = Piecewise.through(
            torch.sqrt, geometric_knots(self.shortest**2 / largest, most, self.pieces), -1
        )
        return root.add_units(plan, rows["q"], self.width * rows["ucb"]).clear(rows["q"])

    def _policy(self, rows: StateRows) -> BlockPlan:
        score = [(rows["one"] / self.temperature, rows["ucb"]), mask_except(rows, rows["choice"])]
        return BlockPlan().head(score, [(rows["arm"], rows["policy"])])


def soft_policies(
    x: Float[Tensor, "prompts pairs dim"],
    y: Float[Tensor, "prompts pairs"],
    arms: Float[Tensor, "prompts arms dim"],
    solved: Float[Tensor, "*steps prompts arms dim"],
    width: float,
    temperature: float,
) -> Float[Tensor, "*steps prompts arms"]:
    """The probabilities of soft LinUCB, where `solved` is V⁻¹a, or its approximation after each step of a solver."""
    estimates = (solved @ x.mT @ y[..., None])[..., 0]
    bonuses = width * (solved * arms).sum(-1).relu().sqrt()
    return torch.softmax((estimates + bonuses) / temperature, -1)
