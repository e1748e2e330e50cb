"""Autoregression with representation: x_{t+1} = A Φ([x_{t+1-q} .. x_t]) + noise. Φ is fixed, A is drawn per prompt.

Source: @gao2024, section 5.1 and figure 2b. There q = 3, Φ is a 3-layer leaky-ReLU net from R^60 to R^20,
A ~ N(0, I), and the noise is N(0, I).

With a homogeneous Φ this series explodes, because few large products of Gaussian matrices carry the mean square. In a
simulation with 20 coordinates the mean square is 10^20 after 40 steps with A ~ N(0, I/20), although this scale
preserves the mean square of an independent input. With 0.6 times this A the mean square is still 10^6. The paper does
not mention the problem.

This task therefore normalises the features. Φ is the leaky-ReLU net of `representation_regression` (oldest x first),
divided by its root mean square, so |Φ| = sqrt(width) at every step. The choice has three advantages:

- The series is bounded by |A| sqrt(width) + |noise| for every A.
- The paper's own A and noise stay possible.
- A stays Gaussian and independent of the first q values. So ridge regression on Φ with penalty σ²/τ² is exactly the
  Bayes predictor.

A smaller or an orthogonal A would also bound the series. But a small A leaves nothing to predict: if the mean square
of a linear series shrinks by ρ², the noise share is 1 - ρ². An orthogonal A has no Bayes predictor in closed form.

The first q values are N(0, τ² width + σ²), like the variance of the next value. Later values depend on A through
their past, which raises their variance by 1 to 2 %. `variances` contains the variance at every query.

Floor: σ² over the variance at the query, from the noise that is added last. Given only the past values and Φ, the
lowest error is that of the Bayes predictor: the solver `ridge` with `features: representation` and its default
penalty.

An easier task has fewer coordinates of x and keeps all features of Φ.
"""

from functools import cache

import torch
from jaxtyping import Float
from pydantic import Field, NonNegativeInt, PositiveFloat, PositiveInt
from torch import Tensor
from torch.nn.functional import normalize
from typing_extensions import override

from loopscale.core.prompt import Batch, Prompt
from loopscale.core.seeds import stream
from loopscale.tasks.base import FloorRule, GradedTask
from loopscale.tasks.regression import LARGEST_NOISE, VectorRegression, only_first
from loopscale.tasks.representation_regression import Representation

BLOCKS, SERIES = 4, 4096
"""Size of the simulation behind `variances`: 16,384 series, for an accuracy of 0.3 % (20 coordinates), 0.5 % (5)."""

SHORTEST = 1e-30
"""Smallest length of Φ that is normalised. Features that are negative in every layer are as small as slope^layers."""


class Autoregression(GradedTask, kind="autoregression", allow_inf_nan=False):
    q: PositiveInt = 3
    """Number of past values that determine the next value."""
    dim: PositiveInt = 20
    """Coordinates of a value."""
    points: PositiveInt = 40
    """Values to predict. Query k = 0 .. points-1 has seen q + k values, which make k pairs."""
    noise: float = Field(1.0, ge=0, le=LARGEST_NOISE)
    """σ, the standard deviation of the noise in every coordinate. The noise is part of the later values."""
    layers: PositiveInt = 3
    """Layers of Φ. Every layer has an activation, also the last layer."""
    width: PositiveInt = 20
    """Features of Φ. Their mean square is 1."""
    slope: float = Field(0.01, ge=0.001, le=1)
    """Slope of the leaky ReLU below zero; 1 makes Φ linear except for the normalisation. Not 0, because a ReLU net
    can return a zero vector, which cannot be normalised."""
    w_scale: PositiveFloat = 1.0
    """τ, the standard deviation of an entry of A. The predictable part of a coordinate has variance τ² width."""
    representation_seed: NonNegativeInt = 0
    """Seed of Φ."""

    @property
    @override
    def prompt(self) -> Prompt:
        return Prompt(length=self.q + self.points - 1, dim_in=self.dim, dim_out=self.dim)

    @property
    def representation(self) -> Representation:
        """Φ before normalisation."""
        return Representation(
            self.q * self.dim, self.layers, self.width, self.slope, 1.0, self.representation_seed
        )

    @property
    @override
    def variance(self) -> float:
        """Exact at the first query. For other queries see `variances`."""
        return self._share * self.width * self.w_scale**2 + self.noise_variance

    @property
    @override
    def noise_variance(self) -> float:
        return self._share * self.noise**2

    @property
    @override
    def variances(self) -> Float[Tensor, " points"]:
        return self.variance * _growth(self.model_dump_json())

    @property
    def _share(self) -> float:
        return self.at_work / self.dim

    @property
    @override
    def floor_rule(self) -> FloorRule:
        return FloorRule("bayes", {"kind": "ridge", "features": "representation"})

    @override
    def sample(self, batch_size: int, rng: torch.Generator) -> Batch:
        series, features = self.series(batch_size, rng)
        return Batch(
            tokens=series[:, :-1],
            targets=series[:, self.q :],
            queries=torch.arange(self.q - 1, self.q - 1 + self.points),
            problem=VectorRegression(
                xs=_windows(series[:, :-1], self.q),
                ys=series[:, self.q :],
                noise_variance=self.noise**2,
                weight_variance=self.w_scale**2,
                representation=features,
            ),
        )

    def series(
        self, batch_size: int, rng: torch.Generator
    ) -> tuple[Float[Tensor, "batch length dim"], Float[Tensor, "batch points width"]]:
        """Values x_1 .. x_{q+points}, and for each of the last `points` values the features of the q values before."""
        start = (self.width * self.w_scale**2 + self.noise**2) ** 0.5
        weights = self.w_scale * torch.randn(batch_size, self.dim, self.width, generator=rng)
        first = start * torch.randn(batch_size, self.q, self.dim, generator=rng)
        values, features = list(only_first(first, self.active).unbind(1)), []
        for _ in range(self.points):
            features.append(self.features(torch.cat(values[-self.q :], dim=-1)))
            noise = self.noise * torch.randn(batch_size, self.dim, generator=rng)
            value = (weights @ features[-1][..., None]).squeeze(-1) + noise
            values.append(only_first(value, self.active))
        return torch.stack(values, dim=1), torch.stack(features, dim=1)

    def features(self, windows: Float[Tensor, "*batch past"]) -> Float[Tensor, "*batch width"]:
        """Φ of windows of q values, oldest value first, normalised."""
        return self.width**0.5 * normalize(self.representation(windows), dim=-1, eps=SHORTEST)


def _windows(values: Float[Tensor, "batch length dim"], q: int) -> Float[Tensor, "batch points past"]:
    """The windows of q consecutive values, oldest value first."""
    return values.unfold(1, q, 1).mT.flatten(2)


@cache
def _growth(settings: str) -> Float[Tensor, " points"]:
    """E |x|² at every query divided by E |x|² at the first query, from a simulation with a fixed seed.

    E |x|² at the first query is known exactly. The ratio therefore cancels much of the simulation error.
    """
    task = Autoregression.model_validate_json(settings)
    total = torch.zeros(task.points, dtype=torch.float64)
    for block in range(BLOCKS):
        series, _ = task.series(SERIES, stream("variances of an autoregression", block))
        total += series[:, task.q :].double().square().mean((0, 2))
    return total / total[0]
