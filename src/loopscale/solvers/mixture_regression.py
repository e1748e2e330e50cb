"""Mixtures of linear regressions: expectation maximisation (EM), and the oracle that knows the components.

The component of a query is unknown. So the prediction of its y is <Σ_k π_k β_k, x>. If the task asks for the
components, the prediction is the components. `ridge` and related solvers also accept these tasks. They fit the mean
component.
"""

from collections.abc import Iterator
from functools import cached_property
from itertools import islice, repeat
from typing import Any, ClassVar

import torch
from jaxtyping import Float
from pydantic import NonNegativeFloat, PositiveFloat, PositiveInt, model_validator
from torch import Tensor
from typing_extensions import override

from loopscale.core.prompt import Batch
from loopscale.core.seeds import stream
from loopscale.solvers.base import Solver
from loopscale.solvers.prefixes import prompts_per_chunk
from loopscale.tasks.base import Task
from loopscale.tasks.mixture_regression import Components, Mixture

JITTER = 1e-10
"""Added to all eigenvalues of a matrix, relative to their mean. Without a penalty few pairs give a singular matrix."""

TINY = 1e-150
"""Added to all eigenvalues, for the zero matrix of a prefix without pairs."""

CONVERGED = 1e-13
"""The largest change of a coefficient β, relative to 1 + |β|, at which EM stops."""


class MixtureSolver(Solver):
    """Shared by both solvers: predictions from estimated components, in the form that the task asks for."""

    solves: ClassVar[type] = Mixture

    @override
    def takes(self, problem: Any) -> bool:
        return isinstance(problem, Mixture | Components)

    def predictions(
        self, mixture: Mixture, components: Float[Tensor, "*steps batch points K dim"], asked: bool
    ) -> Float[Tensor, "*steps batch points dim_out"]:
        """The components (one of ±β), if the task asks for them. Otherwise the labels at the queries."""
        if asked:
            return (components[..., :1, :] if mixture.symmetric else components).flatten(-2)
        shares = torch.tensor(mixture.shares, dtype=torch.float64, device=components.device)
        mean = torch.einsum("...kd,k->...d", components, shares)
        return (mean * mixture.xs[:, mixture.first :].double()).sum(-1, keepdim=True)


class MixtureOracle(MixtureSolver, kind="mixture_oracle", titled="oracle of the mixture"):
    """The Bayes predictor that knows all components but no labels: β^OR of @jin2024.

    No predictor has a smaller error. The excess risk is 0.
    """

    oracle: ClassVar[bool] = True

    @override
    def room_below(self, task: Task) -> float | None:
        return 0.0 if task.kind == "mixture_regression" else None

    @override
    def predict(self, batch: Batch, steps: int) -> Float[Tensor, "steps batch points dim_out"]:
        asked = isinstance(batch.problem, Components)
        mixture: Mixture = batch.problem.mixture if asked else batch.problem
        points = mixture.xs.shape[1] - mixture.first
        known = mixture.components.double()[:, None].expand(-1, points, -1, -1)
        return self.predictions(mixture, known, asked).expand(steps, -1, -1, -1)


class MixtureEM(
    MixtureSolver, kind="mixture_em", titled="EM for mixtures of regressions", allow_inf_nan=False
):
    """EM from several starts on every prefix [@jin2024]. After each step the likeliest start predicts.

    The E-step is `r_ik ∝ π_k exp(-(y_i - <β_k, x_i>)² / 2σ²)`. The M-step minimises `Σ_i r_ik (y_i - <β, x_i>)² +
    penalty |β|²` for each component, exactly or by gradient steps. The solver knows π, σ and whether the components
    are ±β. The starts are draws from the prior, the same for every prompt.
    """

    restarts: PositiveInt = 4
    """The number of starts."""
    penalty: NonNegativeFloat | None = None
    """λ. By default the σ²/τ² of the task: EM climbs towards the posterior mode. 0 is maximum likelihood."""
    gradient_steps: PositiveInt | None = None
    """The number of gradient steps per M-step, from the previous estimate. `None` for the exact minimum."""
    rate: PositiveFloat | None = None
    """The step size for the mean over the pairs. `None` for 1/λmax, the largest rate that is stable for every r."""

    @model_validator(mode="after")
    def _rate_needs_gradient_steps(self) -> "MixtureEM":
        if self.rate is not None and self.gradient_steps is None:
            raise ValueError("rate needs gradient steps; write gradient_steps: 1, or remove rate")
        return self

    @classmethod
    @override
    def stepwise(cls, problem: Any) -> tuple[Solver, ...]:
        return (cls(),) if cls().takes(problem) else ()

    @override
    def predict(self, batch: Batch, steps: int) -> Float[Tensor, "steps batch points dim_out"]:
        asked = isinstance(batch.problem, Components)
        mixture: Mixture = batch.problem.mixture if asked else batch.problem
        pairs, dim = mixture.xs.shape[1:]
        queries, chunks = pairs - mixture.first, []
        prompts = prompts_per_chunk(self.restarts * len(mixture.shares) * queries * max(pairs, dim**2))
        for xs, ys in zip(mixture.xs.split(prompts), mixture.ys.split(prompts), strict=True):
            run = _EMRun(self, mixture, xs.double(), ys.double())
            chunks.append(torch.stack(list(islice(run.iterates(), steps))))
        return self.predictions(mixture, torch.cat(chunks, 1), asked)


