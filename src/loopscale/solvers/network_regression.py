"""Regression on random networks: kernels of wide networks, and networks that are trained on every prefix of a prompt.

A prefix is the set of pairs before a query. Every prefix of every prompt has its own network, and all networks train at
once. Before the first pair every solver predicts 0.
"""

from collections.abc import Iterator
from functools import lru_cache
from itertools import islice
from typing import Any, ClassVar, Literal

import torch
from jaxtyping import Float
from numpy.polynomial.hermite_e import hermegauss
from pydantic import Field, NonNegativeFloat, PositiveFloat, PositiveInt
from torch import Tensor
from typing_extensions import override

from loopscale.core.prompt import Batch
from loopscale.solvers.base import Solver
from loopscale.solvers.prefixes import prompts_per_chunk
from loopscale.tasks.network_regression import (
    ACTIVATIONS,
    Activation,
    NetworkPairs,
    first_weights,
    reference_inputs,
)

LEAST_NOISE = 1e-9
"""The smallest σ² over the mean of the kernel. Labels without noise have the resolution of float32."""
NODES, TERMS = 96, 40
"""Nodes of the quadrature over a Gaussian variable, and terms of a series in Hermite polynomials."""


class NetworkSolver(Solver):
    """A solver of `NetworkPairs`. Settings that are `None` are those of the task's networks."""

    solves: ClassVar[type] = NetworkPairs
    layers: int | None = Field(default=None, ge=2)
    """N, the number of layers; `None` for the number of the task. Of a mixture of architectures, a kernel has all
    numbers, and a network that is trained has the largest one."""
    activation: Activation | None = None
    """The activation of the hidden layers; `None` for the activation of the task."""


class KernelRidge(NetworkSolver, kind="kernel_ridge", allow_inf_nan=False):
    """Kernel ridge regression with the kernel of wide random networks. Takes one step.

    The outputs of random networks become a Gaussian process if all hidden layers become wide [@lee2018]. The kernel of
    ReLU networks has a closed form [@cho2009]. Smooth activations need a series in Hermite polynomials. With the
    default penalty this is the posterior mean of the Gaussian process: the Bayes predictor of infinitely wide networks.
    With several numbers of layers the kernel is the mean of their kernels. The prediction is then the best linear one.
    """

    penalty: NonNegativeFloat | None = None
    """λ, added to the diagonal of a kernel whose mean is 1. By default the σ² of the task."""

    @override
    def predict(self, batch: Batch, steps: int) -> Float[Tensor, "steps batch points 1"]:
        problem: NetworkPairs = batch.problem
        prompts = prompts_per_chunk(TERMS * problem.xs.shape[1] ** 2)
        means = [
            self._means(problem, xs.double(), ys.double())
            for xs, ys in zip(problem.xs.split(prompts), problem.ys.split(prompts), strict=True)
        ]
        return torch.cat(means)[:, problem.first :, None].expand(steps, -1, -1, -1)

    def _means(
        self, problem: NetworkPairs, xs: Float[Tensor, "batch points dim"], ys: Float[Tensor, "batch points"]
    ) -> Float[Tensor, "batch points"]:
        """E(y | the pairs before) at every x. With K = LL' and z = L⁻¹ y, this is y_k - L_kk z_k at the pair k."""
        depths = (self.layers,) if self.layers else problem.depths
        activation = self.activation or problem.activation
        references = reference_inputs(xs.shape[-1]).to(xs) * (xs[:, :1] != 0)  # coordinates in use
        kernels = [
            network_kernel(xs, layers, activation, problem.gain)
            / _diagonal(references, layers, activation, problem.gain).mean(-1)[:, None, None]
            for layers in depths
        ]
        kernel = torch.stack(kernels).mean(0)
        penalty = max(problem.noise_variance if self.penalty is None else self.penalty, LEAST_NOISE)
        factor = torch.linalg.cholesky(kernel + penalty * torch.eye(xs.shape[1]).to(xs))
        whitened = torch.linalg.solve_triangular(factor, ys[..., None], upper=False)[..., 0]
        means = ys - factor.diagonal(dim1=-2, dim2=-1) * whitened
        return torch.cat([torch.zeros_like(means[:, :1]), means[:, 1:]], dim=1)


def network_kernel(
    xs: Float[Tensor, "*batch points dim"], layers: int, activation: Activation, gain: float
) -> Float[Tensor, "*batch points points"]:
    """E f(x) f(x') over random networks with wide hidden layers [@lee2018, eq. 5].

    Parameters
    ----------
    xs
        Inputs, in float64.
    layers
        N, the number of layers.
    gain
        A weight of a neuron with k inputs has the variance gain² / k.
    """
    products = gain**2 * xs @ xs.mT / xs.shape[-1]
    for _ in range(layers - 1):
        squares = products.diagonal(dim1=-2, dim2=-1)
        sizes = squares.clamp_min(1e-300).sqrt()
        cosines = (products / (sizes[..., :, None] * sizes[..., None, :])).clamp(-1, 1)
        dual = _relu_dual if activation == "relu" else _hermite_dual
        products = gain**2 * dual(sizes, cosines, activation)
    return products


