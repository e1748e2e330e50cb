"""The classical ways to regress y on x from the pairs seen so far: outright, and step by step.

Before the first pair every one of them predicts 0. Fewer pairs than unknowns lead every one of them but
ridge and averaging to the solution of minimum norm.
"""

import math
from abc import abstractmethod
from collections.abc import Iterable
from itertools import islice, repeat
from typing import Any, ClassVar, Literal

import torch
from jaxtyping import Float
from pydantic import NonNegativeFloat, PositiveFloat
from torch import Tensor
from typing_extensions import override

from loopscale.core.prompt import Batch
from loopscale.solvers.base import Solver
from loopscale.solvers.prefixes import Prefixes, chunks
from loopscale.tasks.base import Task
from loopscale.tasks.regression import Pairs

REPRESENTED = ("representation_regression", "autoregression")
"""Tasks whose targets are linear in Φ, with Gaussian coefficients and Gaussian noise."""


class RegressionSolver(Solver, allow_inf_nan=False):
    """A method that is a sequence of weights in the eigenbasis of every prefix."""

    solves: ClassVar[type] = Pairs
    features: Literal["inputs", "representation"] = "inputs"
    """What y is regressed on: x, or the task's Φ(x). Φ a net has to learn, and the solver is told; as it is the same in
    all prompts, `oracle` does not count it.
    """

    @abstractmethod
    def iterates(self, prefixes: Prefixes) -> Iterable[Float[Tensor, "*dim_out batch points width"]]:
        """The weights after step 1, 2, .., without end, in the coordinates of `prefixes`."""

    @override
    def accepts(self, problem: Any) -> bool:
        return isinstance(problem, Pairs) and (
            self.features == "inputs" or problem.representation is not None
        )

    @override
    def predict(self, batch: Batch, steps: int) -> Float[Tensor, "steps batch points dim_out"]:
        problem = batch.problem
        inputs = problem.xs if self.features == "inputs" else problem.representation
        if inputs is None:
            raise ValueError(
                f"{self.kind} with features: representation, but the task has none; write features: inputs"
            )
        parts = [
            self._guesses(prefixes, steps, problem) for prefixes in chunks(inputs, problem.ys, problem.first)
        ]
        return torch.cat(parts, dim=1)

    def _guesses(
        self, prefixes: Prefixes, steps: int, problem: Pairs
    ) -> Float[Tensor, "steps batch points dim_out"]:
        weights = islice(self.told(problem).iterates(prefixes), steps)
        return torch.stack([prefixes.predict(some) for some in weights])

    def told(self, problem: Pairs) -> "RegressionSolver":
        """This solver with the settings that it takes from the problem filled in."""
        return self


class LeastSquares(RegressionSolver, kind="least_squares"):
    """The solution of minimum norm, X⁺y (Penrose 1956)."""

    @override
    def iterates(self, prefixes: Prefixes) -> Iterable[Float[Tensor, "*dim_out batch points width"]]:
        return repeat(_divided(prefixes.moment, prefixes.eigenvalues, prefixes.spanned))


class Ridge(RegressionSolver, kind="ridge"):
    """The minimum of |Xw - y|² + penalty |w|², both sums (Hoerl and Kennard 1970): at its default the Bayes predictor
    where y is linear.
    """

    penalty: NonNegativeFloat | None = None
    """λ; by default the task's own σ²/τ². With 0 it is least squares. On x where y is linear in Φ(x), no
    Bayes predictor.
    """

    @override
    def told(self, problem: Pairs) -> "Ridge":
        if self.penalty is not None:
            return self
        known = problem.weight_variance
        bayes = problem.noise_variance / known if known else math.inf  # nothing to learn: predict nothing
        return self.model_copy(update={"penalty": bayes})

    @override
    def room_below(self, task: Task) -> float | None:
        linear = ("linear_regression",) if self.features == "inputs" else REPRESENTED
        return 0.0 if self.penalty is None and task.kind in linear else None

    @override
    def iterates(self, prefixes: Prefixes) -> Iterable[Float[Tensor, "*dim_out batch points width"]]:
        assert self.penalty is not None, "`told` fills it in"
        return repeat(_divided(prefixes.moment, prefixes.eigenvalues + self.penalty, prefixes.spanned))


class Averaging(RegressionSolver, kind="averaging"):
    """w = scale · Σ y x / n, one gradient step from 0: a baseline of Garg et al. 2022. What least squares
    would be if the sample were its expectation.
    """

    scale: PositiveFloat = 1.0
    """1 in Garg et al. The best for n pairs, isotropic x, is n / (n + d + 1 + σ²/τ²): the bound
    `one_step_best`.
    """

    @override
    def iterates(self, prefixes: Prefixes) -> Iterable[Float[Tensor, "*dim_out batch points width"]]:
        return repeat(self.scale * prefixes.moment / prefixes.seen.clamp_min(1)[:, None])


