"""The classical ways to cluster the points of a prompt. Answers are log-posteriors of the K labels at every point.

Lloyd's algorithm and the spectral method name clusters without a doubt, which a cross entropy would punish without
bound: here they answer with the posterior of the isotropic mixture that their clusters are, equal weights and one
variance, the mean square within. The most likely label is the one that they name.

Restarts start where k-means++ says (Arthur and Vassilvitskii 2007), of random numbers that all prompts share, so
that a prompt is solved alike alone and among others; after every step the best restart so far answers.
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

LEAST = 1e-6
"""The least variance of a cluster, over that of the prompt: a cluster of one point has none."""

SINGULAR = 1e-9
"""Of a matrix's eigenvalues, what rounding may make less than 0, and far more."""


class ClusteringSolver(Solver, allow_inf_nan=False):
    solves: ClassVar[type] = Clusters

    @abstractmethod
    def answers(self, problem: Clusters) -> Iterator[Float64[Tensor, "batch points K"]]:
        """The log-posteriors after step 1, 2, .., without end; the problem is in float64."""

    @override
    def predict(self, batch: Batch, steps: int) -> Float64[Tensor, "steps batch points K"]:
        problem = batch.to(batch.tokens.device, torch.float64).problem
        return torch.stack(list(islice(self.answers(problem), steps)))


class Restarted(ClusteringSolver):
    restarts: PositiveInt = 10
    """Starts, of which the best one answers."""
    seed: NonNegativeInt = 0
    """Of k-means++."""

    def starts(
        self, xs: Float64[Tensor, "batch points dim"], components: int
    ) -> Float64[Tensor, "batch R K dim"]:
        """K points, each as likely as its squared distance from those chosen before it is large."""
        draws = torch.rand(
            self.restarts, components, generator=stream(self.seed, "k-means++"), dtype=torch.float64
        ).to(xs.device)
        batch, points, _ = xs.shape
        weights = torch.ones(batch, self.restarts, points, dtype=xs.dtype, device=xs.device)
        nearest = torch.full_like(weights, torch.inf)
        chosen = []
        for k in range(components):
            reached = weights.cumsum(-1)
            index = (reached < draws[:, k, None] * reached[..., -1:]).sum(-1).clamp_max(points - 1)
            chosen.append(xs.gather(1, index[..., None].expand(-1, -1, xs.shape[-1])))
            nearest = torch.minimum(nearest, _distances(xs, chosen[-1][:, :, None])[..., 0])
            # Where all points are chosen already, any will do.
            weights = torch.where(nearest.sum(-1, keepdim=True) > 0, nearest, 1)
        return torch.stack(chosen, dim=2)


class Lloyd(Restarted, kind="lloyd"):
    """Lloyd's algorithm: points to the nearest centre, centres to the mean of their points, which is one step.

    He et al. 2025 prove that transformers do as well; it attains the minimax rate (Lu and Zhou 2016).
    """

    @override
    def answers(self, problem: Clusters) -> Iterator[Float64[Tensor, "batch points K"]]:
        yield from self.run(problem.xs, problem.components, _least(problem.xs))

    def run(
        self, xs: Float64[Tensor, "batch points dim"], components: int, least: Tensor
    ) -> Iterator[Float64[Tensor, "batch points K"]]:
        centres = self.starts(xs, components)
        while True:
            shares = _named(-_distances(xs, centres))
            counts = shares.sum(-2)[..., None]
            means = shares.transpose(-1, -2) @ xs[:, None] / counts.clamp_min(1)
            centres = torch.where(counts > 0, means, centres)
            squares = _distances(xs, centres)
            within = squares.amin(-1).mean(-1)
            best = within.argmin(-1)
            variance = torch.maximum(_of(best, within) / xs.shape[-1], least)
            yield (-_of(best, squares) / (2 * variance[:, None, None])).log_softmax(-1)


