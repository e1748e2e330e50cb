"""How far constructed weights are from the algorithm they imitate, in exact arithmetic.

In floats, cancellation adds about the precision over c: in float32 c near 3e-4 is best, and the slope takes float64.
"""

import math

from pydantic import NonNegativeFloat, PositiveFloat, PositiveInt
from typing_extensions import override

from loopscale.theory.bounds.base import Bound, InContext


class SoftmaxLinear(Bound, kind="softmax_linear"):
    """|(e^(cz) - 1)/c - z| <= c z² e^(c|z|)/2: a score z off a softmax whose denominator a sink holds constant."""

    claim = "<="
    of = "distance"
    source = "textbook: Taylor's remainder; used in AlgoFormer, lemmas A.2, A.4 and A.5"
    small: PositiveFloat = 0.01
    """c, what the queries are multiplied by."""
    score: float = 1.0
    """z, or the largest of several."""

    @override
    def value(self) -> float:
        return self.small * self.score**2 * math.exp(self.small * abs(self.score)) / 2


class LemmaA2Error(InContext, kind="lemma_a2_error"):
    """One gradient step as two softmax heads, keys x/N, and a sink of key C: the largest error of Σ_j u_j <x_j, x>/N.

    U (c S² e^(cS/N)/(2N) + (3N + 2) S e^(2cS/N) e^(-C)): order c for the second head removes the constant alone, and
    e^(-C) times the tokens, 2N + 1 beside the sink, for the denominators differ. The step η multiplies it. The lemma
    states no rate. It needs full attention: under a causal mask u_j would not be of one and the same weights, and the
    causal version (lemma A.5) also sees its own token, a term that grows as 1/c unless it is masked.
    """

    claim = "<="
    of = "distance"
    source = "AlgoFormer, lemma A.2 (the construction); the rate derived"
    small: PositiveFloat = 0.01
    """c, what the queries are multiplied by."""
    sink: NonNegativeFloat = 30.0
    """C."""
    score: PositiveFloat = 20.0
    """S, the largest |<x_j, x>|; by default near |x|² for 20 coordinates."""
    residual: PositiveFloat = 1.0
    """U, the largest |u|: of A x_j - y_j over the pairs, and of A x at the query."""

    @override
    def value(self) -> float:
        n, c, s = self.seen, self.small, self.score
        self.require(n >= 1, "N >= 1")
        taylor = c * s**2 * math.exp(c * s / n) / (2 * n)
        sink = (3 * n + 2) * s * math.exp(2 * c * s / n - self.sink)
        return self.residual * (taylor + sink)


class NewtonLoops(Bound, kind="newton_loops"):
    """T loops are T of Newton's steps, in the limit of c and C; what they leave is `newton_residual`.

    With full attention: for decoders the source names Newton (theorem 4.2) and proves descent. Eq. 4 allows a start of
    2/|SS'|, from which the largest direction never converges; the interval is open.
    """

    claim = "="
    of = "steps"
    source = "AlgoFormer, theorem 4.1"
    loops: PositiveInt = 10
    """T, iterations."""

    @override
    def value(self) -> float:
        return float(self.loops)
