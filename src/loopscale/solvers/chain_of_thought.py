"""The next state of a chain of thought, layer by layer, from the chains before it.

Leaky ReLU is invertible. So the pre-activation of every visible state is known, and it is linear in the previous state:
each layer is one regression. AlgoFormer uses the same reduction (theorem 3.3), with a known activation.
"""

from abc import abstractmethod
from collections.abc import Iterator
from math import pi
from typing import Any, ClassVar

import torch
from jaxtyping import Float
from torch import Tensor
from torch.nn.functional import leaky_relu
from typing_extensions import override

from loopscale.core.prompt import Batch
from loopscale.solvers.base import Solver
from loopscale.solvers.prefixes import Prefixes, chunks
from loopscale.tasks.base import Task
from loopscale.tasks.chain_of_thought import Chains


class LayerSolver(Solver, allow_inf_nan=False):
    """Predicts leaky_relu(W s) from the visible pairs of the layer. A closed form, the same after every step."""

    solves: ClassVar[type] = Chains

    @abstractmethod
    def guess(
        self, prefixes: Prefixes, forecast: Float[Tensor, "batch chains dim"], problem: Chains
    ) -> Float[Tensor, "batch chains dim"]:
        """The next states, from the least-squares forecast of their pre-activations."""

    @override
    def predict(self, batch: Batch, steps: int) -> Float[Tensor, "steps batch points dim_out"]:
        problem = batch.problem
        layers = [torch.cat(list(self._layer(problem, layer)), dim=0) for layer in range(problem.depth)]
        return torch.stack(layers, dim=2).flatten(1, 2).expand(steps, -1, -1, -1)

    def _layer(self, problem: Chains, layer: int) -> Iterator[Float[Tensor, "prompts chains dim"]]:
        xs, ys = (states[:, layer :: problem.depth].double() for states in (problem.xs, problem.ys))
        for prefixes in chunks(xs, torch.where(ys < 0, ys / problem.slope, ys)):
            weights = prefixes.moment / torch.where(prefixes.spanned, prefixes.eigenvalues, 1)
            yield self.guess(prefixes, prefixes.predict(weights), problem)


class LayerLeastSquares(LayerSolver, kind="layer_least_squares", titled="least squares of one layer"):
    """Minimum-norm least squares on the pre-activations of each layer, and the activation of its forecast.

    The algorithm of @gao2024, theorem 3.3. Exact after `dim` demonstrations.
    """

    @override
    def guess(
        self, prefixes: Prefixes, forecast: Float[Tensor, "batch chains dim"], problem: Chains
    ) -> Float[Tensor, "batch chains dim"]:
        return leaky_relu(forecast, problem.slope)


class LayerBayes(LayerSolver, kind="layer_bayes", titled="Bayes predictor of one layer"):
    """The posterior mean of the next state: no predictor has a smaller error at any query.

    Derived here from the reduction of @gao2024, theorem 3.3, to one regression per layer. Valid
    for Gaussian weights only. Given the pairs of its layer, a pre-activation is Gaussian. Its mean m is the least-
    squares forecast. Its variance v is the variance of W's entries times the square of the part of s that the
    visible states do not span. The mean of leaky_relu is `slope m + (1 - slope)(m P(m/√v) + √v p(m/√v))`, where P
    and p are the distribution function and the density of the standard normal.
    """

    @override
    def takes(self, problem: Any) -> bool:
        return isinstance(problem, Chains) and problem.gaussian

    @property
    @override
    def guesses_from_prior(self) -> bool:
        return True

    @override
    def room_below(self, task: Task) -> float | None:
        return 0.0 if task.kind == "chain_of_thought" else None

    @override
    def guess(
        self, prefixes: Prefixes, forecast: Float[Tensor, "batch chains dim"], problem: Chains
    ) -> Float[Tensor, "batch chains dim"]:
        unspanned = (prefixes.query * ~prefixes.spanned).square().sum(-1, keepdim=True)
        deviation = (problem.weight_variance * unspanned).sqrt()
        ratio = forecast / torch.where(deviation > 0, deviation, 1)
        density = torch.exp(-ratio.square() / 2) / (2 * pi) ** 0.5
        positive = forecast * torch.special.ndtr(ratio) + deviation * density
        uncertain = problem.slope * forecast + (1 - problem.slope) * positive
        # Inactive coordinates stay 0.
        active = torch.arange(forecast.shape[-1], device=forecast.device) < problem.at_work
        return torch.where((deviation > 0) & active, uncertain, leaky_relu(forecast, problem.slope))
