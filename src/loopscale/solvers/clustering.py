"""Classical clustering of the points of a prompt. Predictions are log-posteriors of the K labels at every point.

Lloyd's algorithm and the spectral method give hard clusters, and the cross entropy of hard clusters has no bound. Here
these solvers return the posterior of an isotropic mixture with equal weights and one variance, the mean square within
the clusters. The most likely label is the hard cluster.

Restarts begin from k-means++ [@arthur2007]. All prompts share the random numbers, so that the result
for a prompt does not depend on its batch. After every step the best restart so far gives the prediction.
"""

import math
from abc import abstractmethod
from collections.abc import Iterator
from itertools import islice
from typing import Any, ClassVar, Literal

import torch
from jaxtyping import Float64
from pydantic import NonNegativeFloat, NonNegativeInt, PositiveInt, model_validator
from torch import Tensor
from typing_extensions import override

from loopscale.core.prompt import Batch
from loopscale.core.seeds import stream
from loopscale.solvers.base import Solver
from loopscale.tasks.base import Task
from loopscale.tasks.clustering import Clustering
from loopscale.tasks.clusters import Clusters

LEAST_VARIANCE = 1e-6
"""The smallest variance of a cluster, relative to the variance of the prompt. A cluster of one point has variance 0."""

SINGULAR = 1e-9
"""The smallest `floor` of a full covariance. Rounding makes eigenvalues negative by much less than this."""


class ClusteringSolver(Solver, allow_inf_nan=False):
    solves: ClassVar[type] = Clusters

    @abstractmethod
    def answers(self, problem: Clusters) -> Iterator[Float64[Tensor, "batch points K"]]:
        """The log-posteriors after step 1, 2, ..., without end. The problem is in float64."""

    @override
    def predict(self, batch: Batch, steps: int) -> Float64[Tensor, "steps batch points K"]:
        problem = batch.to(batch.tokens.device, torch.float64).problem
        return torch.stack(list(islice(self.answers(problem), steps)))


class RestartedClustering(ClusteringSolver):
    restarts: PositiveInt = 10
    """The number of starts. The best start gives the prediction."""
    seed: NonNegativeInt = 0
    """The seed of k-means++."""

    def starts(
        self, xs: Float64[Tensor, "batch points dim"], components: int
    ) -> Float64[Tensor, "batch R K dim"]:
        """K points. Each is drawn with probability proportional to its squared distance from the earlier ones."""
        draws = torch.rand(
            self.restarts, components, generator=stream(self.seed, "k-means++"), dtype=torch.float64
        ).to(xs.device)
        batch, points, _ = xs.shape
        weights = torch.ones(batch, self.restarts, points, dtype=xs.dtype, device=xs.device)
        nearest = torch.full_like(weights, torch.inf)
        chosen = []
        for k in range(components):
            cumulative = weights.cumsum(-1)
            index = (cumulative < draws[:, k, None] * cumulative[..., -1:]).sum(-1).clamp_max(points - 1)
            chosen.append(xs.gather(1, index[..., None].expand(-1, -1, xs.shape[-1])))
            nearest = torch.minimum(nearest, _distances(xs, chosen[-1][:, :, None])[..., 0])
            # If all points are chosen already, the choice is arbitrary.
            weights = torch.where(nearest.sum(-1, keepdim=True) > 0, nearest, 1)
        return torch.stack(chosen, dim=2)


class Lloyd(RestartedClustering, kind="lloyd", titled="Lloyd's algorithm"):
    """Lloyd's algorithm: a step assigns points to the nearest centre, and moves centres to the mean of their points.

    @he2025em prove that transformers do as well. Lloyd's algorithm attains the minimax rate [@lu2016].
    """

    @classmethod
    @override
    def stepwise(cls, problem: Any) -> tuple[Solver, ...]:
        return (cls(),) if isinstance(problem, Clusters) else ()

    @override
    def answers(self, problem: Clusters) -> Iterator[Float64[Tensor, "batch points K"]]:
        yield from self.run(problem.xs, problem.components, _least_variance(problem.xs))

    def run(
        self, xs: Float64[Tensor, "batch points dim"], components: int, least: Tensor
    ) -> Iterator[Float64[Tensor, "batch points K"]]:
        centres = self.starts(xs, components)
        while True:
            shares = _one_hot(-_distances(xs, centres))
            counts = shares.sum(-2)[..., None]
            means = shares.transpose(-1, -2) @ xs[:, None] / counts.clamp_min(1)
            centres = torch.where(counts > 0, means, centres)
            squares = _distances(xs, centres)
            within = squares.amin(-1).mean(-1)
            best = within.argmin(-1)
            variance = torch.maximum(_of_restart(best, within) / xs.shape[-1], least)
            yield (-_of_restart(best, squares) / (2 * variance[:, None, None])).log_softmax(-1)


