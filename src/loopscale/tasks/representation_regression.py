"""Regression with representation: y = A Φ(x) + noise, Φ one fixed leaky-ReLU net, A drawn anew for every
prompt.

AlgoFormer, section 5.1. The paper leaves open Φ's weights, its slope and A's distribution. Here: A ~ N(0,
w_scale² I); Φ has a seed of its own, so that every trial of every study sees the same Φ; its weights are
orthogonal (rows or columns of a uniform orthogonal matrix where a layer changes the width), without biases,
and scaled so that a layer keeps the mean square of isotropic inputs. Then y varies about as much as in
linear regression of the same size, and the paper's σ = 0.1 and 1 mean the same there and here. Gaussian
weights were tried: over ten seeds the variance of y then ranges from 8 to 49 instead of 11 to 26, and their
products are near-singular. Either way the features have a large common mean, so that a few pairs already
halve the error.

The floor is σ² over the variance of y. From the pairs seen so far the least error that there is, of one who knows Φ, is
that of the Bayes predictor: the solver `ridge` with `features: representation`, at its default penalty.

Of an easier task all of Φ's features stay at work: only coordinates of x go.
"""

from dataclasses import dataclass, fields
from functools import cache
from itertools import pairwise

import torch
from jaxtyping import Float
from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt, model_validator
from torch import Tensor, nn
from torch.nn.functional import leaky_relu
from typing_extensions import override

from loopscale.core.prompt import Batch
from loopscale.core.seeds import stream
from loopscale.tasks.regression import Regression, RegressionTask, only_first, pose

MONTE_CARLO = 2**18
"""Inputs behind `variance`, which is thereby right to about 0.2 %."""

TINY = 1e-30
"""A mean square that float32 still holds with room to spare."""


class RepresentationRegression(RegressionTask, kind="representation_regression", allow_inf_nan=False):
    dim: PositiveInt = 20
    """Coordinates of x, each N(0, 1). There is no scale of x: Φ is homogeneous, so `w_scale` is that as well.
    """
    points: PositiveInt = 40
    """Pairs in the prompt: query k = 0 .. points-1 has seen k of them."""
    noise: NonNegativeFloat = 0.0
    """σ, the standard deviation of what is added to y."""
    layers: PositiveInt = 3
    """Of Φ, each with its activation, the last one too."""
    width: PositiveInt = 20
    """Of Φ, and so the number of its features."""
    slope: float = Field(0.01, ge=0, le=1)
    """Of the leaky ReLU below zero; 0 is the ReLU, 1 makes Φ linear. A Φ that is 0 everywhere, as a small ReLU net may
    be, is refused.
    """
    gain: PositiveFloat = 1.0
    """How much Φ's layers amplify, each by this factor; 1 keeps the mean square as it is."""
    w_scale: PositiveFloat = 1.0
    """τ, the standard deviation of a coordinate of A."""
    representation_seed: NonNegativeInt = 0
    """Which Φ."""

    @model_validator(mode="after")
    def _representation_is_not_dead(self) -> "RepresentationRegression":
        # Where all features are negative in every layer, |Φ|² is as small as this.
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
    def noise_variance(self) -> float:
        return self.noise**2

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
    """Φ as a function; settings as in the task."""

    dim: int
    layers: int
    width: int
    slope: float
    gain: float
    representation_seed: int

    @property
    def weights(self) -> tuple[Tensor, ...]:
        """Of its layers, [in, out] each."""
        return _weights(self)

    def __call__(self, xs: Float[Tensor, "*batch dim"]) -> Float[Tensor, "*batch width"]:
        for weight in self.weights:
            xs = leaky_relu(xs @ weight.to(xs.dtype), self.slope)
        return xs


@cache
def _weights(representation: Representation) -> tuple[Tensor, ...]:
    """An orthogonal matrix a layer; leaky ReLU keeps (1 + slope²)/2 of a mean square (He et al. 2015, eq.
    15).
    """
    rng = stream(representation.representation_seed, "representation")
    sizes = [representation.dim] + [representation.width] * representation.layers
    keep = representation.gain * (2 / (1 + representation.slope**2)) ** 0.5
    return tuple(
        keep * (b / min(a, b)) ** 0.5 * nn.init.orthogonal_(torch.empty(a, b), generator=rng)
        for a, b in pairwise(sizes)
    )


@cache
def _mean_square(representation: Representation, active: int | None) -> float:
    """E |Φ(x)|², by Monte Carlo on inputs that are always the same."""
    xs = torch.randn(MONTE_CARLO, representation.dim, generator=stream("mean square of a representation"))
    return representation(only_first(xs, active)).double().square().sum(-1).mean().item()
