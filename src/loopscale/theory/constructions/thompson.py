"""Matrix square roots by the coupled Newton-Schulz iteration, and Thompson sampling for linear bandits by this root.

The iteration is `Y <- (3Y - YZY) / 2`, `Z <- (3Z - ZYZ) / 2` from Y = V / c and Z = I, where c is at least V's largest
eigenvalue. Y converges to the square root of V / c, and Z to the inverse of this root. One block is one step.
"""

from dataclasses import replace
from typing import ClassVar

import torch
from jaxtyping import Float
from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt
from torch import Tensor
from torch.nn.functional import one_hot
from typing_extensions import override

from loopscale.core.prompt import Prompt
from loopscale.models.architecture import Kind
from loopscale.tasks.bandit_games import Interaction
from loopscale.tasks.decisions import History
from loopscale.tasks.policies import normal_points
from loopscale.theory.constructions import matrices
from loopscale.theory.constructions.base import Construction, Design
from loopscale.theory.constructions.block_plan import BlockPlan, StateRows
from loopscale.theory.constructions.example import Example, Stated
from loopscale.theory.constructions.gadgets import UNDERFLOW
from loopscale.theory.constructions.logic import SignedAttention, mask_except, signed_heads
from loopscale.theory.constructions.players import Player, plays_and_arms
from loopscale.theory.constructions.ridge import (
    SQRT_LAYERS,
    Curvature,
    pair_and_arm_tokens,
    prefix_moments,
    random_bounded_regression,
)

SYSTEM = "decision making"


class MatrixRoot(Construction, kind="matrix_root"):
    """The square root of a symmetric positive definite V, and the inverse of this root. Token j is V's j-th column.

    Token j outputs the j-th columns of both matrices, stacked. About ln(c / λmin) / (2 ln 1.5) + 5 steps suffice.
    """

    source = "@higham2008, eq. 6.35: the coupled Newton-Schulz iteration"
    algorithm = "the coupled Newton-Schulz iteration, from V / c and I"
    attention: SignedAttention = "linear"
    """The kind of attention. Both kinds are exact."""
    top: PositiveFloat = 10.0
    """c, an upper bound on V's eigenvalues."""

    @override
    def design(self, prompt: Prompt) -> Design:
        dim, c = prompt.dim_in, self.top
        square = prompt.length == dim and prompt.dim_out == 2 * dim
        self.require(square, "the columns of a square matrix, and outputs of twice their size")
        rows = StateRows(root=dim, inverse=dim)
        read_out = torch.cat([c**0.5 * rows["root"], rows["inverse"] / c**0.5])
        positions = rows.state(dim, inverse=torch.eye(dim, dtype=torch.float64))
        read_in, loop = rows.read_in("root") / c, [root_step(rows, self.attention)]
        return Design(rows, read_in, read_out, positions, loop=loop, attention=self.attention)

    @override
    def stated(self, prompt: Prompt) -> Stated:
        return Stated("quadratic convergence of the iteration; the source has no net")

    @override
    def example(self, rng: torch.Generator) -> Example:
        vectors = torch.linalg.qr(torch.randn(8, 4, 4, generator=rng, dtype=torch.float64))[0]
        values = 0.02 + 0.97 * torch.rand(8, 1, 4, generator=rng, dtype=torch.float64)
        v = self.top * (vectors * values) @ vectors.mT
        return Example(v.mT, torch.cat(coupled_roots(v, self.top, steps=14), -2).mT)


def coupled_roots(
    v: Float[Tensor, "prompts dim dim"], top: float, steps: int
) -> tuple[Float[Tensor, "steps prompts dim dim"], Float[Tensor, "steps prompts dim dim"]]:
    """The square root of V and its inverse, after every step of the coupled iteration."""
    y, z, iterates = v / top, torch.eye(v.shape[-1], dtype=v.dtype).expand_as(v), []
    for _ in range(steps):
        y, z = (3 * y - y @ z @ y) / 2, (3 * z - z @ y @ z) / 2
        iterates.append((top**0.5 * y, z / top**0.5))
    root, inverse = (torch.stack(matrices) for matrices in zip(*iterates, strict=True))
    return root, inverse


