"""An autoregression with representation: x_{t+1} = A Φ([x_{t+1-q} .. x_t]) + noise, Φ fixed, A drawn for every
prompt.

AlgoFormer, section 5.1 and figure 2b: q = 3, Φ a 3-layer leaky-ReLU net from R^60 to R^20, A ~ N(0, I), noise
N(0, I). With a homogeneous Φ such a series explodes. Simulated with 20 coordinates its mean square is 10^20 after 40
steps even with A ~ N(0, I/20), which would keep that of an independent input, and still 10^6 with 0.6 times this A,
since the square of a product of Gaussian matrices is carried by the few large ones. The paper does not say what it did.

Here the features are brought to one length: Φ is the leaky-ReLU net of `representation_regression`, oldest x first,
divided by its root mean square. So |Φ| = sqrt(width) at every step and the series is bounded whatever A is, by
|A| sqrt(width) + |noise|; the paper's own A and noise can be kept; and A stays Gaussian and independent of the first
q values, so that ridge regression on Φ with penalty σ²/τ² is exactly the Bayes predictor. A smaller or an orthogonal
A would also be bounded, but the first leaves nothing to predict (a linear series whose mean square shrinks by ρ² has
1 - ρ² of noise in it) and the second has no Bayes predictor in closed form.

The first q values are N(0, τ² width + σ²), the variance of the value after them. Later values depend on A through
their past, which raises their variance by 1 or 2 per cent; `variances` has it at every query.

The floor is σ² over the variance at the query, the noise that is added last. From the values seen so far the least
error that there is, of one who knows Φ, is that of the Bayes predictor above: the solver `ridge` with `features:
representation`, at its default penalty.

Of an easier task all of Φ's features stay at work: only coordinates of x go.
"""

from functools import cache

import torch
from jaxtyping import Float
from pydantic import Field, NonNegativeFloat, NonNegativeInt, PositiveFloat, PositiveInt
from torch import Tensor
from torch.nn.functional import normalize
from typing_extensions import override

from loopscale.core.prompt import Batch, Prompt
from loopscale.core.seeds import stream
from loopscale.tasks.graded import GradedTask
from loopscale.tasks.regression import VectorRegression, only_first
from loopscale.tasks.representation_regression import Representation

BLOCKS, SERIES = 4, 4096
"""Of the simulation behind `variances`: 16,384 series, which give them to 0.3 % (20 coordinates), 0.5 % (5)."""

SHORTEST = 1e-30
"""Of Φ: what is negative in every layer is as small as slope^layers, and is brought to the same length as all else."""


class Autoregression(GradedTask, kind="autoregression", allow_inf_nan=False):
    q: PositiveInt = 3
    """Values of the past that the next one depends on."""
    dim: PositiveInt = 20
    """Coordinates of a value."""
    points: PositiveInt = 40
    """Values to predict: query k = 0 .. points-1 has q + k values before it, and so has seen k pairs."""
    noise: NonNegativeFloat = 1.0
    """σ, the standard deviation of what is added to every coordinate, and fed back."""
    layers: PositiveInt = 3
    """Of Φ, each with its activation, the last one too."""
    width: PositiveInt = 20
    """Of Φ, and so the number of its features, which have a mean square of 1 over them."""
    slope: float = Field(0.01, ge=0.001, le=1)
    """Of the leaky ReLU below zero; 1 makes Φ linear but for its length. Not 0: where a ReLU's features are all dead
    they have no direction, and no length to be brought to.
    """
    w_scale: PositiveFloat = 1.0
    """τ, the standard deviation of an entry of A: the predictable part of a coordinate has variance τ² width."""
    representation_seed: NonNegativeInt = 0
    """Which Φ."""

    @property
    @override
    def prompt(self) -> Prompt:
        return Prompt(length=self.q + self.points - 1, dim_in=self.dim, dim_out=self.dim)

    @property
    def representation(self) -> Representation:
        """Φ before its length is set."""
        return Representation(
            self.q * self.dim, self.layers, self.width, self.slope, 1.0, self.representation_seed
        )

    @property
    @override
    def variance(self) -> float:
        """At the first query, exactly; at the others see `variances`."""
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
        """Values x_1 .. x_{q+points}, and the features of the q values before each of the last `points`."""
        start = (self.width * self.w_scale**2 + self.noise**2) ** 0.5
        weights = self.w_scale * torch.randn(batch_size, self.dim, self.width, generator=rng)
        first = start * torch.randn(batch_size, self.q, self.dim, generator=rng)
        values, features = list(only_first(first, self.active).unbind(1)), []
        for _ in range(self.points):
            features.append(self.features(torch.cat(values[-self.q :], dim=-1)))
            noise = self.noise * torch.randn(batch_size, self.dim, generator=rng)
            after = (weights @ features[-1][..., None]).squeeze(-1) + noise
            values.append(only_first(after, self.active))
        return torch.stack(values, dim=1), torch.stack(features, dim=1)

    def features(self, windows: Float[Tensor, "*batch past"]) -> Float[Tensor, "*batch width"]:
        """Φ of the last q values, oldest first, side by side."""
        return self.width**0.5 * normalize(self.representation(windows), dim=-1, eps=SHORTEST)


def _windows(values: Float[Tensor, "batch length dim"], q: int) -> Float[Tensor, "batch points past"]:
    """The q values up to each, side by side, oldest first; from the q-th value on."""
    return values.unfold(1, q, 1).mT.flatten(2)


@cache
def _growth(settings: str) -> Float[Tensor, " points"]:
    """E |x|² at every query over that at the first, by simulation of series that are always the same.

    What the simulation has at the first query is known exactly; dividing by it takes out much of its error elsewhere.
    """
    task = Autoregression.model_validate_json(settings)
    total = torch.zeros(task.points, dtype=torch.float64)
    for block in range(BLOCKS):
        series, _ = task.series(SERIES, stream("variances of an autoregression", block))
        total += series[:, task.q :].double().square().mean((0, 2))
    return total / total[0]
