"""Regression on a random network: y = f(x) + noise. Every prompt draws a new network f of N layers.

Source: @wu2024, who train networks of 3, 4 and 6 layers in context. The paper itself was not read, so the sizes and the
distribution of the weights are choices of this module. A weight of a neuron with k inputs is N(0, gain² / k). There are
no biases. The last layer has one neuron and no activation, so f and -f are equally likely.

The scale of a deep random network varies between prompts by large factors, so few prompts would carry all of the loss.
Therefore f is divided by its root mean square over `REFERENCES` fixed inputs. These inputs are the same for all prompts
and belong to no prompt. After this division every network has about the same mean square. The constant `variance` comes
from a simulation with a fixed seed.

ReLU networks are homogeneous: f(c x) = c f(x) for c > 0. The outputs of a deep ReLU network at two inputs are strongly
correlated, so a few pairs remove much of the error. Without noise the least possible error is not known. The reference
is kernel ridge regression with the kernel of wide networks of the same depth [@lee2018], the solver `kernel_ridge`.

With `other_layers` every prompt draws its number of layers, so a net can be pre-trained on a mixture of architectures.

An easier task has fewer coordinates of x and keeps the size of the network.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Annotated, Literal

import torch
from jaxtyping import Float
from pydantic import Field, PositiveFloat, PositiveInt, model_validator
from torch import Tensor
from torch.nn.functional import softplus
from typing_extensions import override

from loopscale.core.prompt import Batch
from loopscale.core.seeds import stream
from loopscale.tasks.base import FloorRule
from loopscale.tasks.regression import NoisyRegressionTask, Regression, only_first, pose

CPU = torch.device("cpu")
Activation = Literal["relu", "tanh", "softplus"]
ACTIVATIONS: dict[Activation, Callable[[Tensor], Tensor]] = {
    "relu": torch.relu,
    "tanh": torch.tanh,
    "softplus": softplus,
}
REFERENCES = 256
"""Fixed inputs over which a network has a mean square of 1."""
SIMULATED_NETWORKS, SIMULATED_INPUTS = 2**12, 2**8
"""Networks and inputs per network in the simulation of the variance, for an accuracy of about 0.3 %."""
TINY = 1e-12
"""A mean square of a network with dead neurons only. Such a network is 0 everywhere."""


@dataclass(frozen=True)
class NetworkPairs(Regression):
    """Pairs whose y is the output of a random network. The constants are those of the task."""

    depths: tuple[int, ...] = (2,)
    """N, the numbers of layers. Each one has the same chance in every prompt."""
    width: int = 1
    """Neurons of each hidden layer."""
    activation: Activation = "relu"
    gain: float = 1.0


class NetworkRegression(NoisyRegressionTask, kind="network_regression", allow_inf_nan=False):
    dim: PositiveInt = 5
    """Coordinates of x, each N(0, 1)."""
    layers: int = Field(3, ge=2)
    """N, the number of layers of the random network. A network of 2 layers has one hidden layer."""
    other_layers: tuple[Annotated[int, Field(ge=2)], ...] = ()
    """Further numbers of layers. Every prompt draws its number from `layers` and these, with equal chances."""
    width: int = Field(16, ge=4)
    """Neurons of each hidden layer. Networks that are narrower than 4 are often 0 in half of the space."""
    activation: Activation = "relu"
    """The activation of the hidden layers. The theorems of @wu2024 need a smooth activation: tanh or softplus."""
    gain: PositiveFloat = 1.5
    """A weight of a neuron with k inputs has the variance gain² / k. The gain has no effect on ReLU networks."""

    @model_validator(mode="after")
    def _depths_differ(self) -> "NetworkRegression":
        twice = next((depth for depth in self.depths if self.depths.count(depth) > 1), None)
        if twice is not None:
            raise ValueError(
                f"{twice} layers stand twice in layers and other_layers; write every number once"
            )
        return self

    @property
    def depths(self) -> tuple[int, ...]:
        """All numbers of layers."""
        return self.layers, *self.other_layers

    @property
    @override
    def variance(self) -> float:
        # The mean square depends neither on the pairs of a prompt nor on the noise: one simulation serves all prompts.
        alike = {"noise": 0.0, "points": 1, "format": "decoder", "active": self.at_work}
        return _mean_square(self.model_copy(update=alike).model_dump_json()) + self.noise_variance

    @property
    @override
    def floor_rule(self) -> FloorRule:
        return FloorRule("reference", {"kind": "kernel_ridge"})

    @override
    def sample(self, batch_size: int, rng: torch.Generator) -> Batch:
        xs = only_first(torch.randn(batch_size, self.points, self.dim, generator=rng), self.active)
        noise = self.noise * torch.randn(batch_size, self.points, generator=rng)
        ys = self._outputs(xs, rng) + noise
        problem = NetworkPairs(
            xs,
            ys,
            noise_variance=self.noise_variance,
            weight_variance=1 / self.at_work,
            depths=self.depths,
            width=self.width,
            activation=self.activation,
            gain=self.gain,
        )
        return pose(problem, self.format)

    def _outputs(
        self, xs: Float[Tensor, "batch points dim"], rng: torch.Generator
    ) -> Float[Tensor, "batch points"]:
        """The outputs of one new network for each prompt."""
        if len(self.depths) == 1:
            return self._outputs_of(xs, self.layers, rng)
        drawn = torch.randint(len(self.depths), (len(xs),), generator=rng)
        outputs = torch.zeros(xs.shape[:2])
        for number, depth in enumerate(self.depths):
            rows = drawn == number
            outputs[rows] = self._outputs_of(xs[rows], depth, rng)
        return outputs

    def _outputs_of(
        self, xs: Float[Tensor, "batch points dim"], layers: int, rng: torch.Generator
    ) -> Float[Tensor, "batch points"]:
        """The outputs of new networks of one depth."""
        references = only_first(reference_inputs(self.dim, xs.device), self.active).expand(len(xs), -1, -1)
        states = torch.cat([xs, references], dim=1)
        for layer in range(layers):
            size = self.width if layer < layers - 1 else 1
            weights = torch.randn(len(xs), states.shape[-1], size, generator=rng)
            states = self.gain / states.shape[-1] ** 0.5 * states @ weights
            if layer < layers - 1:
                states = ACTIVATIONS[self.activation](states)
        outputs, at_references = states[..., 0].split([xs.shape[1], REFERENCES], dim=1)
        size = at_references.square().mean(1, keepdim=True)
        return torch.where(size > TINY, outputs / size.clamp_min(TINY).sqrt(), 0)


def first_weights(seed: int, sizes: Sequence[int], gain: float) -> list[Float[Tensor, "into out"]]:
    """The weights, before training, of a network that starts at 0: normal weights, and a last layer of 0. Float64.

    Parameters
    ----------
    sizes
        Coordinates of x, neurons of every hidden layer, and outputs.
    gain
        A weight of a hidden neuron with k inputs has the variance gain² / k.
    """
    rng = stream(seed, "first weights of a trained network")
    drawn = [
        torch.randn(into, out, generator=rng, dtype=torch.float64) * gain / into**0.5
        for into, out in pairwise(sizes)
    ]
    return [*drawn[:-1], torch.zeros_like(drawn[-1])]


@lru_cache(maxsize=16)
def reference_inputs(dim: int, device: torch.device = CPU) -> Float[Tensor, "references dim"]:
    """The fixed inputs of the normalisation, kept because a copy to a GPU at every step would make the host wait."""
    rng = stream("reference inputs of networks")
    return torch.randn(REFERENCES, dim, generator=rng, device=CPU).to(device)


@lru_cache(maxsize=64)
def _mean_square(settings: str) -> float:
    """E f(x)² for x outside the reference inputs, by a simulation with a fixed seed."""
    task = NetworkRegression.model_validate_json(settings)
    rng = stream("mean square of networks")
    total = 0.0
    for _ in range(8):
        xs = torch.randn(SIMULATED_NETWORKS // 8, SIMULATED_INPUTS, task.dim, generator=rng)
        total += float(task._outputs(only_first(xs, task.active), rng).double().square().mean())
    return total / 8
