"""Clustering in context: a prompt is N points of a mixture of K components, and each is asked for its label.

Multi-class clustering and two-component Gaussian mixtures (He et al. 2025, both papers, as the project's slides
have them). The error is the cross entropy up to relabelling, over log K; predicting nothing, zero logits,
costs 1. Its floor is the entropy of the label given the mixture, less log(K!)/N for the free naming.

No label stands in the prompt, so nothing says which cluster is the first. A net names clusters by where they lie,
for its read-in tells directions apart, and with learned positions by which points come first, as the fixed
auxiliary matrix P of the papers allows: `positions` of the model is that choice.

The papers leave the centres open. Here their mean is 0 and the two nearest are `snr` noise standard deviations
apart: equidistant, the hardest for that distance and the case that has an exact Bayes risk, or random.
"""

import math
from typing import Literal

import torch
from jaxtyping import Float
from pydantic import Field, PositiveFloat, PositiveInt, model_validator
from torch import Tensor
from typing_extensions import override

from loopscale.core.prompt import Batch, Prompt
from loopscale.tasks.base import Task
from loopscale.tasks.bases import bases
from loopscale.tasks.clusters import Clusters, standardised
from loopscale.tasks.regression import check_easier, only_first
from loopscale.tasks.relabelling import agreement, cross_entropy
from loopscale.tasks.spectrum import two_level_spectrum
from loopscale.tasks.tables import TABLES, check_size, excerpts