def root_step(rows: StateRows, kind: SignedAttention) -> BlockPlan:
    """Attention subtracts a third of the triple products. The MLP multiplies by 3/2."""
    plan = BlockPlan()
    for first, second in (("root", "inverse"), ("inverse", "root")):
        signed_heads(plan, kind, [(rows[first], rows[second])], [(-rows[first] / 3, rows[first])])
        plan.add(rows[first] / 2, rows[first])
    return plan


class PosteriorSampling(Curvature):
    """Shared by constructions that draw w = V⁻¹X'y + spread V⁻¹ᐟ² ξ. A loop is one step of the root.

    V = λI + Σ_i x_i x_i'. The standard normal ξ is part of the prompt. The net computes w as V⁻¹ᐟ² (V⁻¹ᐟ² X'y +
    spread ξ).
    """

    source: ClassVar[str] = "@lin2024, theorem 10"
    attention: SignedAttention = "linear"
    """The kind of attention that multiplies coordinates. Both kinds are exact."""
    spread: NonNegativeFloat = 1.0
    """σ, the standard deviation of the noise."""

    @override
    def stated(self, prompt: Prompt) -> Stated:
        return Stated(
            "the probabilities of Thompson sampling, approximately, with high probability", SQRT_LAYERS
        )

    def _draw_design(self, prompt: Prompt, arms: int = 0, draws: int = 1) -> Design:
        """The net for pairs, `arms` arms, and `draws` last tokens that hold a ξ each and output its w."""
        dim, pairs = prompt.dim_in // 2, prompt.length - arms - draws
        self.require(
            prompt.dim_in % 2 == 1, "tokens (x, y, a or ξ) in which a and ξ have as many coordinates as x"
        )
        self.require(pairs >= 0, "prompts that end with a token for each arm and one for ξ")
        names = ("x", "extra", "e", "root", "inverse", "b", "t", "w")
        flags = dict.fromkeys(("y", "one", "choice", "last"), 1)
        rows = StateRows(**dict.fromkeys(names, dim), **flags, arm=arms, chosen=arms)
        before, after = self._layers(rows, self.largest(pairs))
        positions = [
            matrices.register_states(rows, dim, root=self.penalty / self.largest(pairs), inverse=1.0),
            rows.state(pairs, one=1.0),
            rows.state(arms, one=1.0, choice=1.0, arm=torch.eye(arms, dtype=torch.float64)),
            rows.state(draws, one=1.0, last=1.0),
        ]
        read_in, loop = rows.read_in("x", "y", "extra"), [root_step(rows, self.attention)]
        return Design(rows, read_in, rows["w"], torch.cat(positions), [before], loop, after, self.attention)

    def _random_bandit(
        self, rng: torch.Generator
    ) -> tuple[Float[Tensor, "8 20 3"], Float[Tensor, "8 20"], Float[Tensor, "8 3"], Float[Tensor, "14 8 3"]]:
        """x, y and ξ, and the w drawn after every step of the root."""
        x, y = random_bounded_regression(rng, dim=3, pairs=20, bound=self.bound)
        noise = torch.randn(8, 3, generator=rng, dtype=torch.float64)
        second, moment = (moments[:, -1] for moments in prefix_moments(x, y, self.penalty))
        inverse = coupled_roots(second, self.largest(pairs=20), steps=14)[1]
        drawn = inverse @ (inverse @ moment[..., None] + self.spread * noise[..., None])
        return x, y, noise, drawn[..., 0]

    def _layers(self, rows: StateRows, largest: float) -> tuple[BlockPlan, list[BlockPlan]]:
        """The layer that sums V / c and X'y, and the two layers that multiply by V⁻¹ᐟ²."""
        before = matrices.add_squares(BlockPlan(), rows, self.attention, "root", 1 / largest)
        signed_heads(before, self.attention, [(rows["last"], rows["y"])], [(rows["x"], rows["b"])])
        first, second = BlockPlan(), BlockPlan()
        for plan, source, target in ((first, "b", "t"), (second, "t", "w")):
            matrices.multiply(plan, rows, self.attention, "inverse", source, target, largest**-0.5)
        return before, [first.add(self.spread * rows["extra"], rows["t"]), second]


