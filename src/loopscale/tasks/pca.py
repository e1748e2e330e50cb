"""Principal components in context: a prompt is N points, and k query tokens ask for the leading eigenvectors.

How Transformers Perform PCA and Sparse Recovery 2025, theorem 7, and Spectral Methods by Transformers, theorem 2.1
(He et al. 2025). The papers score against the eigenvectors of the prompt's own XX', so `target` is the sample's,
and their assumption 1 sets the eigenvalues of the same matrix, so `spectrum_of` is too; the population's are
settings. The covariance is that of points around 0, over N.

The error of a component is the squared distance up to sign: predicting nothing costs 1, a unit vector that knows
nothing up to 2. (The authors' code has 1 - cos with the sign that `eigh` happens to give, which makes half of all
targets arbitrary.) The floor is 0 where the target is the sample's: the solver `eigendecomposition` has it. Where it is
the population's nobody can know it from N points; the floor is above 0, and no solver here has it: the sample's
eigenvectors are an estimate, which another may improve on.

The paper reads the k vectors off one column, so that N is fixed; here a query token each, which one coordinate
tells from the points and from the others, answers with one. An easier task asks for as many as it has.
"""

from typing import Literal

import torch
from jaxtyping import Float
from pydantic import Field, PositiveInt, model_validator
from torch import Tensor
from torch.nn.functional import normalize, pad
from typing_extensions import override

from loopscale.core.prompt import Batch, Prompt
from loopscale.tasks.bases import bases
from loopscale.tasks.eigenvectors import Eigenvectors, agreement, leading, squared_distance
from loopscale.tasks.point_clouds import PointCloud
from loopscale.tasks.regression import only_first
from loopscale.tasks.tables import check_size, excerpts

Whose = Literal["sample", "population"]


