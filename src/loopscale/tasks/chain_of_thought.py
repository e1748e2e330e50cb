"""A chain of thought by a net drawn for every prompt: x, s^1 .. s^L, the states of its layers; predict the next one.

AlgoFormer, section 5.1 and figure 2c, after Li et al. 2023: L = 6, leaky ReLU, x ~ N(0, I_20). All chains of a prompt
are of one net, s^l = leaky_relu(W^l s^{l-1}); they stand one after another, x, s^1, .., s^L, x, s^1, .., one token a
state, with no mark of where in its chain a token stands but its position. A prediction is asked for at every token
but the last states: of every state of every chain. The last chain is the query, all before it its demonstrations;
that the earlier ones are asked for as well is the paper's loss (eq. 6, over all positions).

The paper leaves the weights and the slope open. Here W^l has entries N(0, v), v = 2/((1 + slope²) dim), or is a
uniform orthogonal matrix times sqrt(v dim); no biases. Given any state the next one has the same mean square on
average, so every state of every chain has variance 1, exactly. There is no noise, so the floor is 0 once a chain has
`dim` demonstrations. With Gaussian weights the Bayes predictor is known in closed form (solver `layer_bayes`), so
they are the default. Their price is that the size of deep states varies from chain to chain: the mean square of |s|²
grows by 1 + (6(1 + slope⁴)/(1 + slope²)² - 1)/dim a layer, to 3.8 after 6 layers at dim 20 and slope 0.01, to 18 at
dim 5 and slope 0.5, where few chains carry all of the loss and small nets hardly learn. Orthogonal weights make it
1 + 3((1 - slope²)/(1 + slope²))²/(dim + 2): 2.2 and 2.4.

States are not centred: the best guess before any demonstration is their mean, and costs 1 - (1 - slope)² / (π (1 +
slope²)) with Gaussian weights, not 1.

An easier task has fewer coordinates in every state and fewer chains; a chain keeps all of its states.
"""

from dataclasses import dataclass
from typing import Literal

import torch
from jaxtyping import Float
from pydantic import Field, PositiveInt
from torch import Tensor
from torch.nn.functional import leaky_relu
from typing_extensions import override

from loopscale.core.prompt import Batch, Prompt
from loopscale.tasks.bases import bases
from loopscale.tasks.graded import GradedTask


@dataclass(frozen=True)
class Chains:
    """States and what follows them, query by query: x, s^1 .. s^{L-1} of the first chain, then of the second ..

    A query may use every query before it, and so, of its own layer, the chains before its own.
    """

    xs: Float[Tensor, "batch queries dim"]
    """The state before."""
    ys: Float[Tensor, "batch queries dim"]
    """The state after: leaky_relu(W xs), W that of the query's layer."""
    depth: int
    """L: queries 0, L, 2L .. share the first layer, and so on."""
    slope: float
    weight_variance: float
    """Of an entry of W."""
    gaussian: bool
    """Whether entries of W are Gaussian, and so independent."""
    at_work: int
    """Coordinates of a state that may be other than 0, the first ones."""


class ChainOfThought(GradedTask, kind="chain_of_thought", allow_inf_nan=False):
    dim: PositiveInt = 20
    """Coordinates of a state."""
    points: PositiveInt = 40
    """Chains in the prompt: chain k = 0 .. points-1 has k demonstrations before it."""
    depth: PositiveInt = 6
    """L, layers of the net, and so the states after x in every chain; every one of them is a query."""
    slope: float = Field(0.01, ge=0.001, le=1)
    """Of the leaky ReLU below zero; not 0, so that a state tells what the activation was applied to. States are in
    float32: after `dim` = 20 demonstrations the Bayes predictor still errs by 2e-9 with 0.001, by 2e-4 with 1e-6.
    """
    weights: Literal["gaussian", "orthogonal"] = "gaussian"
    """How W is drawn; orthogonal ones keep the size of deep states from varying much, which small nets need."""

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
        """Of an entry of W^l: a leaky ReLU keeps (1 + slope²)/2 of a mean square (He et al. 2015, eq. 15)."""
        return 2 / ((1 + self.slope**2) * self.at_work)

    @override
    def sample(self, batch_size: int, rng: torch.Generator) -> Batch:
        active = self.at_work
        states = [torch.randn(batch_size, self.points, active, generator=rng)]
        for _ in range(self.depth):
            states.append(leaky_relu(states[-1] @ self._layer(batch_size, active, rng), self.slope))
        chains = torch.nn.functional.pad(torch.stack(states, dim=2), (0, self.dim - active))
        before, after = chains[:, :, :-1].flatten(1, 2), chains[:, :, 1:].flatten(1, 2)
        positions = torch.arange(self.points * (self.depth + 1)).unflatten(0, (self.points, self.depth + 1))
        return Batch(
            tokens=chains.flatten(1, 2)[:, :-1],
            targets=after,
            queries=positions[:, :-1].flatten(),
            problem=Chains(
                before,
                after,
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
    def measures(
        self, prediction: Float[Tensor, "steps batch points dim_out"], batch: Batch
    ) -> dict[str, Float[Tensor, "steps batch"]]:
        """`chain_step_1` .. : the error at s^1, s^2 .., averaged over chains."""
        by_step = self.error(prediction, batch).unflatten(-1, (-1, self.depth)).mean(-2)
        return {f"chain_step_{step + 1}": by_step[..., step] for step in range(self.depth)}