class _EMRun:
    """EM on some prompts. Dimensions: b prompts, p queries, i pairs, k components, r starts, d coordinates."""

    def __init__(self, settings: MixtureEM, mixture: Mixture, xs: Tensor, ys: Tensor) -> None:
        pairs, self.settings, self.mixture = xs.shape[1], settings, mixture
        like = {"dtype": torch.float64, "device": xs.device}
        self.xs, self.ys = xs, ys
        self.before = torch.ones(pairs, pairs, **like).tril(-1)[mixture.first :]
        """[p, i], 1 where a query has seen a pair."""
        self.squares = (xs[..., None] * xs[..., None, :]).flatten(-2)
        self.products = ys[..., None] * xs
        self.log_shares = torch.tensor(mixture.shares, **like).log()
        bayes = mixture.label_noise_variance / mixture.component_variance
        self.penalty = bayes if settings.penalty is None else settings.penalty
        if settings.rate is not None:
            self.step_size = settings.rate / self.before.sum(1).clamp_min(1)[:, None, None, None]
        elif settings.gradient_steps is not None:
            grams = (self.before @ self.squares).unflatten(-1, (xs.shape[2], -1))
            largest = torch.linalg.eigvalsh(grams)[..., -1] + self.penalty
            self.step_size = 1 / torch.where(largest > 0, largest, 1)[:, :, None, None, None]

    @cached_property
    def whole_gram(self) -> Float[Tensor, "b p 1 1 squares"]:
        """The sum of x xᵀ over the pairs before each query, which no step changes."""
        return (self.before @ self.squares)[:, :, None, None]

    def iterates(self) -> Iterator[Float[Tensor, "b p k d"]]:
        """The components after step 1, 2, ..., without end. 0 before the first pair."""
        beta, seen = self.starts(), (self.before.sum(1) > 0).double()[:, None, None]
        posterior, _ = self.e_step(beta)
        while True:
            last, beta = beta, self.m_step(beta, posterior)
            posterior, likelihood = self.e_step(beta)
            best = likelihood.argmax(-1)[..., None, None, None].expand(-1, -1, 1, *beta.shape[3:])
            components = beta.gather(2, best).squeeze(2) * seen
            yield components
            if ((beta - last).abs() <= CONVERGED * (1 + beta.abs())).all():
                yield from repeat(components)

    def starts(self) -> Float[Tensor, "b p r k d"]:
        count, size = len(self.mixture.shares), (self.settings.restarts, self.xs.shape[2])
        parts = [
            torch.randn(*size, generator=stream("starts of EM", part), dtype=torch.float64)
            for part in range(count)
        ]
        drawn = torch.stack([parts[0], -parts[0]] if self.mixture.symmetric else parts, 1)
        drawn = self.mixture.component_variance**0.5 * drawn.to(self.xs.device)
        return drawn.expand(len(self.xs), len(self.before), -1, -1, -1)

    def e_step(self, beta: Tensor) -> tuple[Float[Tensor, "b p r k i"], Float[Tensor, "b p r"]]:
        """The posterior of the pairs before the query, and the objective: the log-likelihood minus the penalty."""
        variance = self.mixture.label_noise_variance
        residual = self.ys[:, None, None, None] - (beta.flatten(1, 3) @ self.xs.mT).unflatten(
            1, beta.shape[1:4]
        )
        score = self.log_shares[:, None] - residual.square() / (2 * variance)
        likelihood = (score.logsumexp(-2) * self.before[:, None]).sum(-1)
        sizes = beta.square().sum((-2, -1)) * (0.5 if self.mixture.symmetric else 1)
        posterior = score.softmax(-2) * self.before[:, None, None]
        return posterior, likelihood - self.penalty * sizes / (2 * variance)

    def m_step(self, beta: Tensor, posterior: Tensor) -> Float[Tensor, "b p r k d"]:
        """The components given the posterior. ±β are one estimate, from y and -y."""
        if self.mixture.symmetric:
            beta, posterior = beta[:, :, :, :1], posterior[:, :, :, :1] - posterior[:, :, :, 1:]
        moment = (posterior.flatten(1, 3) @ self.products).unflatten(1, beta.shape[1:4])
        if self.mixture.symmetric:
            gram = self.whole_gram
        else:
            gram = (posterior.flatten(1, 3) @ self.squares).unflatten(1, beta.shape[1:4])
        gram = gram.unflatten(-1, (beta.shape[-1], -1))
        if self.settings.gradient_steps is None:
            beta = self.ridge_solution(gram, moment)
        for _ in range(self.settings.gradient_steps or 0):
            slope = (gram @ beta[..., None]).squeeze(-1) + self.penalty * beta - moment
            beta = beta - self.step_size * slope
        return torch.cat([beta, -beta], 3) if self.mixture.symmetric else beta

    def ridge_solution(self, gram: Tensor, moment: Tensor) -> Tensor:
        level = self.penalty + JITTER * gram.diagonal(dim1=-2, dim2=-1).mean(-1) + TINY
        eye = torch.eye(gram.shape[-1], dtype=gram.dtype, device=gram.device)
        factor = torch.linalg.cholesky(gram + level[..., None, None] * eye)
        return torch.cholesky_solve(moment[..., None], factor).squeeze(-1)
