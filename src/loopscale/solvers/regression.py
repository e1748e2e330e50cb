"""Classical regression of y on x from the visible pairs: closed forms and iterations.

Before the first pair every solver predicts 0. With fewer pairs than unknowns every solver except ridge and averaging
converges to the solution of minimum norm.
"""

import math
from abc import abstractmethod
from collections.abc import Iterable, Mapping
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
"""Tasks with targets that are linear in Φ, with Gaussian coefficients and Gaussian noise."""


class RegressionSolver(Solver, allow_inf_nan=False):
    """A method that gives a sequence of weights in the eigenbasis of every prefix."""

    solves: ClassVar[type] = Pairs
    features: Literal["inputs", "representation"] = "inputs"
    """The regressors: x, or the Φ(x) of the task. A net has to learn Φ, and the solver knows Φ. This does not make
    the solver an oracle, because Φ is the same in all prompts."""

    instances: ClassVar[tuple[Mapping[str, Any], ...]] = ()
    """The settings of the instances that go step by step; empty for closed forms."""

    @classmethod
    @override
    def stepwise(cls, problem: Any) -> tuple[Solver, ...]:
        if not isinstance(problem, Pairs):
            return ()
        features = "inputs" if problem.representation is None else "representation"
        return tuple(cls.model_validate({"features": features, **settings}) for settings in cls.instances)

    @abstractmethod
    def iterates(self, prefixes: Prefixes) -> Iterable[Float[Tensor, "*dim_out batch points width"]]:
        """The weights after step 1, 2, ..., without end, in the coordinates of `prefixes`."""

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
                f"{self.kind} has features: representation, but the task has no representation; write features: inputs"
            )
        parts = [
            self._guesses(prefixes, steps, problem) for prefixes in chunks(inputs, problem.ys, problem.first)
        ]
        return torch.cat(parts, dim=1)

    def _guesses(
        self, prefixes: Prefixes, steps: int, problem: Pairs
    ) -> Float[Tensor, "steps batch points dim_out"]:
        weights = islice(self.resolved(problem).iterates(prefixes), steps)
        return torch.stack([prefixes.predict(step_weights) for step_weights in weights])

    def resolved(self, problem: Pairs) -> "RegressionSolver":
        """This solver, with default settings taken from the problem."""
        return self


class LeastSquares(RegressionSolver, kind="least_squares"):
    """The least-squares solution of minimum norm, X⁺y [@penrose1956]."""

    @override
    def iterates(self, prefixes: Prefixes) -> Iterable[Float[Tensor, "*dim_out batch points width"]]:
        return repeat(_divided(prefixes.moment, prefixes.eigenvalues, prefixes.spanned))


class Ridge(RegressionSolver, kind="ridge"):
    """Ridge regression: the minimum of |Xw - y|² + penalty |w|² [@hoerl1970]. Both terms are sums.

    With the default penalty and y linear in the regressors this is the Bayes predictor.
    """

    penalty: NonNegativeFloat | None = None
    """λ. By default the σ²/τ² of the task. 0 is least squares. On x the default is not Bayes if y is linear in Φ(x)."""

    @override
    def resolved(self, problem: Pairs) -> "Ridge":
        if self.penalty is not None:
            return self
        variance = problem.weight_variance
        bayes = problem.noise_variance / variance if variance else math.inf  # the weights are known to be 0
        return self.model_copy(update={"penalty": bayes})

    @override
    def room_below(self, task: Task) -> float | None:
        linear = ("linear_regression",) if self.features == "inputs" else REPRESENTED
        return 0.0 if self.penalty is None and task.kind in linear else None

    @override
    def iterates(self, prefixes: Prefixes) -> Iterable[Float[Tensor, "*dim_out batch points width"]]:
        assert self.penalty is not None, "`resolved` fills it in"
        return repeat(_divided(prefixes.moment, prefixes.eigenvalues + self.penalty, prefixes.spanned))