class ExpectationMaximisation(Restarted, kind="gaussian_mixture_em"):
    """EM for a Gaussian mixture (Dempster, Laird and Rubin 1977) from equal weights, the centres of k-means++ and the
    prompt's own variance. A step is an E-step and an M-step; the answer is the posterior under what that gives.

    With known weights and covariance its E-step is softmax attention over centres, which is the paper's construction.
    """

    covariance: Literal["isotropic", "spherical", "full"] = "isotropic"
    """One variance for all components, one for each, or a whole matrix for each."""
    floor: NonNegativeFloat = 0.01
    """Added to every variance, over that of the prompt. The likelihood is without bound where a component shrinks to
    a point, which the best of many restarts would find; 0 needs a covariance that cannot shrink. A full one needs 1e-9
    or more: of fewer points than coordinates it has no inverse.
    """

    @model_validator(mode="after")
    def _full_covariances_have_an_inverse(self) -> "ExpectationMaximisation":
        if self.covariance == "full" and self.floor < SINGULAR:
            raise ValueError(
                f"a full covariance of few points has no inverse with floor {self.floor:g}; write floor: 0.01, or "
                f"covariance: isotropic"
            )
        return self

    @override
    def answers(self, problem: Clusters) -> Iterator[Float64[Tensor, "batch points K"]]:
        xs = problem.xs
        centres = self.starts(xs, problem.components)
        floor = (self.floor * _size(xs))[:, None, None]
        weights = torch.full_like(centres[..., 0], 1 / problem.components)
        spread = _size(xs)[:, None, None].expand(weights.shape)
        posterior, _ = _posterior(_distances(xs, centres), xs.shape[-1], spread, weights)
        while True:
            shares = posterior.exp()
            counts = shares.sum(-2) + 10 * torch.finfo(xs.dtype).eps
            weights = counts / counts.sum(-1, keepdim=True)
            centres = shares.transpose(-1, -2) @ xs[:, None] / counts[..., None]
            if self.covariance == "full":
                posterior, likelihood = _full(xs, centres, shares, counts, weights, floor)
            else:
                squares = _distances(xs, centres)
                within = (shares * squares).sum(-2) / xs.shape[-1]
                if self.covariance == "isotropic":
                    spread = (within.sum(-1, keepdim=True) / xs.shape[1]).expand(counts.shape) + floor
                else:
                    spread = within / counts + floor
                posterior, likelihood = _posterior(squares, xs.shape[-1], spread, weights)
            yield _of(likelihood.argmax(-1), posterior)


class SpectralClustering(Lloyd, kind="spectral_clustering"):
    """The K - 1 largest principal components of the prompt: for two clusters the sign of the one (He et al. 2025,
    with Ndaoud 2018's rate), the same after every step; for more, Lloyd's algorithm on them.
    """

    @override
    def answers(self, problem: Clusters) -> Iterator[Float64[Tensor, "batch points K"]]:
        xs = problem.xs - problem.xs.mean(1, keepdim=True)
        kept = min(problem.components - 1, *xs.shape[1:])
        _, _, basis = torch.linalg.svd(xs, full_matrices=False)
        projected = xs @ basis[:, :kept].transpose(-1, -2)
        if problem.components > 2:
            yield from self.run(projected, problem.components, _least(xs))
        while True:
            along = projected[..., 0]
            centre = along.abs().mean(-1, keepdim=True)
            variance = (along - centre * along.sign()).square().mean(-1, keepdim=True)
            score = 2 * centre * along / torch.maximum(variance, _least(xs)[:, None])
            yield torch.stack([score, torch.zeros_like(score)], dim=-1).log_softmax(-1)


