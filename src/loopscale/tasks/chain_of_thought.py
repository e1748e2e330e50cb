"""Chain of thought of a random net: x, s^1 .. s^L, the states of its layers. The task is to predict the next state.

Source: @gao2024, section 5.1 and figure 2c, after @li2023: L = 6, leaky ReLU, x ~ N(0, I_20). Every prompt
draws one net, s^l = leaky_relu(W^l s^{l-1}), and all chains of the prompt come from this net. The chains follow one
another, x, s^1, .., s^L, x, s^1, .., with one token per state. Only the position tells where in its chain a token
stands.

The task asks for a prediction at every token except the last state of each chain: for every state of every chain. The
last chain is the query, and the earlier chains are demonstrations. The loss covers the earlier chains too, as in the
paper (eq. 6, over all positions).

The paper does not give the weights and the slope. Here W^l has entries N(0, v) with v = 2/((1 + slope²) dim), or is a
uniform orthogonal matrix times sqrt(v dim). There are no biases. Each layer keeps the mean square of its input on
average, so every state of every chain has variance exactly 1.

There is no noise, so the floor is 0 after `dim` demonstrations. For Gaussian weights the Bayes predictor has a closed
form (solver `layer_bayes`). Therefore they are the default. Their disadvantage: the size of deep states varies
between chains. Each layer multiplies the mean square of |s|² by 1 + (6(1 + slope⁴)/(1 + slope²)² - 1)/dim. After 6
layers this is 3.8 at dim 20 and slope 0.01, and 18 at dim 5 and slope 0.5. Then few chains carry all of the loss, and
small nets hardly learn. With orthogonal weights the factor is 1 + 3((1 - slope²)/(1 + slope²))²/(dim + 2): 2.2 and
2.4.

States are not centred. The best prediction before any demonstration is their mean. With Gaussian weights this
prediction costs 1 - (1 - slope)² / (π (1 + slope²)), not 1.

An easier task has fewer coordinates per state and fewer chains. Every chain keeps all of its states.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import torch
from jaxtyping import Float
from pydantic import Field, PositiveInt
from torch import Tensor
from torch.nn.functional import leaky_relu
from typing_extensions import override

from loopscale.core.prompt import Batch, Prompt
from loopscale.core.seeds import stream
from loopscale.tasks.base import FloorRule, GradedTask, Measures, Prediction
from loopscale.tasks.tensors import bases

SIMULATED = 2**14
"""Number of chains in the simulation of the mean states."""


@dataclass(frozen=True)
class Chains:
    """States and their successors: x, s^1 .. s^{L-1} of the first chain, then of the second chain, and so on.

    A query may use every earlier query. For its own layer, these are the queries of earlier chains.
    """

    xs: Float[Tensor, "batch queries dim"]
    """The current states."""
    ys: Float[Tensor, "batch queries dim"]
    """The next states: leaky_relu(W xs), where W belongs to the layer of the query."""
    depth: int
    """L. Queries 0, L, 2L .. belong to the first layer, queries 1, L+1, .. to the second."""
    slope: float
    weight_variance: float
    """Variance of an entry of W."""
    gaussian: bool
    """Whether the entries of W are Gaussian and therefore independent."""
    at_work: int
    """Number of coordinates of a state that can be non-zero: the first coordinates."""


class ChainOfThought(GradedTask, kind="chain_of_thought", allow_inf_nan=False):
    dim: PositiveInt = 20
    """Coordinates of a state."""
    points: PositiveInt = 40
    """Chains in the prompt. Chain k = 0 .. points-1 follows k demonstrations."""
    depth: PositiveInt = 6
    """L, layers of the net. Every chain has L states after x, and every state is predicted."""
    slope: float = Field(0.01, ge=0.001, le=1)
    """Slope of the leaky ReLU below zero. Not 0, so that a state determines the input of its activation. States are
    float32: after `dim` = 20 demonstrations the Bayes predictor has error 2e-9 with slope 0.001, 2e-4 with 1e-6."""
    weights: Literal["gaussian", "orthogonal"] = "gaussian"
    """Distribution of W. With orthogonal W the size of deep states varies less, which small nets need."""

    @property
    @override
    def prompt(self) -> Prompt:
        return Prompt(length=self.points * (self.depth + 1) - 1, dim_in=self.dim, dim_out=self.dim)

    @property
    @override
    def variance(self) -> float:
        return self.at_work / self.dim

    @property
    @override
    def noise_variance(self) -> float:
        return 0.0

    @property
    def weight_variance(self) -> float:
        """Variance of an entry of W^l. A leaky ReLU keeps (1 + slope²)/2 of a mean square [@he2015, eq. 15]."""
        return 2 / ((1 + self.slope**2) * self.at_work)

    @property
    @override
    def floor_rule(self) -> FloorRule:
        if self.weights == "gaussian":
            return FloorRule("bayes", {"kind": "layer_bayes"})
        return FloorRule("reference", {"kind": "layer_least_squares"})

    @property
    @override
    def fixed_guess(self) -> Float[Tensor, "points dim_out"]:
        return _mean_states(self.model_dump_json())

    @override
    def sample(self, batch_size: int, rng: torch.Generator) -> Batch:
        active = self.at_work
        states = [torch.randn(batch_size, self.points, active, generator=rng)]
        for _ in range(self.depth):
            states.append(leaky_relu(states[-1] @ self._layer(batch_size, active, rng), self.slope))
        chains = torch.nn.functional.pad(torch.stack(states, dim=2), (0, self.dim - active))
        current, following = chains[:, :, :-1].flatten(1, 2), chains[:, :, 1:].flatten(1, 2)
        positions = torch.arange(self.points * (self.depth + 1)).unflatten(0, (self.points, self.depth + 1))
        return Batch(
            tokens=chains.flatten(1, 2)[:, :-1],
            targets=following,
            queries=positions[:, :-1].flatten(),
            problem=Chains(
                current,
                following,
                self.depth,
                self.slope,
                self.weight_variance,
                self.weights == "gaussian",
                self.at_work,
            ),
        )

    def _layer(self, batch_size: int, dim: int, rng: torch.Generator) -> Float[Tensor, "batch dim dim"]:
        if self.weights == "orthogonal":
            return (self.weight_variance * dim) ** 0.5 * bases(batch_size, dim, rng)
        return self.weight_variance**0.5 * torch.randn(batch_size, dim, dim, generator=rng)

    @override
    def measures(self, prediction: Prediction, batch: Batch) -> Measures:
        """`chain_step_1`, `chain_step_2` ..: the error at s^1, s^2 .., averaged over chains."""
        by_step = self.error(prediction, batch).unflatten(-1, (-1, self.depth)).mean(-2)
        return {f"chain_step_{step + 1}": by_step[..., step] for step in range(self.depth)}


@lru_cache(maxsize=4)
def _mean_states(settings: str) -> Float[Tensor, "queries dim"]:
    """The mean of every state, from a simulation with a fixed seed. All chains and coordinates have the same mean."""
    task = ChainOfThought.model_validate_json(settings)
    batch = task.sample(max(1, SIMULATED // task.points), stream("mean states"))
    by_layer = (
        batch.targets[..., : task.at_work].double().unflatten(1, (task.points, task.depth)).mean((0, 1, 3))
    )
    mean = by_layer.repeat(task.points)[:, None].expand(-1, task.dim)
    return (mean * (torch.arange(task.dim) < task.at_work)).float()
