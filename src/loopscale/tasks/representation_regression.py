"""Regression with representation: y = A Φ(x) + noise. Φ is one fixed leaky-ReLU net, A is drawn for every prompt.

Source: @gao2024, section 5.1. The paper does not give the weights of Φ, its slope and the distribution of A. Here A
~ N(0, w_scale² I). Φ has its own seed, so every trial of every study uses the same Φ. The weights of Φ are orthogonal
(rows or columns of a uniform orthogonal matrix if a layer changes the width), without biases. They are scaled so that
a layer keeps the mean square of isotropic inputs. So y varies about as much as in linear regression of the same size,
and the paper's σ = 0.1 and 1 have the same meaning in both tasks.

Gaussian weights are worse. Over ten seeds the variance of y then ranges from 8 to 49 instead of 11 to 26, and
products of Gaussian matrices are near-singular. In both cases the features have a large common mean, so a few pairs
already halve the error.

Floor: σ² over the variance of y. Given only the pairs seen so far and Φ, the lowest error is that of the Bayes
predictor: the solver `ridge` with `features: representation` and its default penalty.

An easier task has fewer coordinates of x and keeps all features of Φ.
"""

from dataclasses import dataclass, fields
from functools import cache
from itertools import pairwise

import torch
from jaxtyping import Float
from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt, model_validator
from torch import Tensor, nn
from torch.nn.functional import leaky_relu
from typing_extensions import override

from loopscale.core.prompt import Batch
from loopscale.core.seeds import stream
from loopscale.tasks.base import FloorRule
from loopscale.tasks.regression import NoisyRegressionTask, Regression, only_first, pose

MONTE_CARLO = 2**18
"""Sample size of the simulation of `variance`, for an accuracy of about 0.2 %."""

TINY = 1e-30
"""A mean square well above the smallest float32 number."""


class RepresentationRegression(NoisyRegressionTask, kind="representation_regression", allow_inf_nan=False):
    dim: PositiveInt = 20
    """Coordinates of x, each N(0, 1). Φ is homogeneous, so `w_scale` also acts as a scale of x."""
    layers: PositiveInt = 3
    """Layers of Φ. Every layer has an activation, also the last layer."""
    width: PositiveInt = 20
    """Features of Φ."""
    slope: float = Field(0.01, ge=0, le=1)
    """Slope of the leaky ReLU below zero; 0 is the ReLU, 1 makes Φ linear. A small ReLU net can be 0 everywhere,
    which is an error."""
    gain: PositiveFloat = 1.0
    """Amplification factor of every layer of Φ; 1 keeps the mean square."""
    w_scale: PositiveFloat = 1.0
    """τ, the standard deviation of a coordinate of A."""
    representation_seed: NonNegativeInt = 0
    """Seed of Φ."""

    @model_validator(mode="after")
    def _representation_is_not_dead(self) -> "RepresentationRegression":
        # |Φ|² has about this size if all features are negative in every layer.
        if self.slope ** (2 * self.layers) < TINY and _mean_square(self.representation, self.active) < TINY:
            raise ValueError(
                f"the Φ of representation_seed {self.representation_seed} is 0 everywhere, with {self.width} features "
                f"and slope {self.slope:g}; write slope: 0.01, a larger width or another representation_seed"
            )
        return self

    @property
    def representation(self) -> "Representation":
        """Φ."""
        return Representation(**{field.name: getattr(self, field.name) for field in fields(Representation)})

    @property
    @override
    def variance(self) -> float:
        return self.w_scale**2 * _mean_square(self.representation, self.active) + self.noise_variance

    @property
    @override
    def floor_rule(self) -> FloorRule:
        return FloorRule("bayes", {"kind": "ridge", "features": "representation"})

    @override
    def sample(self, batch_size: int, rng: torch.Generator) -> Batch:
        xs = only_first(torch.randn(batch_size, self.points, self.dim, generator=rng), self.active)
        weights = self.w_scale * torch.randn(batch_size, self.width, generator=rng)
        noise = self.noise * torch.randn(batch_size, self.points, generator=rng)
        features = self.representation(xs)
        ys = torch.einsum("bnd,bd->bn", features, weights) + noise
        return pose(Regression(xs, ys, self.noise_variance, self.w_scale**2, features), self.format)


@dataclass(frozen=True)
class Representation:
    """Φ as a function. The settings are those of the task."""

    dim: int
    layers: int
    width: int
    slope: float
    gain: float
    representation_seed: int

    @property
    def weights(self) -> tuple[Tensor, ...]:
        """The weights of the layers, each [in, out]."""
        return _weights(self)

    def __call__(self, xs: Float[Tensor, "*batch dim"]) -> Float[Tensor, "*batch width"]:
        for weight in _weights_on(self, xs.device, xs.dtype):
            xs = leaky_relu(xs @ weight, self.slope)
        return xs


@cache
def _weights(representation: Representation) -> tuple[Tensor, ...]:
    """One orthogonal matrix per layer. A leaky ReLU keeps (1 + slope²)/2 of a mean square [@he2015, eq. 15]."""
    rng = stream(representation.representation_seed, "representation")
    sizes = [representation.dim] + [representation.width] * representation.layers
    scale = representation.gain * (2 / (1 + representation.slope**2)) ** 0.5
    return tuple(
        scale * (b / min(a, b)) ** 0.5 * nn.init.orthogonal_(torch.empty(a, b, device="cpu"), generator=rng)
        for a, b in pairwise(sizes)
    )


@cache
def _weights_on(
    representation: Representation, device: torch.device, dtype: torch.dtype
) -> tuple[Tensor, ...]:
    return tuple(weight.to(device, dtype) for weight in representation.weights)


@cache
def _mean_square(representation: Representation, active: int | None) -> float:
    """E |Φ(x)|², by Monte Carlo with a fixed seed."""
    xs = torch.randn(MONTE_CARLO, representation.dim, generator=stream("mean square of a representation"))
    return representation(only_first(xs, active)).double().square().sum(-1).mean().item()
