"""Regression on a random Fourier series: y = Σ_i Σ_k (a_ik cos 2πk x_i + b_ik sin 2πk x_i) / √K + noise.

Every coordinate of x is uniform on [0, 1]. Every prompt draws new standard normal coefficients. y is linear in the
2 d K features, so ridge regression on the features is the Bayes predictor.
"""

import math

import torch
from pydantic import PositiveInt

from loopscale.core.prompt import Batch
from loopscale.tasks.base import FloorRule
from loopscale.tasks.regression import NoisyRegressionTask, Regression, only_first, pose


class Fourier(NoisyRegressionTask, kind="fourier", allow_inf_nan=False):
    """A sum of Fourier series, one for each coordinate of x."""

    dim: PositiveInt = 5
    """d, coordinates of x."""
    frequencies: PositiveInt = 2
    """K, the number of frequencies 1 .. K."""

    @property
    def variance(self) -> float:
        """cos² + sin² = 1, so that each coordinate contributes 1 at every x."""
        return self.at_work + self.noise_variance

    @property
    def floor_rule(self) -> FloorRule:
        return FloorRule("bayes", {"kind": "ridge", "features": "representation"})

    def sample(self, batch_size: int, rng: torch.Generator) -> Batch:
        xs = torch.rand(batch_size, self.points, self.dim, generator=rng)
        coefficients = torch.randn(batch_size, 2 * self.frequencies * self.dim, generator=rng)
        noise = self.noise * torch.randn(batch_size, self.points, generator=rng)
        angles = 2 * math.pi * xs[..., None, :] * torch.arange(1.0, self.frequencies + 1)[:, None]
        waves = torch.cat([angles.cos(), angles.sin()], dim=-2) / math.sqrt(self.frequencies)
        features = only_first(waves, self.active).flatten(-2)
        ys = torch.einsum("bnf,bf->bn", features, coefficients) + noise
        problem = Regression(only_first(xs, self.active), ys, self.noise_variance, 1.0, features)
        return pose(problem, self.format)
