"""The next state of a chain of thought, layer by layer, from the chains before it.

A leaky ReLU can be undone, so what it was applied to is known of every state seen, and is linear in the state before:
one regression a layer. AlgoFormer reduces the task to it as well (theorem 3.3), and takes the activation to be undone.
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
    """A guess at leaky_relu(W s) from the pairs of the layer seen so far; a closed form, the same after every step."""

    solves: ClassVar[type] = Chains

    @abstractmethod
    def guess(
        self, prefixes: Prefixes, forecast: Float[Tensor, "batch chains dim"], problem: Chains
    ) -> Float[Tensor, "batch chains dim"]:
        """The next states, given the least-squares forecast of what the activation is applied to."""

    @override
    def predict(self, batch: Batch, steps: int) -> Float[Tensor, "steps batch points dim_out"]:
        problem = batch.problem
        layers = [torch.cat(list(self._layer(problem, layer)), dim=0) for layer in range(problem.depth)]
        return torch.stack(layers, dim=2).flatten(1, 2).expand(steps, -1, -1, -1)

    def _layer(self, problem: Chains, layer: int) -> Iterator[Float[Tensor, "some chains dim"]]:
        xs, ys = (states[:, layer :: problem.depth].double() for states in (problem.xs, problem.ys))
        for prefixes in chunks(xs, torch.where(ys < 0, ys / problem.slope, ys)):
            weights = prefixes.moment / torch.where(prefixes.spanned, prefixes.eigenvalues, 1)
            yield self.guess(prefixes, prefixes.predict(weights), problem)


class LayerLeastSquares(LayerSolver, kind="layer_least_squares"):
    """Least squares of minimum norm on what each layer's activation was applied to, and the activation of its forecast
    (the algorithm of Gao et al. 2024, AlgoFormer, theorem 3.3).

    Exact from `dim` demonstrations on.
    """

    @override
    def guess(
        self, prefixes: Prefixes, forecast: Float[Tensor, "batch chains dim"], problem: Chains
    ) -> Float[Tensor, "batch chains dim"]:
        return leaky_relu(forecast, problem.slope)


class LayerBayes(LayerSolver, kind="layer_bayes"):
    """The mean of the next state given all that was seen: no predictor has less error at any query.

    Derived here, on the reduction to a regression a layer (Gao et al. 2024, AlgoFormer, theorem 3.3).

    For Gaussian weights alone. Given the pairs of its layer, what the activation is applied to is then Gaussian: its
    mean is the least-squares forecast, its variance that of W's entries times the square of the part of s that no state
    seen spans. With m and v, the mean of leaky_relu is slope m + (1 - slope)(m P(m/√v) + √v p(m/√v)), P and p the
    normal distribution and its density.
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
        unseen = (prefixes.query * ~prefixes.spanned).square().sum(-1, keepdim=True)
        spread = (problem.weight_variance * unseen).sqrt()
        ratio = forecast / torch.where(spread > 0, spread, 1)
        density = torch.exp(-ratio.square() / 2) / (2 * pi) ** 0.5
        positive = forecast * torch.special.ndtr(ratio) + spread * density
        uncertain = problem.slope * forecast + (1 - problem.slope) * positive
        moving = (
            torch.arange(forecast.shape[-1], device=forecast.device) < problem.at_work
        )  # the others stay 0
        return torch.where((spread > 0) & moving, uncertain, leaky_relu(forecast, problem.slope))