class PrincipalComponentAnalysis(PointCloud, kind="pca"):
    components: PositiveInt = 2
    """k, eigenvectors asked for; a query of each."""
    dim: PositiveInt = 8
    """Coordinates of a point, d."""
    points: PositiveInt = 32
    """N, points in the prompt."""
    gap: float = Field(default=0.3, gt=0, lt=1)
    """Δ, relative: eigenvalue i+1 is 1 - Δ times the i-th, up to the k+1-st, which all that follow equal. Of mean 1; of
    less in a sample with fewer points than coordinates, which has only the first of them (see `spectrum`).
    """
    spectrum_of: Whose = "sample"
    """Whose eigenvalues these are: of every prompt's own covariance, to which Gaussian points are conditioned; or of
    the distribution, and the sample's gap then differs from prompt to prompt.
    """
    target: Whose = "sample"
    """Whose eigenvectors are asked for; of tables, the sample's."""
    auxiliary: Literal["none", "start"] = "none"
    """Of the auxiliary matrix P: nothing, or the power method's starts, a unit vector at every query, drawn anew for
    every prompt. The rest of P is the same in every prompt, as learned positions are, which can hold it.
    """

    @model_validator(mode="after")
    def _settings_agree(self) -> "PrincipalComponentAnalysis":
        if self.components > self.dim:
            raise ValueError(
                f"{self.points} points in {self.dim} dimensions have {self.dim} components at most, not "
                f"{self.components}; write {self.dim} or less, or more dimensions"
            )
        if self.active is None and self.components > self.rank:  # an easier task asks for as many as it has
            found = f"{self.points} points{' that are centred' * self.centred} have {self.rank} components at most"
            raise ValueError(
                f"{found if self.rank else 'a single point that is centred is 0 and has no components'}, not "
                f"{self.components}; write points: {self.components + self.centred} or more"
                + f", or components: {self.rank}"
                * (self.rank > 0)
            )
        if self.tables and self.target == "population":
            raise ValueError("nobody knows the population of tables; write target: sample")
        check_size(self.tables, self.points)
        return self

    @property
    @override
    def idle(self) -> frozenset[str]:
        return frozenset({"gap", "spectrum_of"}) if self.tables else frozenset()

    @property
    def asked(self) -> int:
        """Components that are asked for: k, or in an easier task those that it has, and one at least."""
        return min(self.components, self.at_work, max(1, self.rank))

    @property
    def rank(self) -> int:
        """That points may have at most, in enough dimensions: one less than there are where their mean is 0."""
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
        """The eigenvalues, falling, of mean 1 over the coordinates at work. A sample of a lower rank, N or if centred
        N - 1, has as many of the first; the others are 0 in it, and their mean is less than 1.
        """
        dim = self.at_work
        raw = [(1 - self.gap) ** min(i, self.components) for i in range(dim)]
        return tuple(dim * each / sum(raw) for each in raw)

    @override
    def sample(self, batch_size: int, rng: torch.Generator) -> Batch:
        if self.tables:
            xs, _ = excerpts(self.tables, batch_size, self.points, self.dim, rng)
            xs, population = only_first(xs, self.active), None
        else:
            xs, population = self._gaussian(batch_size, rng)
        if self.centred:
            xs = _standardised(xs)
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
        """The points, and the population's eigenvectors, the largest eigenvalue's first."""
        dim = self.at_work
        xs = torch.randn(batch_size, self.points, dim, generator=rng)
        basis = bases(batch_size, dim, rng)
        if self.spectrum_of == "sample":
            if self.centred:
                xs = xs - xs.mean(1, keepdim=True)
            rank = min(dim, max(1, self.rank))
            scale = self.points**0.5 * torch.tensor(self.spectrum[:rank]).sqrt()
            xs = _orthonormal(xs, rank) * scale @ basis[:, :rank]
        else:
            xs = xs * torch.tensor(self.spectrum).sqrt() @ basis
        more = (0, self.dim - dim)
        return pad(xs, more), pad(basis, more)

    def _tokens(self, problem: Eigenvectors) -> Float[Tensor, "batch length dim_in"]:
        """x, a flag for every component, and with P the starts; a point has no flag and a query no x."""
        batch = len(problem.xs)
        flags = torch.eye(self.components)[: self.asked].expand(batch, -1, -1)
        queries = pad(flags, (self.dim, 0))
        if self.auxiliary == "start":
            queries = torch.cat([queries, problem.starts], dim=-1)
        points = pad(problem.xs, (0, queries.shape[-1] - self.dim))
        return torch.cat([points, queries], dim=1)

    @override
    def raw_error(
        self, prediction: Float[Tensor, "*steps batch points dim_out"], batch: Batch
    ) -> Float[Tensor, "*steps batch points"]:
        """The squared distance to the eigenvector, or to its negative, whichever is nearer."""
        return squared_distance(prediction, batch.targets)

    @override
    def measures(
        self, prediction: Float[Tensor, "steps batch points dim_out"], batch: Batch
    ) -> dict[str, Float[Tensor, "steps batch"]]:
        return agreement(prediction, batch.targets)


def _orthonormal(xs: Float[Tensor, "batch points dim"], rank: int) -> Float[Tensor, "batch points rank"]:
    """The leading left singular vectors of points, for Gaussian ones uniform; 0 where there are none. By the points'
    products, which takes a tenth of the time of a QR factorisation.
    """
    exact = xs.double()
    values, right = torch.linalg.eigh(exact.mT @ exact)
    length = values[:, None, -rank:].clamp_min(1e-9).sqrt()
    return (exact @ right[..., -rank:] / length).float()


def _standardised(xs: Float[Tensor, "batch points dim"]) -> Float[Tensor, "batch points dim"]:
    """Mean 0, and a mean square of 1 per coordinate."""
    centred = xs - xs.mean(1, keepdim=True)
    size = centred.square().mean((1, 2), keepdim=True).sqrt()
    return centred / torch.where(size > 0, size, 1)
