"""Principal components in context: a prompt has N points, and k query tokens ask for the leading eigenvectors.

Sources: theorem 7 of @he2024 in @liu2025slides, which is theorem 2.1 of @he2025spectral. The papers score against the
eigenvectors of the prompt's own XX', so `target` is `sample` by default. Their assumption 1 fixes the eigenvalues of
the same matrix, so `spectrum_of` is `sample` too. Both settings also accept `population`. The covariance is that of
the points around 0, divided by N.

The error of a component is the squared distance up to sign. Predicting zero costs 1, a random unit vector costs up to
2. (The authors' code uses 1 - cos with the arbitrary sign from `eigh`, which makes half of all targets arbitrary.)

Floor: 0 for the sample's eigenvectors, which the solver `eigendecomposition` reaches. N points do not determine the
population's eigenvectors, so their floor is above 0. No solver here reaches this floor: the sample's eigenvectors are
an estimate, and other estimates may be better.

The paper reads the k vectors from one column, which fixes N. Here each of k query tokens answers with one vector. A
flag coordinate distinguishes a query from the points and from the other queries. An easier task asks for at most as
many eigenvectors as the task has.
"""

from typing import Literal

import torch
from jaxtyping import Float
from pydantic import Field, PositiveInt, model_validator
from torch import Tensor
from torch.nn.functional import normalize, pad
from typing_extensions import override

from loopscale.core.prompt import Batch, Prompt
from loopscale.tasks.base import Errors, FloorRule, Measures, Prediction
from loopscale.tasks.eigenvectors import (
    Eigenvectors,
    leading,
    mean_cosine,
    squared_distance,
    vector_agreement,
)
from loopscale.tasks.point_clouds import PointCloud, mean_and_size
from loopscale.tasks.regression import only_first
from loopscale.tasks.tables import check_size, excerpts
from loopscale.tasks.tensors import bases, constant

Whose = Literal["sample", "population"]


