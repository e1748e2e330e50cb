"""Newton's iteration in a decoder, at every query at once: what AlgoFormer's theorem 4.2 names and leaves open.

The net reads x_1, y_1, x_2, y_2, .. under a causal mask. The state of x_i keeps the columns of a matrix M_i of its own;
with S_i = (1/(2i-1)) Σ_{j<i} x_j x_j', two blocks of relu attention make M_i <- 2 M_i - M_i S_i M_i out of it, and two
more read (1/(2i-1)) Σ_{j<i} y_j x_j'M_i x_i. Exact; what is seen of it in floating point is rounding times `bound`.
"""

import torch
from jaxtyping import Float
from pydantic import PositiveFloat
from torch import Tensor
from typing_extensions import override

from loopscale.core.prompt import Prompt
from loopscale.tasks.regression import Regression
from loopscale.theory.constructions.base import Construction, Design
from loopscale.theory.constructions.causal import FLAGS, Decoder, at_queries, problem
from loopscale.theory.constructions.example import Example
from loopscale.theory.constructions.newton import iteration
from loopscale.theory.constructions.plan import Form, Plan, Rows
from loopscale.theory.constructions.regression import paired


class CausalNewton(Construction, kind="causal_newton"):
    """d + 1 columns of d rows a token, 2d² heads: for small d. Three layers before the loop, two in it, two after."""

    source = "derived; Gao et al. 2024 (AlgoFormer), theorem 4.2, leaves it open"
    solves, every_query = Regression, True
    algorithm = "newton"
    start: PositiveFloat = 0.1
    """α: M_0 = α S_i, below 2 / λmax(S_i)² for every prefix."""
    bound: PositiveFloat = 300.0
    """What no coordinate of x, of M S M, nor a prediction exceeds in size."""

    @override
    def example(self, rng: torch.Generator) -> Example:
        # λmax(S_i) is below half the largest |x|², and so start · λmax(S_i)² below 1.
        xs, ys = problem(rng, dim=3, points=10, longest=min(2**0.5 * self.start**-0.25, self.bound))
        return at_queries(paired(xs, ys), iterations(xs, ys, self.start, steps=12))

    @override
    def design(self, prompt: Prompt) -> Design:
        self.require(prompt.dim_out == 1 < prompt.dim_in, "tokens of x's coordinates and then one y")
        dim = prompt.dim_in - 1
        rows = Rows(x=dim, y=1, xc=dim, m=dim * dim, q=dim * dim, z=dim, out=1, **dict.fromkeys(FLAGS, 1))
        decoder, columns = Decoder(rows, prompt.length), range(dim)
        start = torch.eye(dim, dtype=torch.float64).flatten()
        at_x = (torch.arange(prompt.length) % 2 == 0).double()[:, None]
        begun = (
            self._images(rows, columns).add(self.start * rows["q"] - rows["m"], rows["m"]).clear(rows["q"])
        )
        return Design(
            rows, torch.cat([rows["x"], rows["y"]]).T, rows["out"], decoder.positions(m=at_x * start),
            [decoder.paired(self.bound), begun], [self._images(rows, columns), self._squared(decoder, columns)],
            [self._turned(decoder, columns), self._read(rows)],
            attention=["softmax", "relu", "relu", "relu", "relu", "relu"], causal=True, normaliser="position",
        )  # fmt: skip

    @staticmethod
    def _column(rows: Rows, name: str, k: int) -> Form:
        """Column k of a matrix, as a form."""
        dim = rows.sizes["x"]
        return rows.part(name, k * dim, dim)

    def _images(self, rows: Rows, columns: range) -> Plan:
        """q_k <- S_i m_k."""
        plan = Plan()
        for k in columns:
            plan.pair([(self._column(rows, "m", k), rows["xc"])], [(rows["xc"], self._column(rows, "q", k))])
        return plan

    def _squared(self, decoder: Decoder, columns: range) -> Plan:
        """m_k <- 2 (m_k - M q_k / 2), entry by entry as products within a token; M is symmetric."""
        rows, (far, near) = decoder.rows, decoder.own()
        plan, half = Plan(), rows["tau"] / 2  # attention divides by the tokens seen
        for k in columns:
            for r in columns:
                score = [(self._column(rows, "m", r), self._column(rows, "q", k))]
                entry = rows.part("m", k * len(columns) + r)
                plan.pair(score, [(-half, entry)], [(self.bound * far, near)])
        return plan.add(rows["m"], rows["m"]).clear(rows["q"])

    def _turned(self, decoder: Decoder, columns: range) -> Plan:
        """z <- M x_i."""
        rows, (far, near), plan = decoder.rows, decoder.own(), Plan()
        for k in columns:
            score = [(self._column(rows, "m", k), rows["x"])]
            plan.pair(score, [(rows["tau"], rows.part("z", k))], [(self.bound * far, near)])
        return plan

    def _read(self, rows: Rows) -> Plan:
        """out <- the sum over pairs of y_j x_j'z; y_j stands on the token that holds x_j as xc."""
        return Plan().pair([(rows["z"], rows["xc"])], [(rows["y"], rows["out"])])


def iterations(
    xs: Float[Tensor, "prompts points dim"],
    ys: Float[Tensor, "prompts points targets"],
    start: float,
    steps: int,
) -> Float[Tensor, "steps prompts points targets"]:
    """What Newton's iteration on the points before each one guesses at it, after every step, with S_i as above."""
    each = (
        iteration(xs[:, :i], ys[:, :i], xs[:, i], start, steps, 1 / (2 * i + 1)) for i in range(xs.shape[1])
    )
    return torch.stack(list(each), 2)