def _diagonal(
    xs: Float[Tensor, "*batch points dim"], layers: int, activation: Activation, gain: float
) -> Float[Tensor, "*batch points"]:
    """E f(x)², the diagonal of `network_kernel`."""
    squares = gain**2 * xs.square().mean(-1)
    for _ in range(layers - 1):
        nodes, weights = _quadrature()
        values = ACTIVATIONS[activation](squares.sqrt()[..., None] * nodes.to(xs))
        squares = gain**2 * (values.square() * weights.to(xs)).sum(-1)
    return squares


def _relu_dual(
    sizes: Float[Tensor, "*batch points"], cosines: Float[Tensor, "*batch points points"], _: Activation
) -> Float[Tensor, "*batch points points"]:
    """E relu(u) relu(v) for Gaussian u and v: the arc-cosine kernel of order 1 [@cho2009]."""
    angles = cosines.arccos()
    shape = (angles.sin() + (torch.pi - angles) * cosines) / (2 * torch.pi)
    return sizes[..., :, None] * sizes[..., None, :] * shape


def _hermite_dual(
    sizes: Float[Tensor, "*batch points"],
    cosines: Float[Tensor, "*batch points points"],
    activation: Activation,
) -> Float[Tensor, "*batch points points"]:
    """E r(u) r(v) for Gaussian u and v: Σ_k c_k(u) c_k(v) cos^k, with the Hermite coefficients c_k of r.

    The diagonal comes from the quadrature itself, because the series is shortest there.
    """
    nodes, weights = (part.to(sizes) for part in _quadrature())
    values = ACTIVATIONS[activation](sizes[..., None] * nodes) * weights
    coefficients = values @ _hermite_polynomials().to(sizes)
    series, power = torch.zeros_like(cosines), torch.ones_like(cosines)
    for k in range(TERMS):
        column = coefficients[..., k]
        series = series + column[..., :, None] * column[..., None, :] * power
        power = power * cosines
    exact = (ACTIVATIONS[activation](sizes[..., None] * nodes).square() * weights).sum(-1)
    return series + torch.diag_embed(exact - series.diagonal(dim1=-2, dim2=-1))


@lru_cache(maxsize=1)
def _quadrature() -> tuple[Float[Tensor, " nodes"], Float[Tensor, " nodes"]]:
    """Nodes and weights of E g(z) for z ~ N(0, 1)."""
    nodes, weights = hermegauss(NODES)
    return torch.from_numpy(nodes), torch.from_numpy(weights / weights.sum())


@lru_cache(maxsize=1)
def _hermite_polynomials() -> Float[Tensor, "nodes terms"]:
    """The Hermite polynomials at the nodes. They are orthonormal for z ~ N(0, 1)."""
    nodes = _quadrature()[0]
    columns = [torch.ones_like(nodes), nodes]
    for k in range(1, TERMS - 1):
        columns.append((nodes * columns[k] - k**0.5 * columns[k - 1]) / (k + 1) ** 0.5)
    return torch.stack(columns, dim=1)


