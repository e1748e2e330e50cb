"""Roots of matrices by the coupled Newton-Schulz iteration, and Thompson sampling for linear bandits, which needs one.

The iteration is Y <- (3Y - YZY) / 2, Z <- (3Z - ZYZ) / 2 from Y = V / c and Z = I, and takes Y to the root of V / c
and Z to its inverse, for c at least V's largest eigenvalue. It is one block, of which all of it is attention but the
factor 3/2.
"""

from dataclasses import replace
from typing import ClassVar

import torch
from jaxtyping import Float
from pydantic import Field, NonNegativeFloat, PositiveFloat
from torch import Tensor
from torch.nn.functional import one_hot
from typing_extensions import override

from loopscale.core.prompt import Prompt
from loopscale.models.architecture import Kind
from loopscale.theory.constructions import columns
from loopscale.theory.constructions.base import Construction, Design
from loopscale.theory.constructions.example import Example
from loopscale.theory.constructions.gadgets import SURE
from loopscale.theory.constructions.logic import Signed, among, passing
from loopscale.theory.constructions.plan import Plan, Rows
from loopscale.theory.constructions.ridge import Curvature, prefixes, problem, tokens


class MatrixRoot(Construction, kind="matrix_root"):
    """The root of a symmetric positive definite V and its inverse; token j is V's j-th column.

    Read out at token j are the j-th columns of both, one below the other. About ln(c / λmin) / (2 ln 1.5) + 5 steps.
    """

    source = "Higham 2008 (Functions of matrices), eq. 6.35: the coupled Newton-Schulz iteration"
    algorithm = "the coupled Newton-Schulz iteration, from V / c and I"
    attention: Signed = "linear"
    """Of the layers that multiply coordinates, exactly."""
    top: PositiveFloat = 10.0
    """c: V's eigenvalues are at most this."""

    @override
    def design(self, prompt: Prompt) -> Design:
        dim, c = prompt.dim_in, self.top
        square = prompt.length == dim and prompt.dim_out == 2 * dim
        self.require(square, "the columns of a square matrix, and guesses of those of two as large")
        rows = Rows(root=dim, inverse=dim)
        read_out = torch.cat([c**0.5 * rows["root"], rows["inverse"] / c**0.5])
        positions = rows.state(dim, inverse=torch.eye(dim, dtype=torch.float64))
        return Design(
            rows, rows["root"].T / c, read_out, positions,
            loop=[root_step(rows, self.attention)], attention=self.attention,
        )  # fmt: skip

    @override
    def example(self, rng: torch.Generator) -> Example:
        vectors = torch.linalg.qr(torch.randn(8, 4, 4, generator=rng, dtype=torch.float64))[0]
        values = 0.02 + 0.97 * torch.rand(8, 1, 4, generator=rng, dtype=torch.float64)
        v = self.top * (vectors * values) @ vectors.mT
        return Example(v.mT, torch.cat(roots(v, self.top, steps=14), -2).mT)


def roots(
    v: Float[Tensor, "prompts dim dim"], top: float, steps: int
) -> tuple[Float[Tensor, "steps prompts dim dim"], Float[Tensor, "steps prompts dim dim"]]:
    """The coupled iteration for V's root and its inverse, after every step."""
    y, z, found = v / top, torch.eye(v.shape[-1], dtype=v.dtype).expand_as(v), []
    for _ in range(steps):
        y, z = (3 * y - y @ z @ y) / 2, (3 * z - z @ y @ z) / 2
        found.append((top**0.5 * y, z / top**0.5))
    root, inverse = (torch.stack(each) for each in zip(*found, strict=True))
    return root, inverse


def root_step(rows: Rows, kind: Signed) -> Plan:
    """Attention subtracts a third of the triple products, the MLP multiplies by 3/2."""
    plan = Plan()
    for one, other in (("root", "inverse"), ("inverse", "root")):
        passing(plan, kind, [(rows[one], rows[other])], [(-rows[one] / 3, rows[one])])
        plan.add(rows[one] / 2, rows[one])
    return plan