class GradientDescent(RegressionSolver, kind="gradient_descent"):
    """Steps of one size down |Xw - y|² / 2n, from 0 (Gao et al. 2024, AlgoFormer, eq. 3; for a decoder eq. 5)."""

    rate: PositiveFloat | Literal["safe"] | None = None
    """The step η for the mean over the pairs seen, the same for all prompts; stable below 2n / λmax(X'X).

    By default every prefix has its own best fixed step for the worst case, 2n / (λmin + λmax) over the
    eigenvalues that are not zero, which contracts by (κ-1)/(κ+1) (the bound `gd_contraction`), and swings from
    side to side in the direction of λmax. `safe` is n / λmax, with which nothing swings: k steps of Newton's
    iteration from a multiple of the identity are 2^k of these.
    """

    @override
    def iterates(self, prefixes: Prefixes) -> Iterable[Float[Tensor, "*dim_out batch points width"]]:
        if self.rate is None:
            step = 2 / (prefixes.largest + prefixes.smallest)
        elif self.rate == "safe":
            step = 1 / prefixes.largest
        else:
            step = self.rate / prefixes.seen.clamp_min(1)[:, None]
        weights = torch.zeros_like(prefixes.moment)
        while True:
            weights = weights + step * (prefixes.moment - prefixes.eigenvalues * weights)
            yield weights


class Newton(RegressionSolver, kind="newton"):
    """w_k = M_k X'y with M_{k+1} = 2 M_k - M_k S M_k, Schulz 1933's iteration for the inverse of S
    (Gao et al. 2024, AlgoFormer, eq. 4).

    Its residual I - M_k S squares at every step, exactly; this is what is computed, for each eigenvalue, so
    the result is that of exact arithmetic for as many steps as one likes. The iteration as written, in
    floating point, doubles whatever rounding leaves in the null space of S at every step: with fewer pairs
    than unknowns it diverges after about 50.
    """

    start: Literal["spectral", "frobenius", "identity"] = "spectral"
    """M_0: S/|SS'|₂ (half the largest that eq. 4 prints, which never converges), S/|SS'|_F as in Fu et
    al.'s code, or I/|S|₂.

    From the multiple of the identity, k steps are exactly 2^k gradient steps of size 1/|S|₂.
    """

    @override
    def iterates(self, prefixes: Prefixes) -> Iterable[Float[Tensor, "*dim_out batch points width"]]:
        relative = prefixes.eigenvalues / prefixes.largest
        match self.start:
            case "spectral":
                ratio = relative.square()
            case "frobenius":
                ratio = relative.square() / relative.pow(4).sum(-1, keepdim=True).sqrt().clamp_min(1)
            case "identity":
                ratio = relative
        solution = _divided(prefixes.moment, prefixes.eigenvalues, prefixes.spanned)
        # log |I - M_0 S|, doubled at every step. Minus infinity (there already) stays so; zero (null space)
        # as well.
        log_residual = torch.log1p(-ratio)
        while True:
            log_residual = 2 * log_residual
            yield -torch.expm1(log_residual) * solution


class ConjugateGradient(RegressionSolver, kind="conjugate_gradient"):
    """Conjugate gradients on S w = X'y from 0 (Hestenes and Stiefel 1952): the least energy of all methods with as many
    gradients, for every prompt.
    """

    @override
    def iterates(self, prefixes: Prefixes) -> Iterable[Float[Tensor, "*dim_out batch points width"]]:
        weights = torch.zeros_like(prefixes.moment)
        residual = direction = prefixes.moment
        square = first = residual.square().sum(-1, keepdim=True)
        while True:
            # A prefix whose residual has reached rounding stays where it is; further steps would divide 0
            # by 0.
            going = square > 1e-30 * first
            image = prefixes.eigenvalues * direction
            step = _divided(square, (direction * image).sum(-1, keepdim=True), going)
            weights = weights + step * direction
            residual = residual - step * image
            previous, square = square, residual.square().sum(-1, keepdim=True)
            direction = residual + _divided(square, previous, going) * direction
            yield weights


def _divided(
    above: Float[Tensor, "*dim_out batch points #width"],
    below: Float[Tensor, "*#dim_out batch points #width"],
    where: Tensor,
) -> Float[Tensor, "*dim_out batch points #width"]:
    """above / below, and 0 elsewhere."""
    return torch.where(where, above / torch.where(where, below, 1), 0)
