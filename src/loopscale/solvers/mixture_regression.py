"""Mixtures of linear regressions: expectation maximisation (EM), and the oracle that knows the components.

The label of a query's y is unknown, so the guess at it is <Σ π_k β_k, x>; where the components are asked for, they are
the guess themselves. `ridge` and its kin, which fit the mean component as if there were one, take these tasks as well.
"""

from collections.abc import Iterator
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
from loopscale.tasks.base import Task
from loopscale.tasks.mixture_regression import Components, Mixture

AT_ONCE = 2**23
"""Entries of a stack of residuals, or of moments, 64 MiB: so many prompts are taken at a time that it stays below."""

JITTER = 1e-10
"""Of a matrix's mean eigenvalue, added to all: without a penalty, one of few pairs has no inverse."""

TINY = 1e-150
"""Added to all eigenvalues: one of no pairs at all has none to take a part of."""

STILL = 1e-13
"""The change of a coefficient, over 1 + itself, from which on a run of EM stays where it is."""


class MixtureSolver(Solver):
    """What both have: a guess at the components, told as the task wants it."""

    solves: ClassVar[type] = Mixture

    @override
    def takes(self, problem: Any) -> bool:
        return isinstance(problem, Mixture | Components)

    def told(
        self, mixture: Mixture, components: Float[Tensor, "*steps batch points K dim"], asked: bool
    ) -> Float[Tensor, "*steps batch points dim_out"]:
        """The guesses: components, of ±β one, or labels at the queries."""
        if asked:
            return (components[..., :1, :] if mixture.symmetric else components).flatten(-2)
        shares = torch.tensor(mixture.shares, dtype=torch.float64, device=components.device)
        mean = torch.einsum("...kd,k->...d", components, shares)
        return (mean * mixture.xs[:, mixture.first :].double()).sum(-1, keepdim=True)


