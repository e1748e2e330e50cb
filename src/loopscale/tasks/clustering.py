"""Clustering in context: a prompt has N points from a mixture of K components. The task is to label every point.

Source: multi-class clustering and two-component Gaussian mixtures [@he2025em; @he2025spectral], in the version of
@yang2025slides. The error is the cross entropy up to relabelling, divided by log K. Zero logits cost 1. The floor
is the entropy of the label given the mixture, minus log(K!)/N because the names of the clusters are free.

The prompt contains no label, so no cluster is the first by definition. A net can name clusters by their location,
because its read-in distinguishes directions. With learned positions a net can also name clusters by the order of the
points. This corresponds to the fixed auxiliary matrix P of the papers. The model's setting `positions` makes the
choice.

The papers do not specify the centres. Here their mean is 0, and the two nearest centres have distance `snr` in
standard deviations of the noise. `equidistant` centres are the hardest case for this distance and have an exact Bayes
risk. The alternative is `random`.

With tables, a prompt has rows from K classes of one table. An easier task keeps the distance of the nearest centres.
Equidistant centres need K - 1 coordinates.
"""

import math
from functools import cache
from typing import Literal

import torch
from jaxtyping import Float, Int
from pydantic import Field, PositiveFloat, PositiveInt, model_validator
from torch import Tensor
from torch.nn.functional import one_hot, pad
from typing_extensions import override

from loopscale.core.prompt import Batch, Prompt
from loopscale.tasks.base import Errors, FloorRule, Measures, Prediction
from loopscale.tasks.clusters import Clusters, standardised
from loopscale.tasks.fitted_guess import fitted_guess
from loopscale.tasks.point_clouds import PointCloud
from loopscale.tasks.regression import only_first
from loopscale.tasks.relabelling import cluster_agreement, cross_entropy
from loopscale.tasks.spectrum import level_spectrum
from loopscale.tasks.tables import check_size, excerpts
from loopscale.tasks.tensors import bases, constant


class Clustering(PointCloud, kind="clustering", allow_inf_nan=False):
    components: int = Field(3, ge=2)
    """K, the number of clusters."""
    dim: PositiveInt = 8
    """d, coordinates of a point."""
    points: PositiveInt = 64
    """N, points in the prompt. Every point is a query."""
    snr: PositiveFloat = 4.0
    """Distance between the two nearest centres, in standard deviations of the noise (1)."""
    centres: Literal["equidistant", "random"] = "equidistant"
    """equidistant: all distances are equal, in random directions. random: Gaussian, scaled to the smallest distance."""
    condition: float = Field(1.0, ge=1)
    """κ of the noise covariance, with trace d, equal for all components of a prompt; 1 for isotropic noise."""
    imbalance: float = Field(1.0, ge=1)
    """Largest over smallest weight of the components. The weights are evenly spaced on a log scale."""
    tails: int | None = Field(None, ge=3)
    """Degrees of freedom of Student's t noise, scaled to the same covariance; `None` for Gaussian noise."""

    @model_validator(mode="after")
    def _settings_agree(self) -> "Clustering":
        dim = self.at_work
        if self.active is None and self.components > self.points:
            raise ValueError(
                f"{self.points} points cannot come from {self.components} components; write points: {self.components} "
                f"or more, or fewer components"
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
        if self.tables and (useless := self._changed("snr", "centres", "condition", "imbalance", "tails")):
            raise ValueError(
                f"data names tables, but {', '.join(useless)} can only describe Gaussian data; write "
                f"{', '.join(f'{name}: {default}' for name, default in useless.items())}, or data: gaussian"
            )
        return self

    def _changed(self, *names: str) -> dict[str, str]:
        """The settings of `names` that differ from their defaults, with these defaults as YAML text."""
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
        """Weights of the components, largest first."""
        steps = self.components - 1
        raw = [self.imbalance ** (-k / steps) for k in range(self.components)]
        return tuple(weight / sum(raw) for weight in raw)

    @property
    @override
    def floor_rule(self) -> FloorRule:
        if self.tables:
            return FloorRule("reference", {"kind": "gaussian_mixture_em"})
        return FloorRule("bound", {"kind": "mixture_posterior"})

    @property
    @override
    def fixed_guess(self) -> Float[Tensor, "points dim_out"]:
        """Below 1, because names are free: the first point may give its cluster the first name."""
        return fitted_guess(self.model_dump_json())

    @override
    def sample(self, batch_size: int, rng: torch.Generator) -> Batch:
        if self.tables:
            xs, labels = excerpts(self.tables, batch_size, self.points, self.dim, rng, self.components)
            problem = Clusters(only_first(xs, self.active), self.components)
        else:
            problem, labels = self._mixture(batch_size, rng)
        if self.centred:
            problem = standardised(problem)
        targets = one_hot(labels, self.components).float()
        return Batch(problem.xs, targets, torch.arange(self.points), problem)

    def _mixture(self, batch_size: int, rng: torch.Generator) -> tuple[Clusters, Int[Tensor, "batch points"]]:
        """The problem, and the labels of the points."""
        dim = self.at_work
        weights = constant(self.weights, rng.device)
        labels = torch.multinomial(weights, batch_size * self.points, replacement=True, generator=rng)
        labels = labels.reshape(batch_size, self.points)
        centres = self._centres(batch_size, dim, rng)
        noise = torch.randn(batch_size, self.points, dim, generator=rng)
        whitener = torch.eye(dim).expand(batch_size, dim, dim)
        if self.condition > 1:
            spectrum, basis = (
                constant(level_spectrum(dim, self.condition), rng.device),
                bases(batch_size, dim, rng),
            )
            noise, whitener = noise * spectrum.sqrt() @ basis, spectrum.rsqrt()[:, None] * basis
        if self.tails:
            chi_square = torch.randn(batch_size, self.points, self.tails, generator=rng).square().sum(-1)
            noise = noise * ((self.tails - 2) / chi_square).sqrt()[..., None]
        xs = centres.gather(1, labels[..., None].expand(-1, -1, dim)) + noise
        zeros = self.dim - dim
        return Clusters(
            pad(xs, (0, zeros)),
            self.components,
            pad(centres, (0, zeros)),
            pad(whitener, (0, zeros, 0, zeros)),
            weights.log().expand(batch_size, -1),
            dim,
            self.tails,
        ), labels

    def _centres(self, batch_size: int, dim: int, rng: torch.Generator) -> Float[Tensor, "batch K dim"]:
        if self.centres == "equidistant":
            corners = self.snr / 2**0.5 * _simplex(self.components, rng.device)
            return corners @ bases(batch_size, dim, rng)[:, : self.components - 1]
        centres = torch.randn(batch_size, self.components, dim, generator=rng)
        centres = centres - centres.mean(1, keepdim=True)
        distances = torch.cdist(centres, centres) + torch.full((self.components,), torch.inf).diag()
        return self.snr / distances.amin((1, 2))[:, None, None] * centres

    @override
    def raw_error(self, prediction: Prediction, batch: Batch) -> Errors:
        """The cross entropy up to relabelling, in nats."""
        return cross_entropy(prediction, batch.targets)

    @override
    def measures(self, prediction: Prediction, batch: Batch) -> Measures:
        return cluster_agreement(prediction, batch.targets)


@cache
def _simplex(corners: int, device: torch.device) -> Float[Tensor, "corners corners-1"]:
    """Points with mean 0 and pairwise distance √2."""
    centred = torch.eye(corners, dtype=torch.float64, device="cpu") - 1 / corners
    values, vectors = torch.linalg.eigh(centred)
    return vectors[:, values > 0.5].float().to(device)
