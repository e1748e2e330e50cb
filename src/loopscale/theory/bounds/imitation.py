"""Transformers that imitate an algorithm: sufficient numbers of layers, and distances in exact arithmetic."""

import math
from typing import Literal

from pydantic import NonNegativeFloat, PositiveFloat, PositiveInt
from typing_extensions import override

from loopscale.theory.bounds.base import Bound, InContext
from loopscale.theory.bounds.descent import InexactGd, WorstCase

WU_SOURCES = "(abstract, public reviews, and a talk's slides)"


class BaiRidgeLayers(WorstCase, kind="bai_ridge_layers"):
    """Layers of 3 heads that predict within ε of ridge, with one descent step per layer.

    ceil(2κ ln(B_x B_w/(2ε))) + 1, where κ is the condition number of X'X/N + λ. Without `kappa` the value
    uses the larger condition number of X'X.
    """

    claim = "<="
    of = "layers"
    source = "Bai et al. 2023, theorem 4 (the display from memory)"
    accuracy: PositiveFloat = 1e-3
    """ε, the error of the prediction."""
    product: PositiveFloat = 1.0
    """B_x B_w, where |x| <= B_x and the norm of the solution is at most B_w/2."""

    @override
    def value(self) -> float:
        self.require(
            2 * self.accuracy < self.product, "accuracy < product / 2: else the prediction 0 suffices"
        )
        return math.ceil(2 * self.condition_number * math.log(self.product / (2 * self.accuracy))) + 1.0


class LayersForSteps(Bound):
    """Layers that suffice for a number of steps of an algorithm."""

    claim = "<="
    of = "layers"
    loops: PositiveInt = 10
    """Number of steps of the algorithm."""


class BaiIcgd(LayersForSteps, kind="bai_icgd"):
    """Layers for L steps of descent on a convex loss, each within ε (see `inexact_gd`): L + 1."""

    source = "Bai et al. 2023, theorem 13"

    @override
    def value(self) -> float:
        return self.loops + 1.0


class FuNewton(LayersForSteps, kind="fu_newton"):
    """Layers for exactly k Newton steps: k + 8, with 3 layers of preparation and 5 of read-out.

    The construction uses ReLU, full attention and O(d) hidden units. Trained networks are faster: *each* of
    the layers 3 to 9 does about 3 steps. The slides instead state 3 steps by layer 8.
    """

    source = "Fu et al. 2023, theorem 5.1"

    @override
    def value(self) -> float:
        return self.loops + 8.0


class OswaldGd(LayersForSteps, kind="oswald_gd"):
    """Layers of linear attention for K gradient steps: K."""

    source = "von Oswald et al. 2023, proposition 1 (from memory)"

    @override
    def value(self) -> float:
        return float(self.loops)


class DeepIcgdLayers(LayersForSteps, kind="deep_icgd_layers"):
    """Layers for T descent steps on a network of N layers: (2N + 4) T with ReLU attention, 4T with softmax.

    N of the 2N + 4 layers are element-wise multiplication layers, which are not transformer layers. The
    softmax statement rests on universal approximation: it states no number of heads and does not depend on N.

    The activation of the network and its derivative must be Lipschitz and four times differentiable. ReLU is
    not. The paper itself was not read.
    """

    source = f"Wu et al. 2024, theorems 1 (ReLU) and 6 (softmax) {WU_SOURCES}"
    loops: PositiveInt = 10
    """T, the number of descent steps."""
    trained_layers: PositiveInt = 2
    """N, the number of layers of the network that is trained in context."""
    attention: Literal["relu", "softmax", "linear"] = "relu"
    """The paper has no statement for linear attention."""

    @override
    def value(self) -> float:
        self.require(self.attention != "linear", "relu or softmax attention")
        per_step = 2 * self.trained_layers + 4 if self.attention == "relu" else 4
        return float(per_step * self.loops)


class DeepIcgd(Bound, kind="deep_icgd"):
    """Distance to exact descent after T steps on a network: (ε/β) ((1 + ηβ)^T - 1), ε = h^(-1/2) for h heads.

    This is `inexact_gd` for a smooth loss, with h ~ ε^-2 heads in each layer. The distance grows
    exponentially in T and falls slowly in h. The statement covers ReLU attention only: for softmax the paper
    states no number of heads. The conditions on the network are those of `deep_icgd_layers`.
    """

    claim = "<="
    of = "distance"
    source = f"Wu et al. 2024, theorem 1 and its corollary {WU_SOURCES}, logarithms dropped"
    hidden_constant = True
    loops: PositiveInt = 10
    """T, the number of descent steps."""
    rate: PositiveFloat = 0.1
    """η, the step size."""
    smoothness: PositiveFloat = 1.0
    """β, the Lipschitz constant of the gradient."""
    heads: PositiveInt = 4
    """h, the number of heads of each layer."""
    attention: Literal["relu", "softmax", "linear"] = "relu"
    """The statement covers `relu` only."""

    @override
    def value(self) -> float:
        self.require(self.attention == "relu", "relu attention")
        accuracy = self.heads**-0.5
        return InexactGd(
            loops=self.loops, rate=self.rate, accuracy=accuracy, smoothness=self.smoothness
        ).value()


class SoftmaxLinear(Bound, kind="softmax_linear"):
    """Error of a score z that is read from a softmax: |(e^(cz) - 1)/c - z| <= c z² e^(c|z|)/2.

    A sink token keeps the denominator of the softmax constant.
    """

    claim = "<="
    of = "distance"
    source = "textbook: Taylor's remainder; used in AlgoFormer, lemmas A.2, A.4 and A.5"
    small: PositiveFloat = 0.01
    """c, the factor of the queries."""
    score: float = 1.0
    """z, or the largest of several scores."""

    @override
    def value(self) -> float:
        return self.small * self.score**2 * math.exp(self.small * abs(self.score)) / 2


class LemmaA2Error(InContext, kind="lemma_a2_error"):
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
    source = "AlgoFormer, lemma A.2 (the construction); the rate derived"
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


class NewtonLoops(Bound, kind="newton_loops"):
    """Newton steps of T AlgoFormer loops, in the limit of c and C: T. The residual is `newton_residual`.

    The construction needs full attention: for decoders the source names Newton (theorem 4.2) but proves
    descent. The start must be in the open interval that `newton_residual` describes.
    """

    claim = "="
    of = "steps"
    source = "AlgoFormer, theorem 4.1"
    loops: PositiveInt = 10
    """T, the number of loops."""

    @override
    def value(self) -> float:
        return float(self.loops)
