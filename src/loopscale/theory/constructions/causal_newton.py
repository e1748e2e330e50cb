"""Newton's iteration in a decoder, at every query at once. Theorem 4.2 of @gao2024 names this
case and leaves it open.

The net reads x_1, y_1, x_2, y_2, ... under a causal mask. The state of x_i holds the columns of its own matrix M_i.
Let `S_i = (1/(2i-1)) Σ_{j<i} x_j x_j'`. Two blocks of relu attention compute `M_i <- 2 M_i - M_i S_i M_i`. Two more
blocks read `(1/(2i-1)) Σ_{j<i} y_j x_j'M_i x_i`. The result is exact up to a rounding error proportional to `bound`.
"""

import torch
from jaxtyping import Float
from pydantic import PositiveFloat
from torch import Tensor
from typing_extensions import override

from loopscale.core.prompt import Prompt
from loopscale.models.architecture import Kind
from loopscale.tasks.regression import Regression
from loopscale.theory.constructions.base import Construction, Design
from loopscale.theory.constructions.block_plan import BlockPlan, Form, StateRows
from loopscale.theory.constructions.causal import FLAGS, CausalPairTokens, random_scaled_regression
from loopscale.theory.constructions.example import Example, Stated
from loopscale.theory.constructions.newton import newton_iterates
from loopscale.theory.constructions.regression import interleaved_tokens

SYSTEM = "AlgoFormer"


class CausalNewton(Construction, kind="causal_newton"):
    """3 + 2 + 2 layers before, in and after the loop. For small d: 2d² heads, and (d + 1) d rows per token."""

    source = "derived; @gao2024, theorem 4.2, leaves it open"
    solves, every_query = Regression, True
    algorithm = "newton"
    start: PositiveFloat = 0.1
    """α: M_0 = α S_i. Must be below 2 / λmax(S_i)² for every prefix."""
    bound: PositiveFloat = 300.0
    """An upper bound on the coordinates of x, the entries of M S M, and the predictions."""

    @override
    def stated(self, prompt: Prompt) -> Stated:
        return Stated("nothing: the theorem names Newton, and its proof is gradient descent")

    @override
    def example(self, rng: torch.Generator) -> Example:
        # λmax(S_i) is below half of the largest |x|². So start · λmax(S_i)² is below 1.
        longest = min(2**0.5 * self.start**-0.25, self.bound)
        xs, ys = random_scaled_regression(rng, dim=3, points=10, longest=longest)
        outputs = prefix_newton_iterates(xs, ys, self.start, steps=12)
        return Example.at(slice(None, None, 2), interleaved_tokens(xs, ys), outputs)

    @override
    def design(self, prompt: Prompt) -> Design:
        self.require(prompt.dim_out == 1 < prompt.dim_in, "tokens that hold x's coordinates and then one y")
        dim = prompt.dim_in - 1
        entries = dim * dim
        rows = StateRows(x=dim, y=1, xc=dim, m=entries, q=entries, z=dim, out=1, **dict.fromkeys(FLAGS, 1))
        decoder, columns = CausalPairTokens(rows, prompt.length), range(dim)
        identity = torch.eye(dim, dtype=torch.float64).flatten()
        at_x = (torch.arange(prompt.length) % 2 == 0).double()[:, None]
        initial = self._images(rows, columns)
        initial.add(self.start * rows["q"] - rows["m"], rows["m"]).clear(rows["q"])
        before = [decoder.pairing(self.bound), initial]
        loop = [self._images(rows, columns), self._squared(decoder, columns)]
        after = [self._turned(decoder, columns), self._read(rows)]
        kinds: list[Kind] = ["softmax", "relu", "relu", "relu", "relu", "relu"]
        return decoder.design(before, loop, after, kinds, m=at_x * identity)

    @staticmethod
    def _column(rows: StateRows, name: str, k: int) -> Form:
        """Column k of a matrix, as a form."""
        dim = rows.sizes["x"]
        return rows.part(name, k * dim, dim)

    def _images(self, rows: StateRows, columns: range) -> BlockPlan:
        """q_k <- S_i m_k, for every column k."""
        plan = BlockPlan()
        for k in columns:
            plan.signed_pair(
                [(self._column(rows, "m", k), rows["xc"])], [(rows["xc"], self._column(rows, "q", k))]
            )
        return plan

    def _squared(self, decoder: CausalPairTokens, columns: range) -> BlockPlan:
        """m_k <- 2 (m_k - M q_k / 2), entry by entry, as products within a token. M is symmetric."""
        rows, (ahead, behind) = decoder.rows, decoder.distance_term()
        plan, half = BlockPlan(), rows["tau"] / 2  # attention divides by the tokens seen
        for k in columns:
            for r in columns:
                score = [(self._column(rows, "m", r), self._column(rows, "q", k))]
                entry = rows.part("m", k * len(columns) + r)
                plan.signed_pair(score, [(-half, entry)], [(self.bound * ahead, behind)])
        return plan.add(rows["m"], rows["m"]).clear(rows["q"])

    def _turned(self, decoder: CausalPairTokens, columns: range) -> BlockPlan:
        """z <- M x_i."""
        rows, (ahead, behind), plan = decoder.rows, decoder.distance_term(), BlockPlan()
        for k in columns:
            score = [(self._column(rows, "m", k), rows["x"])]
            plan.signed_pair(score, [(rows["tau"], rows.part("z", k))], [(self.bound * ahead, behind)])
        return plan

    def _read(self, rows: StateRows) -> BlockPlan:
        """out <- Σ_j y_j x_j'z, divided by the position. The token that holds x_j as xc also holds y_j."""
        return BlockPlan().signed_pair([(rows["z"], rows["xc"])], [(rows["y"], rows["out"])])


def prefix_newton_iterates(
    xs: Float[Tensor, "prompts points dim"],
    ys: Float[Tensor, "prompts points targets"],
    start: float,
    steps: int,
) -> Float[Tensor, "steps prompts points targets"]:
    """The prediction at each point, after every step of Newton's iteration on the points before it."""
    guesses = (
        newton_iterates(xs[:, :i], ys[:, :i], xs[:, i], start, steps, 1 / (2 * i + 1))
        for i in range(xs.shape[1])
    )
    return torch.stack(list(guesses), 2)