class Sampling(Curvature):
    """What both constructions share that draw w = V⁻¹X'y + spread V⁻¹ᐟ² ξ: a step of the loop is one of the root.

    V = λI + Σ x_i x_i', and ξ, standard normal, is part of the prompt. w is V⁻¹ᐟ² (V⁻¹ᐟ² X'y + spread ξ).
    """

    source: ClassVar[str] = (
        "Lin et al. 2024 (Transformers as decision makers), Thompson sampling for linear bandits"
    )
    attention: Signed = "linear"
    """Of the layers that multiply coordinates, exactly."""
    spread: NonNegativeFloat = 1.0
    """σ, of the noise."""

    def _drawn(self, prompt: Prompt, arms: int = 0) -> Design:
        """The net for pairs, so many arms, and a last token that holds ξ, where w is read out."""
        dim, pairs = prompt.dim_in // 2, prompt.length - arms - 1
        self.require(prompt.dim_in % 2 == 1, "tokens (x, y, a or ξ), each with as many coordinates as x")
        self.require(pairs >= 0, "prompts that end with a token for each arm, and one more")
        names = ("x", "extra", "e", "root", "inverse", "b", "t", "w")
        flags = dict.fromkeys(("y", "one", "choice", "last"), 1)
        rows = Rows(**dict.fromkeys(names, dim), **flags, arm=arms, chosen=arms)
        before, after = self._layers(rows, self.largest(pairs))
        positions = [
            columns.registers(rows, dim, root=self.penalty / self.largest(pairs), inverse=1.0),
            rows.state(pairs, one=1.0),
            rows.state(arms, one=1.0, choice=1.0, arm=torch.eye(arms, dtype=torch.float64)),
            rows.state(1, one=1.0, last=1.0),
        ]
        return Design(
            rows, torch.cat([rows["x"], rows["y"], rows["extra"]]).T, rows["w"], torch.cat(positions),
            [before], [root_step(rows, self.attention)], after, self.attention, registers=dim,
        )  # fmt: skip

    def _problem(
        self, rng: torch.Generator
    ) -> tuple[Float[Tensor, "8 20 3"], Float[Tensor, "8 20"], Float[Tensor, "8 3"], Float[Tensor, "14 8 3"]]:
        """x, y and ξ, and the w drawn after every step of the root."""
        x, y = problem(rng, dim=3, pairs=20, bound=self.bound)
        noise = torch.randn(8, 3, generator=rng, dtype=torch.float64)
        second, moment = (each[:, -1] for each in prefixes(x, y, self.penalty))
        inverse = roots(second, self.largest(pairs=20), steps=14)[1]
        drawn = inverse @ (inverse @ moment[..., None] + self.spread * noise[..., None])
        return x, y, noise, drawn[..., 0]

    def _layers(self, rows: Rows, largest: float) -> tuple[Plan, list[Plan]]:
        """The layer that sums V / c and X'y, and the two that multiply by V⁻¹ᐟ²."""
        before = columns.add_squares(Plan(), rows, self.attention, "root", 1 / largest)
        passing(before, self.attention, [(rows["last"], rows["y"])], [(rows["x"], rows["b"])])
        first, second = Plan(), Plan()
        for plan, source, target in ((first, "b", "t"), (second, "t", "w")):
            columns.apply(plan, rows, self.attention, "inverse", source, target, largest**-0.5)
        return before, [first.add(self.spread * rows["extra"], rows["t"]), second]


class ThompsonDraw(Sampling, kind="thompson_draw"):
    """The weights w that Thompson sampling draws: pairs (x, y, 0), then (0, 0, ξ), where w is read out."""

    algorithm = "a draw from N(V⁻¹X'y, σ²V⁻¹), given its standard normal ξ"

    @override
    def design(self, prompt: Prompt) -> Design:
        self.require(
            prompt.dim_in == 2 * prompt.dim_out + 1, "tokens (x, y, ξ) and guesses of as many as x has"
        )
        return self._drawn(prompt)

    @override
    def example(self, rng: torch.Generator) -> Example:
        x, y, noise, drawn = self._problem(rng)
        return Example.at_last(tokens(x, y, noise[:, None]), drawn)


class ThompsonSampling(Sampling, kind="thompson_sampling"):
    """The arm that Thompson sampling plays: pairs (x, y, 0), arms (0, 0, a), then (0, 0, ξ), where it is read out.

    One-hot in the limit of the temperature: exactly, where the best arm leads by 745 temperatures. It is the action
    for one ξ; the distribution of actions is that over many.
    """

    algorithm = "Thompson sampling for linear bandits, given its standard normal ξ"
    temperature: float = Field(1e-6, ge=1e-6)
    """τ, of the softmax over arms."""

    @override
    def design(self, prompt: Prompt) -> Design:
        """Of the draw's, and one layer more, in which the last token attends to the arms by <a, w>."""
        drawn = self._drawn(prompt, prompt.dim_out)
        rows = drawn.rows
        others, hidden = among(rows, rows["choice"])
        # By as many temperatures as scores are, or the last token, whose ξ may be long, would hear itself.
        score = [(rows["w"] / self.temperature, rows["extra"]), (others / min(self.temperature, 1.0), hidden)]
        choose = Plan().head(score, [(rows["arm"], rows["chosen"])])
        kinds: list[Kind] = [*[self.attention for _ in drawn.plans], "softmax"]
        return replace(
            drawn, read_out=rows["chosen"], after=[*drawn.after, choose], attention=kinds
        )  # fmt: skip

    @override
    def example(self, rng: torch.Generator) -> Example:
        """Arms as long as it takes for the best to lead by enough temperatures, whatever w is after a step."""
        x, y, noise, drawn = self._problem(rng)
        arms = torch.randn(8, 4, 3, generator=rng, dtype=torch.float64)
        rewards = (arms @ drawn[..., None])[..., 0]
        best = rewards.topk(2).values
        needed = SURE * self.temperature / (best[..., 0] - best[..., 1]).amin(0)
        arms *= needed.clamp_min(1)[:, None, None]
        return Example.at_last(
            tokens(x, y, torch.cat([arms, noise[:, None]], 1)), one_hot(rewards.argmax(-1), 4).double()
        )