class GaussianMixtureEM(RestartedClustering, kind="gaussian_mixture_em", titled="EM for Gaussian mixtures"):
    """EM for a Gaussian mixture [@dempster1977].

    EM starts from equal weights, the centres of k-means++ and the variance of the prompt. A step is an E-step and an
    M-step. The prediction is the posterior under the new parameters. With known weights and covariance the E-step is
    softmax attention over centres, as in the paper's construction.
    """

    covariance: Literal["isotropic", "spherical", "full"] = "isotropic"
    """isotropic: one variance for all components. spherical: one for each. full: one matrix for each."""
    floor: NonNegativeFloat = 0.01
    """Added to every variance, relative to the variance of the prompt. Without a floor the likelihood is unbounded:
    a component can shrink to a point. 0 needs `isotropic`. A full covariance needs 1e-9 or more, because few points
    give a singular matrix."""

    @model_validator(mode="after")
    def _full_covariances_have_an_inverse(self) -> "GaussianMixtureEM":
        if self.covariance == "full" and self.floor < SINGULAR:
            raise ValueError(
                f"with floor {self.floor:g} a full covariance of few points has no inverse; write floor: 0.01, or "
                f"covariance: isotropic"
            )
        return self

    @classmethod
    @override
    def stepwise(cls, problem: Any) -> tuple[Solver, ...]:
        return (cls(),) if isinstance(problem, Clusters) else ()

    @override
    def answers(self, problem: Clusters) -> Iterator[Float64[Tensor, "batch points K"]]:
        xs = problem.xs
        centres = self.starts(xs, problem.components)
        floor = (self.floor * _variance(xs))[:, None, None]
        weights = torch.full_like(centres[..., 0], 1 / problem.components)
        variances = _variance(xs)[:, None, None].expand(weights.shape)
        posterior, _ = _posterior(_distances(xs, centres), xs.shape[-1], variances, weights)
        while True:
            shares = posterior.exp()
            counts = shares.sum(-2) + 10 * torch.finfo(xs.dtype).eps
            weights = counts / counts.sum(-1, keepdim=True)
            centres = shares.transpose(-1, -2) @ xs[:, None] / counts[..., None]
            if self.covariance == "full":
                posterior, likelihood = _full_posterior(xs, centres, shares, counts, weights, floor)
            else:
                squares = _distances(xs, centres)
                within = (shares * squares).sum(-2) / xs.shape[-1]
                if self.covariance == "isotropic":
                    variances = (within.sum(-1, keepdim=True) / xs.shape[1]).expand(counts.shape) + floor
                else:
                    variances = within / counts + floor
                posterior, likelihood = _posterior(squares, xs.shape[-1], variances, weights)
            yield _of_restart(likelihood.argmax(-1), posterior)


class SpectralClustering(Lloyd, kind="spectral_clustering"):
    """Spectral clustering on the K - 1 leading principal components [@he2025spectral; rate of @ndaoud2018].

    For two clusters: the sign of the component, the same after every step. For more clusters: Lloyd's algorithm on
    the components.
    """

    @classmethod
    @override
    def stepwise(cls, problem: Any) -> tuple[Solver, ...]:
        return ()  # the components are no steps

    @override
    def answers(self, problem: Clusters) -> Iterator[Float64[Tensor, "batch points K"]]:
        xs = problem.xs - problem.xs.mean(1, keepdim=True)
        kept = min(problem.components - 1, *xs.shape[1:])
        _, _, basis = torch.linalg.svd(xs, full_matrices=False)
        projected = xs @ basis[:, :kept].transpose(-1, -2)
        if problem.components > 2:
            yield from self.run(projected, problem.components, _least_variance(xs))
        while True:
            along = projected[..., 0]
            centre = along.abs().mean(-1, keepdim=True)
            variance = (along - centre * along.sign()).square().mean(-1, keepdim=True)
            score = 2 * centre * along / torch.maximum(variance, _least_variance(xs)[:, None])
            yield torch.stack([score, torch.zeros_like(score)], dim=-1).log_softmax(-1)


