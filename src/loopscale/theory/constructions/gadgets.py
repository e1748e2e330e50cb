"""Parts of constructions: attend to one position, hide keys, and compute the mean of v_j (k_j·q_i) over pairs.

Softmax attention depends on a score s through exp(s) = 1 + s + s²/2 + ... Heads with opposite signs and values cancel
the even terms. With scores scaled by c the remaining error is O(c²), or O(c⁴) with four heads.
"""

import math
from dataclasses import dataclass
from typing import Literal

from pydantic import PositiveFloat

from loopscale.theory.constructions.base import Construction
from loopscale.theory.constructions.block_plan import BlockPlan, Form, Move, StateRows, Term
from loopscale.theory.constructions.example import Limit

UNDERFLOW = 800.0
"""A gap between scores after which softmax gives weight exactly 0 in float64: exp(-746) is 0."""

Variant = Literal["mirrored", "sink", "relu", "linear"]
ErrorOrder = Literal[1, 2, 4]

EXPANSIONS: dict[int, tuple[tuple[float, float], ...]] = {
    1: ((1, 1), (0, -1)),
    2: ((1, 1 / 2), (-1, -1 / 2)),
    4: ((1, 2 / 3), (-1, -2 / 3), (2, -1 / 12), (-2, 1 / 12)),
}
"""By order: heads (κ, a) with Σ a exp(κz) = z + O(z²), z + O(z³) or z + O(z⁵)."""
MEASURABLE_SCALES: dict[int, tuple[float, ...]] = {
    1: (1e-3, 3e-4, 1e-4, 3e-5, 1e-5),
    2: (3e-3, 2e-3, 1e-3, 5e-4),
    4: (1e-2, 7e-3, 5e-3, 3e-3),
}
"""By order: scales c at which the order is measured. At coarser scales higher orders show, at finer scales rounding."""


class SoftmaxSums(Construction):
    """Settings of constructions in which softmax attention can sum products; see `MeanOfProducts`."""

    expansion: ErrorOrder = 4
    """The order of the softmax error in `scale`. Order 1, as printed by @gao2024, needs the sink."""
    scale: PositiveFloat = 1e-4
    """c, the factor of the softmax scores."""
    depth: PositiveFloat = 28.0
    """C, the score of the sink without log N."""

    def summed_by(self, variant: Variant, pairs: int = 1) -> "MeanOfProducts":
        """The heads that average products over a number of pairs."""
        return MeanOfProducts(variant, pairs, self.expansion, self.scale, self.depth)

    def scale_limit(self, coarser: float = 1.0) -> Limit:
        """The limit of small scales. Where scores are small, the order of the error shows at coarser scales."""
        scales = tuple(coarser * scale for scale in MEASURABLE_SCALES[self.expansion])
        return Limit("scale", self.expansion, scales)


class AnySums(SoftmaxSums):
    """Settings of constructions that sum products in any of the four ways."""

    variant: Variant = "mirrored"
    """How products are summed: with softmax (mirrored, sink) as `scale` goes to 0, or exactly (relu, linear)."""

    @property
    def order(self) -> ErrorOrder | None:
        """The order of the error in `scale`. `None` if products are summed exactly."""
        return self.expansion if self.variant in ("mirrored", "sink") else None


def nearest_position(rows: StateRows, lag: float = 0.0, p: str = "p", p2: str = "p2") -> list[Term]:
    """The score -UNDERFLOW (p_i - lag - p_j)², up to a constant of the query. The nearest p_j has the highest score.

    `p` and `p2` name the rows that hold a position and its square.
    """
    shifted = rows[p] - lag * rows["one"]
    return [(2 * UNDERFLOW * shifted, rows[p]), (-UNDERFLOW * rows["one"], rows[p2])]


def hide_keys(rows: StateRows, flag: Form, by: float = UNDERFLOW) -> Term:
    """The score -by at keys whose flag is 1."""
    return -by * rows["one"], flag


@dataclass(frozen=True)
class MeanOfProducts:
    """Heads that compute (1/N) Σ_j v_j (k_j·q_i) over N pairs.

    mirrored: every key also stands, with the opposite sign, on a token with value 0. Heads of opposite sign then have
    the same softmax denominator, and the weights do not depend on N. Accurate for a small scale.
    sink: one more token, with key and value 0, has the score depth + log N and takes nearly all of the softmax weight
    [@gao2024, lemma A.2]. Accurate for a small scale and a large depth.
    relu, linear: exact. Excluded keys must be 0.
    """

    variant: Variant
    pairs: int
    order: ErrorOrder = 2
    scale: float = 1e-4
    """c, the factor of the scores."""
    depth: float = 28.0
    """C, the score of the sink without log N."""

    def add(self, plan: BlockPlan, query: Form, key: Form, move: Move, selection: list[Term]) -> BlockPlan:
        """Add the heads to a plan. `selection` holds score terms that select keys; linear attention ignores them."""
        source, target = move
        match self.variant:
            case "linear":
                return plan.head([(query, key)], [(source / self.pairs, target)])
            case "relu":
                return plan.signed_pair([(query, key)], [(source / self.pairs, target)], selection)
        for factor, weight in EXPANSIONS[self.order]:
            value = weight * self._gain * source
            plan.head([(factor * self.scale * query, key), *selection], [(value, target)])
        return plan

    @property
    def _gain(self) -> float:
        """The inverse of scale times softmax weight: a key of the sink variant has the weight exp(-C) / N."""
        return (2 if self.variant == "mirrored" else math.exp(self.depth)) / self.scale

    def sink(self, rows: StateRows) -> list[Term]:
        """The score of the sink, if the variant has one."""
        if self.variant != "sink":
            return []
        return [((self.depth + math.log(max(self.pairs, 1))) * rows["one"], rows["sink"])]