class Clustering(Task, kind="clustering", allow_inf_nan=False):
    components: int = Field(3, ge=2)
    """K."""
    dim: PositiveInt = 8
    """Coordinates of a point, d."""
    points: PositiveInt = 64
    """N, points in the prompt; every one is a query."""
    data: str | tuple[str, ...] = "gaussian"
    """A mixture drawn anew for every prompt; or tables, of which a prompt is rows of K classes of one, under a
    random projection to d coordinates, standardised. Of tables, the settings below that describe a mixture are
    not asked.
    """
    snr: PositiveFloat = 4.0
    """Distance of the nearest two centres over the noise's standard deviation, which is 1."""
    centres: Literal["equidistant", "random"] = "equidistant"
    """Each as far from every other, in a random direction; or Gaussian, scaled to the least distance."""
    condition: float = Field(1.0, ge=1)
    """κ of the noise's covariance, the same for all components of a prompt, of trace d; 1 for isotropic noise."""
    imbalance: float = Field(1.0, ge=1)
    """The largest component's weight over the smallest's, the others evenly between on a log scale."""
    tails: int | None = Field(None, ge=3)
    """Degrees of freedom of the noise, Student's t scaled to the same covariance; `None` for Gaussian noise."""
    standardised: bool = False
    """Whether every prompt is centred and has mean square 1, as those of tables always are."""
    active: PositiveInt | None = None
    """Coordinates at work, the others being zero; `None` for all. For a curriculum (see `easier`)."""

    @model_validator(mode="after")
    def _settings_agree(self) -> "Clustering":
        dim = self.active or self.dim
        if dim > self.dim:
            raise ValueError(
                f"active {dim} is more than the dim {self.dim} coordinates that there are; "
                f"write {self.dim} or less"
            )
        if self.data == () or not set(self.tables) <= set(TABLES):
            raise ValueError(f"data names no table; write gaussian, or one or a list of {', '.join(TABLES)}")
        if self.condition > 1 and dim < 2:
            raise ValueError(
                f"condition {self.condition:g} needs a dim of 2 or more; write condition: 1, or a larger dim"
            )
        if not self.tables and self.centres == "equidistant" and dim < self.components - 1:
            raise ValueError(
                f"{self.components} centres cannot be equidistant in {dim} dimensions; write a dim of "
                f"{self.components - 1} or more, or centres: random"
            )
        check_size(self.tables, self.points, self.components)
        return self

    @property
    @override
    def prompt(self) -> Prompt:
        return Prompt(length=self.points, dim_in=self.dim, dim_out=self.components)

    @property
    @override
    def whole(self) -> bool:
        return True

    @property
    @override
    def variance(self) -> float:
        return math.log(self.components)

    @property
    @override
    def noise_variance(self) -> float:
        """0: `excess` is then the cross entropy itself. Its floor is no setting of the task, but a bound."""
        return 0.0

    @property
    @override
    def tables(self) -> tuple[str, ...]:
        if self.data == "gaussian":
            return ()
        return (self.data,) if isinstance(self.data, str) else self.data

    @property
    def weights(self) -> tuple[float, ...]:
        """Of the components, the heaviest first."""
        steps = self.components - 1
        raw = [self.imbalance ** (-k / steps) for k in range(self.components)]
        return tuple(each / sum(raw) for each in raw)

    @override
    def sample(self, batch_size: int, rng: torch.Generator) -> Batch:
        if self.tables:
            xs, labels = excerpts(self.tables, batch_size, self.points, self.dim, rng, self.components)
            problem = Clusters(only_first(xs, self.active), self.components)
        else:
            problem, labels = self._mixture(batch_size, rng)
        if self.standardised or self.tables:
            problem = standardised(problem)
        targets = torch.nn.functional.one_hot(labels, self.components).float()
        return Batch(problem.xs, targets, torch.arange(self.points), problem)

    def _mixture(self, batch_size: int, rng: torch.Generator) -> tuple[Clusters, Tensor]:
        """The problem, and the labels [batch, points]."""
        dim = self.active or self.dim
        weights = torch.tensor(self.weights)
        labels = torch.multinomial(weights, batch_size * self.points, replacement=True, generator=rng)
        labels = labels.reshape(batch_size, self.points)
        centres = self._centres(batch_size, dim, rng)
        noise = torch.randn(batch_size, self.points, dim, generator=rng)
        whitener = torch.eye(dim).expand(batch_size, dim, dim)
        if self.condition > 1:
            spread, basis = torch.tensor(two_level_spectrum(dim, self.condition)), bases(batch_size, dim, rng)
            noise, whitener = noise * spread.sqrt() @ basis, spread.rsqrt()[:, None] * basis
        if self.tails:
            chi_square = torch.randn(batch_size, self.points, self.tails, generator=rng).square().sum(-1)
            noise = noise * ((self.tails - 2) / chi_square).sqrt()[..., None]
        xs = centres.gather(1, labels[..., None].expand(-1, -1, dim)) + noise
        more = self.dim - dim
        pad = torch.nn.functional.pad
        return Clusters(
            pad(xs, (0, more)),
            self.components,
            pad(centres, (0, more)),
            pad(whitener, (0, more, 0, more)),
            weights.log().expand(batch_size, -1),
            dim,
            self.tails,
        ), labels

    def _centres(self, batch_size: int, dim: int, rng: torch.Generator) -> Float[Tensor, "batch K dim"]:
        if self.centres == "equidistant":
            corners = self.snr / 2**0.5 * _simplex(self.components)
            return corners @ bases(batch_size, dim, rng)[:, : self.components - 1]
        centres = torch.randn(batch_size, self.components, dim, generator=rng)
        centres = centres - centres.mean(1, keepdim=True)
        far = torch.cdist(centres, centres) + torch.full((self.components,), torch.inf).diag()
        return self.snr / far.amin((1, 2))[:, None, None] * centres

    @override
    def raw_error(
        self, prediction: Float[Tensor, "*steps batch points dim_out"], batch: Batch
    ) -> Float[Tensor, "*steps batch points"]:
        """The cross entropy up to relabelling, in nats."""
        return cross_entropy(prediction, batch.targets)

    @override
    def measures(
        self, prediction: Float[Tensor, "steps batch points dim_out"], batch: Batch
    ) -> dict[str, Float[Tensor, "steps batch"]]:
        return agreement(prediction, batch.targets)

    @override
    def easier(self, dim: int, points: int) -> "Clustering":
        """The nearest centres stay as far apart. Equidistant ones need K - 1 coordinates."""
        check_easier(dim, points, self.active or self.dim, self.points)
        return Clustering.model_validate(self.model_dump() | {"active": dim, "points": points})


def _simplex(corners: int) -> Float[Tensor, "corners corners-1"]:
    """Points with mean 0, each √2 from every other."""
    centred = torch.eye(corners, dtype=torch.float64) - 1 / corners
    values, vectors = torch.linalg.eigh(centred)
    return vectors[:, values > 0.5].float()