class PrincipalComponentAnalysis(PointCloud, kind="pca", titled="PCA"):
    components: PositiveInt = 2
    """k, eigenvectors to predict, with one query per eigenvector."""
    dim: PositiveInt = 8
    """d, coordinates of a point."""
    points: PositiveInt = 32
    """N, points in the prompt."""
    gap: float = Field(default=0.3, gt=0, lt=1)
    """Δ, the relative gap. Eigenvalue i+1 is 1 - Δ times eigenvalue i, for i up to k. Later eigenvalues equal
    eigenvalue k+1. The mean is 1, or less in a sample with fewer points than coordinates (see `spectrum`)."""
    spectrum_of: Whose = "sample"
    """sample: every prompt's own covariance has these eigenvalues, and Gaussian points are conditioned on them.
    population: the distribution has these eigenvalues, and the gap of the sample varies between prompts."""
    target: Whose = "sample"
    """Eigenvectors to predict: of the sample or of the population. Tables only have a sample."""
    auxiliary: Literal["none", "start"] = "none"
    """Content of the auxiliary matrix P. none: nothing. start: the start vectors of the power method, a new random
    unit vector at every query. The rest of P is the same in every prompt, so learned positions can contain it."""

    @model_validator(mode="after")
    def _settings_agree(self) -> "PrincipalComponentAnalysis":
        if self.components > self.dim:
            raise ValueError(
                f"{self.points} points in {self.dim} dimensions have at most {self.dim} components, not "
                f"{self.components}; write {self.dim} or less, or a larger dim"
            )
        if self.active is None and self.components > self.rank:  # an easier task asks for fewer instead
            points = f"{self.points} points{' that are centred' * self.centred}"
            limit = (
                f"{points} have at most {self.rank} components"
                if self.rank
                else "a single centred point has no components"
            )
            remedy = f", or components: {self.rank}" if self.rank else ""
            raise ValueError(
                f"{limit}, not {self.components}; write points: {self.components + self.centred} or more{remedy}"
            )
        if self.tables and self.target == "population":
            raise ValueError("the population of tables is unknown; write target: sample")
        check_size(self.tables, self.points)
        return self

    @property
    def asked(self) -> int:
        """Eigenvectors to predict: k, or in an easier task the number that exists, at least one."""
        return min(self.components, self.at_work, max(1, self.rank))

    @property
    def rank(self) -> int:
        """The largest possible rank of the points: N, or N - 1 if their mean is 0."""
        return self.points - self.centred

    @property
    @override
    def prompt(self) -> Prompt:
        dim_in = self.dim + self.components + (self.dim if self.auxiliary == "start" else 0)
        return Prompt(length=self.points + self.asked, dim_in=dim_in, dim_out=self.dim)

    @property
    @override
    def variance(self) -> float:
        return 1.0

    @property
    def spectrum(self) -> tuple[float, ...]:
        """The eigenvalues in descending order, with mean 1 over the non-zero coordinates.

        A sample of rank r (N, or N - 1 if centred) below this number has only the first r eigenvalues. Its other
        eigenvalues are 0, so the mean is below 1.
        """
        dim = self.at_work
        raw = [(1 - self.gap) ** min(i, self.components) for i in range(dim)]
        return tuple(dim * value / sum(raw) for value in raw)

    @property
    @override
    def floor_rule(self) -> FloorRule:
        return FloorRule("exact" if self.target == "sample" else "reference", {"kind": "eigendecomposition"})

    @property
    @override
    def fixed_guess(self) -> Float[Tensor, "points dim_out"]:
        """The first axis, shortened. Eigenvectors are uniform on the sphere, so every direction is as good."""
        return mean_cosine(self.at_work) * torch.eye(self.dim)[:1].repeat(self.asked, 1)

    @override
    def sample(self, batch_size: int, rng: torch.Generator) -> Batch:
        if self.tables:
            xs, _ = excerpts(self.tables, batch_size, self.points, self.dim, rng)
            xs, population = only_first(xs, self.active), None
        else:
            xs, population = self._gaussian(batch_size, rng)
        if self.centred:
            mean, size = mean_and_size(xs)
            xs = (xs - mean) / size
        starts = torch.randn(batch_size, self.asked, self.dim, generator=rng)
        problem = Eigenvectors(xs, normalize(only_first(starts, self.active), dim=-1))
        if self.target == "population" and population is not None:
            targets = population[:, : self.asked]
        else:
            exact = Eigenvectors(xs.double(), problem.starts.double()).covariance
            targets = leading(exact, self.asked).float()
        queries = torch.arange(self.points, self.points + self.asked)
        return Batch(self._tokens(problem), targets, queries, problem)

    def _gaussian(
        self, batch_size: int, rng: torch.Generator
    ) -> tuple[Float[Tensor, "batch points dim"], Float[Tensor, "batch active dim"]]:
        """The points, and the eigenvectors of the population, largest eigenvalue first."""
        dim = self.at_work
        xs = torch.randn(batch_size, self.points, dim, generator=rng)
        basis = bases(batch_size, dim, rng)
        if self.spectrum_of == "sample":
            if self.centred:
                xs = xs - xs.mean(1, keepdim=True)
            rank = min(dim, max(1, self.rank))
            scale = self.points**0.5 * constant(self.spectrum[:rank], rng.device).sqrt()
            xs = _orthonormal(xs, rank) * scale @ basis[:, :rank]
        else:
            xs = xs * constant(self.spectrum, rng.device).sqrt() @ basis
        zeros = (0, self.dim - dim)
        return pad(xs, zeros), pad(basis, zeros)

    def _tokens(self, problem: Eigenvectors) -> Float[Tensor, "batch length dim_in"]:
        """Tokens of x, a flag per component and, with P, a start vector. A point has no flag, a query has no x."""
        batch = len(problem.xs)
        flags = torch.eye(self.components)[: self.asked].expand(batch, -1, -1)
        queries = pad(flags, (self.dim, 0))
        if self.auxiliary == "start":
            queries = torch.cat([queries, problem.starts], dim=-1)
        points = pad(problem.xs, (0, queries.shape[-1] - self.dim))
        return torch.cat([points, queries], dim=1)

    @override
    def raw_error(self, prediction: Prediction, batch: Batch) -> Errors:
        """The squared distance to the eigenvector or its negative, whichever is nearer."""
        return squared_distance(prediction, batch.targets)

    @override
    def measures(self, prediction: Prediction, batch: Batch) -> Measures:
        return vector_agreement(prediction, batch.targets)


def _orthonormal(xs: Float[Tensor, "batch points dim"], rank: int) -> Float[Tensor, "batch points rank"]:
    """The leading left singular vectors of points, uniform for Gaussian points; 0 beyond the rank of the points.

    Computed from products of the points, in a tenth of the time of a QR factorisation.
    """
    exact = xs.double()
    values, right = torch.linalg.eigh(exact.mT @ exact)
    length = values[:, None, -rank:].clamp_min(1e-9).sqrt()
    return (exact @ right[..., -rank:] / length).float()
