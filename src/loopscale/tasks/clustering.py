"""Clustering in context: a prompt is N points of a mixture of K components, and each is asked for its label.

Multi-class clustering and two-component Gaussian mixtures (He et al. 2025, both papers, as the project's slides
have them). The error is the cross entropy up to relabelling, over log K; predicting nothing, zero logits,
costs 1. Its floor is the entropy of the label given the mixture, less log(K!)/N for the free naming.

No label stands in the prompt, so nothing says which cluster is the first. A net names clusters by where they lie,
for its read-in tells directions apart, and with learned positions by which points come first, as the fixed
auxiliary matrix P of the papers allows: `positions` of the model is that choice.

Of tables, a prompt is rows of K of its classes. In an easier task the nearest centres stay as far apart, and
equidistant ones need K - 1 coordinates.

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
from loopscale.tasks.bases import bases
from loopscale.tasks.clusters import Clusters, standardised
from loopscale.tasks.point_clouds import PointCloud
from loopscale.tasks.regression import only_first
from loopscale.tasks.relabelling import agreement, cross_entropy
from loopscale.tasks.spectrum import two_level_spectrum
from loopscale.tasks.tables import check_size, excerpts


class Clustering(PointCloud, kind="clustering", allow_inf_nan=False):
    components: int = Field(3, ge=2)
    """K."""
    dim: PositiveInt = 8
    """Coordinates of a point, d."""
    points: PositiveInt = 64
    """N, points in the prompt; every one is a query."""
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

    @model_validator(mode="after")
    def _settings_agree(self) -> "Clustering":
        dim = self.at_work
        if self.active is None and self.components > self.points:
            raise ValueError(
                f"{self.points} points cannot be of {self.components} components; write points: {self.components} or "
                f"more, or fewer components"
            )
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
        if self.tables and (idle := self._changed("snr", "centres", "condition", "imbalance", "tails")):
            raise ValueError(
                f"data names tables, of which {', '.join(idle)} can be no setting; write "
                f"{', '.join(f'{name}: {default}' for name, default in idle.items())}, or data: gaussian"
            )
        return self

    def _changed(self, *names: str) -> dict[str, str]:
        """Those of these settings that are not at their defaults, and their defaults as a study has them."""
        defaults = {name: type(self).model_fields[name].default for name in names}
        changed = {name: default for name, default in defaults.items() if getattr(self, name) != default}
        return {name: "null" if default is None else str(default) for name, default in changed.items()}

    @property
    @override
    def prompt(self) -> Prompt:
        return Prompt(length=self.points, dim_in=self.dim, dim_out=self.components)

    @property
    @override
    def variance(self) -> float:
        return math.log(self.components)

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
        if self.centred:
            problem = standardised(problem)
        targets = torch.nn.functional.one_hot(labels, self.components).float()
        return Batch(problem.xs, targets, torch.arange(self.points), problem)

    def _mixture(self, batch_size: int, rng: torch.Generator) -> tuple[Clusters, Tensor]:
        """The problem, and the labels [batch, points]."""
        dim = self.at_work
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


def _simplex(corners: int) -> Float[Tensor, "corners corners-1"]:
    """Points with mean 0, each √2 from every other."""
    centred = torch.eye(corners, dtype=torch.float64) - 1 / corners
    values, vectors = torch.linalg.eigh(centred)
    return vectors[:, values > 0.5].float()