class MixturePosterior(ClusteringSolver, kind="mixture_posterior", titled="posterior of the mixture"):
    """The Bayes predictor that knows the mixture: the posterior of the labels [@bishop2006, eq. 9.13].

    No predictor has a smaller cross entropy or more correct labels, except through the free naming of the clusters.
    The free naming gains at most log(K!)/N nats. The same after every step.
    """

    oracle: ClassVar[bool] = True

    @override
    def accepts(self, problem: Any) -> bool:
        return isinstance(problem, Clusters) and problem.centres is not None

    @override
    def room_below(self, task: Task) -> float | None:
        """log(K!)/N, the largest gain from the free naming of clusters.

        The mean over all namings of a net's probabilities is a probability, and the posterior is at least as good.
        The largest of K! numbers is at most K! times their mean.
        """
        return math.lgamma(task.components + 1) / task.points if isinstance(task, Clustering) else None

    @override
    def answers(self, problem: Clusters) -> Iterator[Float64[Tensor, "batch points K"]]:
        if problem.centres is None or problem.whitener is None or problem.log_weights is None:
            raise ValueError(
                f"{self.kind} needs the mixture of the points, and tables have none; write data: gaussian"
            )
        deviations = problem.xs[:, :, None] - problem.centres[:, None]
        square = torch.einsum("bij,bnkj->bnki", problem.whitener, deviations).square().sum(-1)
        if problem.tails is None:
            density = -square / 2
        else:
            density = -(problem.tails + problem.at_work) / 2 * torch.log1p(square / (problem.tails - 2))
        answer = (density + problem.log_weights[:, None]).log_softmax(-1)
        while True:
            yield answer


def _distances(
    xs: Float64[Tensor, "batch points dim"], centres: Float64[Tensor, "batch R K dim"]
) -> Float64[Tensor, "batch R points K"]:
    """Squared distances."""
    products = xs[:, None] @ centres.transpose(-1, -2)
    squares = xs.square().sum(-1)[:, None, :, None] + centres.square().sum(-1)[:, :, None] - 2 * products
    return squares.clamp_min(0)


def _one_hot(scores: Float64[Tensor, "batch R points K"]) -> Float64[Tensor, "batch R points K"]:
    """1 for the highest score (the first of equal scores), 0 for the others."""
    return torch.nn.functional.one_hot(scores.argmax(-1), scores.shape[-1]).to(scores.dtype)


def _of_restart(best: Tensor, values: Float64[Tensor, "batch R *rest"]) -> Float64[Tensor, "batch *rest"]:
    """The values of the best restart of each prompt."""
    return values[torch.arange(len(best), device=best.device), best]


def _variance(xs: Float64[Tensor, "batch points dim"]) -> Float64[Tensor, " batch"]:
    """The variance of a coordinate. 1 if the variance is 0."""
    variance = (xs - xs.mean(1, keepdim=True)).square().mean((1, 2))
    return torch.where(variance > 0, variance, 1)


def _least_variance(xs: Float64[Tensor, "batch points dim"]) -> Float64[Tensor, " batch"]:
    return LEAST_VARIANCE * _variance(xs)


def _posterior(
    squares: Float64[Tensor, "batch R points K"],
    dim: int,
    variance: Float64[Tensor, "batch R K"],
    weights: Float64[Tensor, "batch R K"],
) -> tuple[Float64[Tensor, "batch R points K"], Float64[Tensor, "batch R"]]:
    """log p(k | x), and the log-likelihood of the prompt up to a constant, for components with one variance each."""
    joint = (weights.log() - dim / 2 * variance.log())[..., None, :] - squares / (2 * variance[..., None, :])
    total = joint.logsumexp(-1, keepdim=True)
    return joint - total, total.sum((-1, -2))


def _full_posterior(
    xs: Float64[Tensor, "batch points dim"],
    centres: Float64[Tensor, "batch R K dim"],
    shares: Float64[Tensor, "batch R points K"],
    counts: Float64[Tensor, "batch R K"],
    weights: Float64[Tensor, "batch R K"],
    floor: Float64[Tensor, "batch 1 1"],
) -> tuple[Float64[Tensor, "batch R points K"], Float64[Tensor, "batch R"]]:
    """log p(k | x) and the log-likelihood, with the covariance matrices of the points weighted by `shares`."""
    deviations = xs[:, None, None] - centres[:, :, :, None]
    weighted = deviations * shares.transpose(-1, -2)[..., None]
    covariance = weighted.transpose(-1, -2) @ deviations / counts[..., None, None]
    eye = torch.eye(xs.shape[-1], dtype=xs.dtype, device=xs.device)
    factor = torch.linalg.cholesky(covariance + floor[..., None, None] * eye)
    white = torch.linalg.solve_triangular(factor, deviations.transpose(-1, -2), upper=False)
    volume = factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)
    joint = (weights.log() - volume)[..., None, :] - white.square().sum(-2).transpose(-1, -2) / 2
    total = joint.logsumexp(-1, keepdim=True)
    return joint - total, total.sum((-1, -2))