class MixturePosterior(ClusteringSolver, kind="mixture_posterior"):
    """The Bayes predictor that knows the mixture, the posterior of the labels (Bishop 2006, eq. 9.13):
    no predictor has less cross entropy, or errs less, but for what the free naming gives, log(K!)/N nats at most. The
    same after every step.
    """

    oracle: ClassVar[bool] = True

    @override
    def accepts(self, problem: Any) -> bool:
        return isinstance(problem, Clusters) and problem.centres is not None

    @override
    def room_below(self, task: Task) -> float | None:
        """log(K!)/N, what the free naming gives at most: the mean over the namings of a net's probabilities is a
        probability too, which the posterior is not worse than, and of K! numbers the largest is at most K! means.
        """
        return math.lgamma(task.components + 1) / task.points if isinstance(task, Clustering) else None

    @override
    def answers(self, problem: Clusters) -> Iterator[Float64[Tensor, "batch points K"]]:
        if problem.centres is None or problem.whitener is None or problem.log_weights is None:
            raise ValueError(f"{self.kind} knows no mixture of which tables are; write data: gaussian")
        off = problem.xs[:, :, None] - problem.centres[:, None]
        square = torch.einsum("bij,bnkj->bnki", problem.whitener, off).square().sum(-1)
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
    """Squared."""
    products = xs[:, None] @ centres.transpose(-1, -2)
    squares = xs.square().sum(-1)[:, None, :, None] + centres.square().sum(-1)[:, :, None] - 2 * products
    return squares.clamp_min(0)


def _named(scores: Float64[Tensor, "batch R points K"]) -> Float64[Tensor, "batch R points K"]:
    """1 for the highest score, the first of equals, and 0 for the others."""
    return torch.nn.functional.one_hot(scores.argmax(-1), scores.shape[-1]).to(scores.dtype)


def _of(best: Tensor, each: Float64[Tensor, "batch R *rest"]) -> Float64[Tensor, "batch *rest"]:
    """The best restart's, prompt by prompt."""
    return each[torch.arange(len(best), device=best.device), best]


def _size(xs: Float64[Tensor, "batch points dim"]) -> Float64[Tensor, " batch"]:
    """The variance of a coordinate; 1 where there is none."""
    size = (xs - xs.mean(1, keepdim=True)).square().mean((1, 2))
    return torch.where(size > 0, size, 1)


def _least(xs: Float64[Tensor, "batch points dim"]) -> Float64[Tensor, " batch"]:
    return LEAST * _size(xs)


def _posterior(
    squares: Float64[Tensor, "batch R points K"],
    dim: int,
    variance: Float64[Tensor, "batch R K"],
    weights: Float64[Tensor, "batch R K"],
) -> tuple[Float64[Tensor, "batch R points K"], Float64[Tensor, "batch R"]]:
    """log p(k | x), and the log-likelihood of the prompt, less a constant, for components of one variance each."""
    joint = (weights.log() - dim / 2 * variance.log())[..., None, :] - squares / (2 * variance[..., None, :])
    total = joint.logsumexp(-1, keepdim=True)
    return joint - total, total.sum((-1, -2))


def _full(
    xs: Float64[Tensor, "batch points dim"],
    centres: Float64[Tensor, "batch R K dim"],
    shares: Float64[Tensor, "batch R points K"],
    counts: Float64[Tensor, "batch R K"],
    weights: Float64[Tensor, "batch R K"],
    floor: Float64[Tensor, "batch 1 1"],
) -> tuple[Float64[Tensor, "batch R points K"], Float64[Tensor, "batch R"]]:
    """The same for components with a covariance matrix each, which `shares` of the points give."""
    off = xs[:, None, None] - centres[:, :, :, None]
    weighted = off * shares.transpose(-1, -2)[..., None]
    covariance = weighted.transpose(-1, -2) @ off / counts[..., None, None]
    eye = torch.eye(xs.shape[-1], dtype=xs.dtype, device=xs.device)
    factor = torch.linalg.cholesky(covariance + floor[..., None, None] * eye)
    white = torch.linalg.solve_triangular(factor, off.transpose(-1, -2), upper=False)
    volume = factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)
    joint = (weights.log() - volume)[..., None, :] - white.square().sum(-2).transpose(-1, -2) / 2
    total = joint.logsumexp(-1, keepdim=True)
    return joint - total, total.sum((-1, -2))