class Averaging(RegressionSolver, kind="averaging"):
    """w = scale · Σ_i y_i x_i / n, one gradient step from 0: a baseline of @garg2022.

    This is least squares with X'X/n replaced by its expectation for isotropic x.
    """

    scale: PositiveFloat = 1.0
    """1 in @garg2022. The best scale for n pairs, isotropic x, is n / (n + d + 1 + σ²/τ²) (bound `one_step_best`)."""

    @override
    def iterates(self, prefixes: Prefixes) -> Iterable[Float[Tensor, "*dim_out batch points width"]]:
        return repeat(self.scale * prefixes.moment / prefixes.seen.clamp_min(1)[:, None])


class GradientDescent(RegressionSolver, kind="gradient_descent"):
    """Gradient steps of one size on |Xw - y|² / 2n, from 0 [@gao2024, eq. 3; decoder: eq. 5]."""

    instances = ({}, {"rate": "safe"})
    rate: PositiveFloat | Literal["safe"] | None = None
    """η, the step size for the mean over the visible pairs, the same for all prompts. Stable below 2n / λmax(X'X).

    By default every prefix has its own best fixed step for the worst case, 2n / (λmin + λmax) over the nonzero
    eigenvalues. The error then contracts by (κ-1)/(κ+1) per step (the bound `gd_contraction`) and oscillates in the
    direction of λmax. `safe` is n / λmax, without oscillation. k steps of Newton's iteration from a multiple of the
    identity equal 2^k such steps."""

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


class Newton(RegressionSolver, kind="newton", titled="Newton's method"):
    """Newton's iteration w_k = M_k X'y, M_{k+1} = 2 M_k - M_k S M_k [@schulz1933; @gao2024, eq. 4].

    The residual I - M_k S squares at every step. The solver computes this residual for each eigenvalue, so that any
    number of steps is exact. The iteration as written doubles rounding errors in the null space of S at every step.
    With fewer pairs than unknowns it diverges after about 50 steps.
    """

    instances = ({"start": "spectral"}, {"start": "frobenius"}, {"start": "identity"})
    start: Literal["spectral", "frobenius", "identity"] = "spectral"
    """M_0. spectral: S/|SS'|₂, half of the largest value in eq. 4, which never converges. frobenius: S/|SS'|_F, as
    in the code of @fu2023 identity: I/|S|₂. From `identity`, k steps equal 2^k gradient steps of size 1/|S|₂."""

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
        # log |I - M_0 S|, doubled at every step. Minus infinity (converged) and 0 (null space) stay the same.
        log_residual = torch.log1p(-ratio)
        while True:
            log_residual = 2 * log_residual
            yield -torch.expm1(log_residual) * solution


class ConjugateGradient(RegressionSolver, kind="conjugate_gradient"):
    """Conjugate gradients on S w = X'y from 0 [@hestenes1952].

    For every prompt no method with the same number of gradients has a smaller energy.
    """

    instances = ({},)

    @override
    def iterates(self, prefixes: Prefixes) -> Iterable[Float[Tensor, "*dim_out batch points width"]]:
        weights = torch.zeros_like(prefixes.moment)
        residual = direction = prefixes.moment
        square = first = residual.square().sum(-1, keepdim=True)
        while True:
            # A prefix with a residual of the size of rounding errors stops. Further steps would divide 0 by 0.
            going = square > 1e-30 * first
            image = prefixes.eigenvalues * direction
            step = _divided(square, (direction * image).sum(-1, keepdim=True), going)
            weights = weights + step * direction
            residual = residual - step * image
            previous, square = square, residual.square().sum(-1, keepdim=True)
            direction = residual + _divided(square, previous, going) * direction
            yield weights


def _divided(
    numerator: Float[Tensor, "*dim_out batch points #width"],
    denominator: Float[Tensor, "*#dim_out batch points #width"],
    where: Tensor,
) -> Float[Tensor, "*dim_out batch points #width"]:
    """numerator / denominator, and 0 elsewhere."""
    return torch.where(where, numerator / torch.where(where, denominator, 1), 0)