class ThompsonDraw(PosteriorSampling, kind="thompson_draw"):
    """The weights w that Thompson sampling draws. In: pairs (x, y, 0), then (0, 0, ξ). Out, at the last token: w."""

    algorithm = "a draw from N(V⁻¹X'y, σ²V⁻¹), given its standard normal ξ"

    @override
    def design(self, prompt: Prompt) -> Design:
        self.require(
            prompt.dim_in == 2 * prompt.dim_out + 1,
            "tokens (x, y, ξ), and outputs with as many coordinates as x",
        )
        return self._draw_design(prompt)

    @override
    def example(self, rng: torch.Generator) -> Example:
        x, y, noise, drawn = self._random_bandit(rng)
        return Example.at_last(pair_and_arm_tokens(x, y, noise[:, None]), drawn)


class ThompsonSampling(PosteriorSampling, Player, kind="thompson_sampling"):
    """The arm that Thompson sampling plays. The net reads pairs (x, y, 0), arms (0, 0, a), then (0, 0, ξ), and
    outputs the arm at the last token.

    The output is one-hot in the limit of the temperature, and exactly one-hot if the best arm leads by 745
    temperatures. It is the action for one ξ. Random ξ give the distribution of actions. The
    bound `ts_depth` has the number of layers of the source.

    As a baseline the net reads `draws` quasi-random ξ in as many last tokens. It plays the mean of their arms, with one
    more draw spread over all arms. The posterior for the prior N(0, I) and noise σ has `penalty` σ² and `spread` σ.
    """

    algorithm = "Thompson sampling for linear bandits, given its standard normal ξ"
    solves = Interaction
    temperature: float = Field(1e-6, ge=1e-6)
    """τ, of the softmax over arms."""
    draws: PositiveInt = 1
    """The number of ξ in a prompt."""

    @override
    def design(self, prompt: Prompt) -> Design:
        """The net of the draw, and one more layer in which the last token attends to the arms with scores <a, w>."""
        draw = self._draw_design(prompt, prompt.dim_out, self.draws)
        rows = draw.rows
        query, key = mask_except(rows, rows["choice"])
        # The mask grows like the scores. Otherwise the last token, with a long ξ, could attend to itself.
        score = [(rows["w"] / self.temperature, rows["extra"]), (query / min(self.temperature, 1.0), key)]
        choose = BlockPlan().head(score, [(rows["arm"], rows["chosen"])])
        kinds: list[Kind] = [*[self.attention for _ in draw.plans], "softmax"]
        return replace(draw, read_out=rows["chosen"], after=[*draw.after, choose], attention=kinds)

    @override
    def takes(self, history: History) -> bool:
        return isinstance(history, Interaction) and history.actions is not None

    @override
    def tokens_before(self, history: Interaction, query: int) -> Float[Tensor, "batch tokens dim_in"]:
        assert history.actions is not None
        noise = normal_points(self.draws, history.actions.shape[-1], history.actions.device)
        return plays_and_arms(history, query, self.bound, self.kind, noise)

    @override
    def at_query(self, outputs: Float[Tensor, "steps batch tokens K"]) -> Float[Tensor, "steps batch K"]:
        return (outputs[:, :, -self.draws :].sum(2) + 1 / outputs.shape[-1]) / (self.draws + 1)

    @override
    def example(self, rng: torch.Generator) -> Example:
        """Arms long enough that the best arm leads by enough temperatures, after every step."""
        x, y, noise, drawn = self._random_bandit(rng)
        arms = torch.randn(8, 4, 3, generator=rng, dtype=torch.float64)
        rewards = (arms @ drawn[..., None])[..., 0]
        best = rewards.topk(2).values
        needed = UNDERFLOW * self.temperature / (best[..., 0] - best[..., 1]).amin(0)
        arms *= needed.clamp_min(1)[:, None, None]
        return Example.at_last(
            pair_and_arm_tokens(x, y, torch.cat([arms, noise[:, None]], 1)),
            one_hot(rewards.argmax(-1), 4).double(),
        )