class TrainedNetwork(NetworkSolver, kind="trained_network", allow_inf_nan=False):
    """A network that is trained on the pairs before the query, from the same random weights for all prompts [@wu2024].

    The loss is the mean of |f(x_i) - y_i|² / 2 over the pairs. The last layer starts at 0, so that the first prediction
    is 0. (With all weights at 0, as in the theorems, no layer but the last has a gradient.) Every step ends with the
    projection of the weights onto the box |w| <= `box`, the domain of theorem 6.
    """

    optimiser: Literal["gradient_descent", "adam"] = "gradient_descent"
    """adam has the usual decay rates .9 and .999."""
    rate: PositiveFloat | None = None
    """η, the step size. By default .05 for gradient descent and .01 for Adam."""
    width: PositiveInt | None = None
    """Neurons of each hidden layer; `None` for the width of the task's networks."""
    held_out: int | None = Field(default=None, ge=2)
    """Every so many pairs, one pair does not enter the loss. The prediction is then that of the step with the least
    error on these pairs, among the steps so far (early stopping). `None` for no early stopping."""
    box: PositiveFloat = 10.0
    """The largest |weight|."""
    weights_seed: int = Field(default=0, ge=0)
    """The seed of the first weights, which have the distribution of the task's networks."""

    @classmethod
    @override
    def stepwise(cls, problem: Any) -> tuple[Solver, ...]:
        if not isinstance(problem, NetworkPairs):
            return ()
        return cls(), cls(optimiser="adam")

    @override
    def work(self, problem: Any) -> int:
        return (self.layers or max(problem.depths)) * (self.width or problem.width)

    @override
    def predict(self, batch: Batch, steps: int) -> Float[Tensor, "steps batch points 1"]:
        problem: NetworkPairs = batch.problem
        width = self.width or problem.width
        points = problem.xs.shape[1]
        prompts = prompts_per_chunk(points * points * width)
        parts = [
            torch.stack(list(islice(self._predictions(problem, xs.double(), ys.double()), steps)))
            for xs, ys in zip(problem.xs.split(prompts), problem.ys.split(prompts), strict=True)
        ]
        return torch.cat(parts, dim=1)[..., None]

    def _predictions(
        self, problem: NetworkPairs, xs: Float[Tensor, "batch points dim"], ys: Float[Tensor, "batch points"]
    ) -> Iterator[Float[Tensor, "batch queries"]]:
        """The predictions at the queries after step 1, 2, .., without end."""
        points = torch.arange(xs.shape[1], device=xs.device)
        queries = points[problem.first :]
        before = points < queries[:, None]
        kept = (
            (points + 1) % self.held_out == 0 if self.held_out else torch.zeros_like(points, dtype=torch.bool)
        )
        fitted, judged = _shares(before & ~kept), _shares(before & kept)
        training = _Training(self, problem, len(xs), len(queries), xs)
        best, least = torch.zeros_like(ys[:, queries]), (judged * ys[:, None].square()).sum(-1)
        while True:
            training.step(xs, ys, fitted)
            outputs = training.outputs(xs)
            predictions = outputs.gather(2, queries[None, :, None].expand(len(xs), -1, 1))[..., 0]
            predictions = predictions * before.any(-1)
            if self.held_out:
                error = (judged * (outputs - ys[:, None]).square()).sum(-1)
                better = (error < least) | ~(before & kept).any(-1)
                best, least = torch.where(better, predictions, best), torch.where(better, error, least)
                predictions = best
            yield predictions


def _shares(used: Tensor) -> Float[Tensor, "queries points"]:
    """The weight of every pair in the mean over the used pairs. 0 for a prefix without used pairs."""
    return used.double() / used.sum(-1, keepdim=True).clamp_min(1)


class _Training:
    """The networks of all prefixes, and the state of their optimiser."""

    def __init__(
        self, solver: TrainedNetwork, problem: NetworkPairs, prompts: int, queries: int, like: Tensor
    ) -> None:
        layers, width = solver.layers or max(problem.depths), solver.width or problem.width
        self.activation = ACTIVATIONS[solver.activation or problem.activation]
        self.adam = solver.optimiser == "adam"
        self.rate = solver.rate or (0.01 if self.adam else 0.05)
        self.box = solver.box
        sizes = [like.shape[-1], *[width] * (layers - 1), 1]
        self.weights = [
            weight.to(like).expand(prompts, queries, -1, -1).clone()
            for weight in first_weights(solver.weights_seed, sizes, problem.gain)
        ]
        self.moments = [(torch.zeros_like(weight), torch.zeros_like(weight)) for weight in self.weights]
        self.steps = 0

    def outputs(self, xs: Float[Tensor, "batch points dim"]) -> Float[Tensor, "batch queries points"]:
        """The outputs of the network of every query at all inputs of its prompt."""
        states = xs[:, None]
        for weight in self.weights[:-1]:
            states = self.activation(states @ weight)
        return (states @ self.weights[-1])[..., 0]

    def step(self, xs: Tensor, ys: Tensor, shares: Float[Tensor, "queries points"]) -> None:
        """One step on the mean of half the squared errors."""
        self.steps += 1
        with torch.enable_grad():
            self.weights = [weight.detach().requires_grad_() for weight in self.weights]
            loss = (shares * (self.outputs(xs) - ys[:, None]).square()).sum() / 2
            gradients = torch.autograd.grad(loss, self.weights)
        with torch.no_grad():
            moves = (
                self._adam_moves(gradients) if self.adam else [self.rate * gradient for gradient in gradients]
            )
            self.weights = [
                (weight - move).clamp(-self.box, self.box)
                for weight, move in zip(self.weights, moves, strict=True)
            ]

    def _adam_moves(self, gradients: tuple[Tensor, ...]) -> list[Tensor]:
        moves = list[Tensor]()
        for number, gradient in enumerate(gradients):
            first, second = self.moments[number]
            first = 0.9 * first + 0.1 * gradient
            second = 0.999 * second + 0.001 * gradient.square()
            self.moments[number] = first, second
            mean = first / (1 - 0.9**self.steps)
            size = (second / (1 - 0.999**self.steps)).sqrt()
            moves.append(self.rate * mean / (size + 1e-8))
        return moves
