"""AlgoFormer [@gao2024]: Newton steps of loops, and errors of sums that softmax attention reads from its scores."""

import math

from pydantic import NonNegativeFloat, PositiveFloat, PositiveInt
from typing_extensions import override

from loopscale.theory.bounds.base import Bound, InContext

SYSTEM = "AlgoFormer"


class SoftmaxLinear(Bound, kind="softmax_linear", titled="linear read-out of a softmax"):
    """Error of a score z that is read from a softmax: |(e^(cz) - 1)/c - z| <= c z² e^(c|z|)/2.

    A sink token keeps the denominator of the softmax constant.
    """

    claim = "<="
    of = "distance"
    source = "textbook: Taylor's remainder; used in @gao2024, lemmas A.2, A.4 and A.5"
    without_study = "concerns one score of a construction, and no trial records scores"
    small: PositiveFloat = 0.01
    """c, the factor of the queries."""
    score: float = 1.0
    """z, or the largest of several scores."""

    @override
    def value(self) -> float:
        return self.small * self.score**2 * math.exp(self.small * abs(self.score)) / 2


class LemmaA2Error(InContext, kind="lemma_a2_error", titled="softmax error of a gradient step"):
    """Largest error of Σ_j u_j <x_j, x>/N in a gradient step by two softmax heads.

    The keys are x/N, and a sink has key C. The error is at most U (c S² e^(cS/N)/(2N) + (3N + 2) S e^(2cS/N)
    e^(-C)). The first term has order c, because the second head removes only the constant. The second term is
    e^(-C) times the number of tokens (2N + 1 beside the sink), because the denominators of the heads differ.
    The step size η multiplies the error. The lemma states no rate.

    The lemma needs full attention. Under a causal mask the u_j would not come from the same weights. The
    causal version (lemma A.5) also attends to its own token: without a mask this adds a term that grows as
    1/c.

    In floating point, cancellation adds an error of about the precision divided by c. In float32 the best c
    is near 3e-4, and the slope in c needs float64.
    """

    claim = "<="
    of = "distance"
    source = "@gao2024, lemma A.2 (the construction); the rate derived"
    without_study = "concerns one step of a construction's weights, which no trained net has"
    small: PositiveFloat = 0.01
    """c, the factor of the queries."""
    sink: NonNegativeFloat = 30.0
    """C, the key of the sink."""
    score: PositiveFloat = 20.0
    """S, the largest |<x_j, x>|; the default is about |x|² for 20 coordinates."""
    residual: PositiveFloat = 1.0
    """U, the largest |u|: u is A x_j - y_j for a pair, and A x for the query."""

    @override
    def value(self) -> float:
        n, c, s = self.seen, self.small, self.score
        self.require(n >= 1, "N >= 1")
        taylor = c * s**2 * math.exp(c * s / n) / (2 * n)
        sink = (3 * n + 2) * s * math.exp(2 * c * s / n - self.sink)
        return self.residual * (taylor + sink)


class NewtonLoops(Bound, kind="newton_loops", titled="Newton steps of AlgoFormer"):
    """Newton steps of T AlgoFormer loops, in the limit of c and C: T. The residual is `newton_residual`.

    The construction needs full attention: for decoders the source names Newton (theorem 4.2) but proves
    descent. The start must be in the open interval that `newton_residual` describes.
    """

    claim = "="
    of = "steps"
    source = "@gao2024, theorem 4.1"
    without_study = "counts the steps of a construction; a trained net has no Newton steps to count"
    loops: PositiveInt = 10
    """T, the number of loops."""

    @override
    def value(self) -> float:
        return float(self.loops)
