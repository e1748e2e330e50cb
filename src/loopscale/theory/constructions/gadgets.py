"""What constructions are put together from: choosing a token, hiding one, and the mean of v_j (k_j·q_i) over pairs.

A softmax sees sums of products only through exp(s) = 1 + s + s²/2 + ...; heads of opposite signs and values
cancel the even terms, so that a scale c on the scores leaves an error that falls with c² or c⁴.
"""

import math
from dataclasses import dataclass
from typing import Literal

from loopscale.theory.constructions.plan import Form, Move, Plan, Rows, Term

SURE = 800.0
"""exp(-746) is 0 in float64: a key so much lower in score than another has exactly no weight."""

Variant = Literal["mirrored", "sink", "relu", "linear"]
Order = Literal[1, 2, 4]

EXPANSIONS: dict[int, tuple[tuple[float, float], ...]] = {
    1: ((1, 1), (0, -1)),
    2: ((1, 1 / 2), (-1, -1 / 2)),
    4: ((1, 2 / 3), (-1, -2 / 3), (2, -1 / 12), (-2, 1 / 12)),
}
"""By order: heads (κ, a) with Σ a exp(κz) = z + O(z²), O(z³), O(z⁵)."""
SEEN: dict[int, tuple[float, ...]] = {
    1: (1e-3, 3e-4, 1e-4, 3e-5, 1e-5),
    2: (3e-3, 2e-3, 1e-3, 5e-4),
    4: (1e-2, 7e-3, 5e-3, 3e-3),
}
"""By order: scales at which the error shows, since coarser ones are not small and finer ones below rounding."""


def nearest(
    rows: Rows, lag: float | Form = 0.0, one: str = "one", p: str = "p", p2: str = "p2"
) -> list[Term]:
    """The score -SURE (p_i - lag - p_j)², less what no key changes: highest where p_j is nearest to p_i - lag."""
    behind = lag * rows[one] if isinstance(lag, int | float) else lag
    return [(2 * SURE * (rows[p] - behind), rows[p]), (-SURE * rows[one], rows[p2])]


def hidden(rows: Rows, flag: Form, by: float = SURE) -> Term:
    """The score -by at keys whose flag is 1."""
    return -by * rows["one"], flag


@dataclass(frozen=True)
class Mean:
    """How a block adds the mean over N pairs of v_j (k_j·q_i): exactly, or in the limit of a small scale.

    mirrored: every key is there again with the opposite sign on a token whose value is 0. The denominators of
    opposite heads are then equal, and the mean comes out whatever N is. sink: one more token with key and value 0
    has a score of depth + log N, and so nearly all the weight (the choice of AlgoFormer's lemma A.2).
    relu, linear: exact; keys that are to be left out must be 0.
    """

    variant: Variant
    pairs: int
    order: Order = 2
    scale: float = 1e-4
    """c, on the scores."""
    depth: float = 28.0
    """C, of the sink."""

    def add(self, plan: Plan, query: Form, key: Form, move: Move, others: list[Term]) -> Plan:
        """Add it to a block. `others` are terms of the score that choose keys (not for linear attention)."""
        source, target = move
        match self.variant:
            case "linear":
                return plan.head([(query, key)], [(source / self.pairs, target)])
            case "relu":
                return plan.pair([(query, key)], [(source / self.pairs, target)], others)
        for factor, weight in EXPANSIONS[self.order]:
            value = weight * self._height * source
            plan.head([(factor * self.scale * query, key), *others], [(value, target)])
        return plan

    @property
    def _height(self) -> float:
        if self.variant == "mirrored":
            return 2 / self.scale
        return math.exp(self.depth) / self.scale  # a key's weight is exp(-C) / N

    def sink(self, rows: Rows) -> list[Term]:
        """What the sink's score is, where there is one."""
        if self.variant != "sink":
            return []
        return [((self.depth + math.log(max(self.pairs, 1))) * rows["one"], rows["sink"])]