class MixtureOracle(MixtureSolver, kind="mixture_oracle"):
    """The Bayes predictor of one who knows every component, and not which of them made a y: β^OR of Jin et al. 2024.

    No predictor at all has less error; its excess is 0.
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
        return self.told(mixture, known, asked).expand(steps, -1, -1, -1)


class MixtureEM(MixtureSolver, kind="mixture_em", allow_inf_nan=False):
    """EM from several starts, on every prefix; of all starts the one that is likeliest after a step is its guess.

    A step: r_ik ∝ π_k exp(-(y_i - <β_k, x_i>)² / 2σ²), and then for each component the minimum of
    Σ_i r_ik (y_i - <β, x_i>)² + penalty |β|², outright or by steps of gradient descent (Jin et al. 2024). It is told
    π, σ and whether the components are ±β. The starts are draws from the prior, the same for every prompt.
    """

    restarts: PositiveInt = 4
    """Starts."""
    penalty: NonNegativeFloat | None = None
    """λ; by default the task's own σ²/τ², which makes the goal the posterior's mode. 0 is maximum likelihood."""
    gradient_steps: PositiveInt | None = None
    """Of an M-step, from where the last one ended; `None` for the exact minimum."""
    rate: PositiveFloat | None = None
    """Of a gradient step on the mean over the pairs; `None` for the largest that is stable whatever r is, 1/λmax."""

    @model_validator(mode="after")
    def _rate_is_a_gradient_steps(self) -> "MixtureEM":
        if self.rate is not None and self.gradient_steps is None:
            raise ValueError(
                "rate is of gradient steps, and there are none; write gradient_steps: 1, or no rate"
            )
        return self

    @override
    def predict(self, batch: Batch, steps: int) -> Float[Tensor, "steps batch points dim_out"]:
        asked = isinstance(batch.problem, Components)
        mixture: Mixture = batch.problem.mixture if asked else batch.problem
        pairs, dim = mixture.xs.shape[1:]
        queries, found = pairs - mixture.first, []
        each = self.restarts * len(mixture.shares) * queries * max(pairs, dim**2)
        for xs, ys in zip(
            *(part.split(max(1, AT_ONCE // each)) for part in (mixture.xs, mixture.ys)), strict=True
        ):
            run = _Run(self, mixture, xs.double(), ys.double())
            found.append(torch.stack(list(islice(run.iterates(), steps))))
        return self.told(mixture, torch.cat(found, 1), asked)


class _Run:
    """EM on some prompts. Letters: b prompts, p queries, i pairs, k components, r starts, d coordinates."""

    def __init__(self, settings: MixtureEM, mixture: Mixture, xs: Tensor, ys: Tensor) -> None:
        pairs, self.settings, self.mixture = xs.shape[1], settings, mixture
        like = {"dtype": torch.float64, "device": xs.device}
        self.xs, self.ys = xs, ys
        self.before = torch.ones(pairs, pairs, **like).tril(-1)[mixture.first :]
        """[p, i], 1 where a query has seen a pair."""
        self.squares = (xs[..., None] * xs[..., None, :]).flatten(-2)
        self.products = ys[..., None] * xs
        self.log_shares = torch.tensor(mixture.shares, **like).log()
        known = mixture.label_noise_variance / mixture.component_variance
        self.penalty = known if settings.penalty is None else settings.penalty
        if settings.rate is not None:
            self.size = settings.rate / self.before.sum(1).clamp_min(1)[:, None, None, None]
        elif settings.gradient_steps is not None:
            every = (self.before @ self.squares).unflatten(-1, (xs.shape[2], -1))
            most = torch.linalg.eigvalsh(every)[..., -1] + self.penalty
            self.size = 1 / torch.where(most > 0, most, 1)[:, :, None, None, None]

    def iterates(self) -> Iterator[Float[Tensor, "b p k d"]]:
        """The components after step 1, 2, .., without end; 0 before the first pair."""
        beta, seen = self.starts(), (self.before.sum(1) > 0).double()[:, None, None]
        posterior, _ = self.expected(beta)
        while True:
            last, beta = beta, self.maximised(beta, posterior)
            posterior, likelihood = self.expected(beta)
            best = likelihood.argmax(-1)[..., None, None, None].expand(-1, -1, 1, *beta.shape[3:])
            found = beta.gather(2, best).squeeze(2) * seen
            yield found
            if ((beta - last).abs() <= STILL * (1 + beta.abs())).all():
                yield from repeat(found)

    def starts(self) -> Float[Tensor, "b p r k d"]:
        count, size = len(self.mixture.shares), (self.settings.restarts, self.xs.shape[2])
        parts = [
            torch.randn(*size, generator=stream("starts of EM", part), dtype=torch.float64)
            for part in range(count)
        ]
        drawn = torch.stack([parts[0], -parts[0]] if self.mixture.symmetric else parts, 1)
        drawn = self.mixture.component_variance**0.5 * drawn.to(self.xs.device)
        return drawn.expand(len(self.xs), len(self.before), -1, -1, -1)

    def expected(self, beta: Tensor) -> tuple[Float[Tensor, "b p r k i"], Float[Tensor, "b p r"]]:
        """The E-step, of pairs before the query; and the goal: log likelihood less the penalty's share."""
        variance = self.mixture.label_noise_variance
        off = self.ys[:, None, None, None] - (beta.flatten(1, 3) @ self.xs.mT).unflatten(1, beta.shape[1:4])
        score = self.log_shares[:, None] - off.square() / (2 * variance)
        likelihood = (score.logsumexp(-2) * self.before[:, None]).sum(-1)
        sizes = beta.square().sum((-2, -1)) * (0.5 if self.mixture.symmetric else 1)
        posterior = score.softmax(-2) * self.before[:, None, None]
        return posterior, likelihood - self.penalty * sizes / (2 * variance)

    def maximised(self, beta: Tensor, posterior: Tensor) -> Float[Tensor, "b p r k d"]:
        """The M-step; ±β are found as one, from y and -y."""
        if self.mixture.symmetric:
            beta, posterior = beta[:, :, :, :1], posterior[:, :, :, :1] - posterior[:, :, :, 1:]
        moment = (posterior.flatten(1, 3) @ self.products).unflatten(1, beta.shape[1:4])
        if self.mixture.symmetric:
            gram = (self.before @ self.squares)[:, :, None, None]
        else:
            gram = (posterior.flatten(1, 3) @ self.squares).unflatten(1, beta.shape[1:4])
        gram = gram.unflatten(-1, (beta.shape[-1], -1))
        if self.settings.gradient_steps is None:
            beta = self.solved(gram, moment)
        for _ in range(self.settings.gradient_steps or 0):
            slope = (gram @ beta[..., None]).squeeze(-1) + self.penalty * beta - moment
            beta = beta - self.size * slope
        return torch.cat([beta, -beta], 3) if self.mixture.symmetric else beta

    def solved(self, gram: Tensor, moment: Tensor) -> Tensor:
        level = self.penalty + JITTER * gram.diagonal(dim1=-2, dim2=-1).mean(-1) + TINY
        eye = torch.eye(gram.shape[-1], dtype=gram.dtype, device=gram.device)
        factor = torch.linalg.cholesky(gram + level[..., None, None] * eye)
        return torch.cholesky_solve(moment[..., None], factor).squeeze(-1)
