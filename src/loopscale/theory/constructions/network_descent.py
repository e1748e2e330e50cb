"""Gradient descent on a network, in context: the state holds the weights of a second network and trains this network on
the prompt [@wu2024].

The net reads tokens (x_i, y_i). The last token is (x, 0) and is not trained on. The trained network is
`f(x) = W_N r(... r(W_1 x + b_1) ...) + b_N`. A step descends on `Σ_i |f(x_i) - y_i|² / 2n`. The registers are the
network's neurons, each with its incoming weights. The prompt's tokens hold activations a and errors δ. The one-hot
number of a neuron stands in rows that belong to its layer, so that a head can attend to one layer only. After a step
the weights can be projected onto the box |w| <= `box`, the domain of the theorem on softmax attention.
"""

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import ClassVar, Literal

import torch
from jaxtyping import Float
from pydantic import Field, PositiveFloat, PositiveInt
from torch import Tensor
from torch.nn.functional import pad
from typing_extensions import override

from loopscale.core.prompt import Prompt
from loopscale.tasks.network_regression import first_weights
from loopscale.tasks.regression import Regression
from loopscale.theory.constructions.base import Construction, Design
from loopscale.theory.constructions.block_plan import BlockPlan, Move, StateRows, Term, stacked
from loopscale.theory.constructions.example import Example, Limit, Stated
from loopscale.theory.constructions.gadgets import SoftmaxSums
from loopscale.theory.constructions.logic import (
    add_indicators,
    add_products,
    add_switched,
    signed_heads,
)
from loopscale.theory.constructions.piecewise import Piecewise, uniform_knots
from loopscale.theory.constructions.regression import random_linear_regression

SYSTEM = "deep optimizers"

SMOOTH: dict[str, tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]]] = {
    "tanh": (torch.tanh, lambda z: 1 - torch.tanh(z) ** 2),
    "softplus": (torch.nn.functional.softplus, torch.sigmoid),
}
"""Activations with their derivatives."""


class NetworkTraining(Construction):
    """Settings of constructions that train a network on the prompt."""

    algorithm: ClassVar[str] = "gradient descent on a multi-layer perceptron"
    hidden: tuple[PositiveInt, ...] = (4,)
    """The number of neurons of each hidden layer. N is the number of hidden layers plus 1."""
    rate: PositiveFloat = 0.1
    """η, the step size for the mean over the pairs."""
    weights_seed: int = Field(0, ge=0)
    """The seed of the network's initial weights. Its biases start at 0."""
    gain: PositiveFloat = 1.0
    """A weight of a neuron with k inputs has the variance gain² / k."""


class NetworkDescent(NetworkTraining, SoftmaxSums, kind="network_descent"):
    """Gradient descent on a network of N layers. A step takes 2N blocks, and N more read the outputs at every token.

    relu is exact as long as no activation lies in (0, threshold) and no error exceeds the bound. Its derivative is a
    bit, and the MLP multiplies by a bit exactly. tanh and softplus, their derivatives and the products with the
    derivatives are piecewise linear functions in the MLPs. (The source assumes smooth activations, which excludes
    relu.)

    Softmax attention reads the products from small scores beside a sink. With one hidden layer a step takes the four
    layers of the source's softmax theorem. The theorem has four layers for any N, because it takes the gradient as one
    function that a layer approximates. No weights are known for that, so that a deeper network takes 2N layers here.
    The bound `deep_icgd_layers` has the numbers of layers of the source.

    As a baseline the net runs once for each query, on the pairs before the query. With `start: trained_network` and
    `biases: false` the steps are those of the solver of this name.
    """

    source = "@wu2024, theorems 1 (ReLU) and 6 (softmax)"
    solves, least_pairs = Regression, 1
    activation: Literal["relu", "tanh", "softplus"] = "relu"
    """The activation of the trained network."""
    box: PositiveFloat | None = None
    """The largest |weight| and |bias|: every step ends with the projection onto this box. `None` for no projection."""
    attention: Literal["linear", "relu", "softmax"] = "linear"
    """The kind of attention. linear and relu are exact, softmax is accurate for a small scale."""
    threshold: PositiveFloat = 1e-8
    """γ: the derivative of relu is 1 from this activation on."""
    bound: PositiveFloat = 100.0
    """An upper bound on |errors|, of outputs and before the multiplication by derivatives."""
    pieces: PositiveInt = 256
    """M, the number of pieces of smooth functions and of squares."""
    reach: PositiveFloat = 8.0
    """Knots lie in [-reach, reach]. Pre-activations, and derivative + error, must not exceed this range."""
    start: Literal["normal", "trained_network"] = "normal"
    """The initial weights. normal: normal weights in every layer. trained_network: those of the solver of this name,
    whose last layer starts at 0."""
    biases: bool = True
    """False for a network without biases, like the networks of the task `network_regression`."""

    @property
    @override
    def limit(self) -> Limit | None:
        if self.activation != "relu" and self.hidden:
            return Limit("pieces", 2.0, (64.0, 128.0, 256.0, 512.0))
        return self.scale_limit(coarser=10.0) if self.attention == "softmax" else None

    @override
    def stated(self, prompt: Prompt) -> Stated:
        accuracy, layers = "within ηε of every descent step", len(self.hidden) + 1
        if self.attention == "softmax":
            return Stated(accuracy, "4 per step")
        return Stated(accuracy, f"2N + 4 = {2 * layers + 4} per step", "Õ(ε^-2)", "O(NK²) + D_w")

    @override
    def example(self, rng: torch.Generator) -> Example:
        xs, ys = random_linear_regression(rng, dim=3, pairs=12)
        tokens = pair_tokens(xs, ys.sin())
        weights = self.initial(Prompt(xs.shape[1], tokens.shape[2], ys.shape[2]))
        activation = torch.relu if self.activation == "relu" else SMOOTH[self.activation][0]
        outputs = trained_outputs(weights, xs, ys.sin(), activation, self.rate, 10, self.box, self.biases)
        return Example(tokens, outputs)

    def initial(self, prompt: Prompt) -> list[Float[Tensor, "neurons inputs"]]:
        """The network's initial weights, one matrix per layer."""
        sizes = [prompt.dim_in - prompt.dim_out, *self.hidden, prompt.dim_out]
        if self.start == "trained_network":
            return [weight.mT for weight in first_weights(self.weights_seed, sizes, self.gain)]
        rng = torch.Generator().manual_seed(self.weights_seed)
        drawn = [torch.randn(out, into, generator=rng, dtype=torch.float64) for into, out in pairwise(sizes)]
        return [self.gain / weight.shape[1] ** 0.5 * weight for weight in drawn]

    @override
    def tokens_before(self, problem: Regression, query: int) -> Float[Tensor, "batch tokens dim_in"]:
        pairs = slice(query + 1)
        return pair_tokens(problem.xs[:, pairs].double(), problem.ys[:, pairs, None].double())

    @override
    def design(self, prompt: Prompt) -> Design:
        self.require(prompt.dim_in > prompt.dim_out, "tokens that hold x's coordinates and then y's")
        self.require(prompt.length > 1, "at least one pair before the last x")
        weights = self.initial(prompt)
        layers, rows = len(weights), _rows(weights)
        neurons = [_neurons(rows, layer, weight) for layer, weight in enumerate(weights, 1)]
        sink = [rows.state(1, one=1.0, sink=1.0)] if self.attention == "softmax" else []
        registers = torch.cat([*neurons, *sink])
        read_in, read_out = rows.read_in("a0", "y"), rows.part("z", 0, prompt.dim_out)
        flags = {"one": 1.0, "data": 1.0}
        tokens = [rows.state(prompt.length - 1, **flags, train=1.0), rows.state(1, **flags)]
        forward = [
            self._remember(self._forward(rows, n, layers), rows, n, layers) for n in range(1, layers + 1)
        ]
        backward = [self._backward(rows, layer) for layer in reversed(range(1, layers))]
        update = self._update(rows, layers, self.rate / (prompt.length - 1))
        after = [self._forward(rows, layer, layers) for layer in range(1, layers + 1)]
        positions, loop = torch.cat([registers, *tokens]), [*forward, *backward, update]
        return Design(rows, read_in, read_out, positions, (), loop, after, self.attention)

    def _forward(self, rows: StateRows, layer: int, layers: int) -> BlockPlan:
        """Compute z, the layer's pre-activations, at every token of the prompt. Then a, except in the last layer."""
        inputs, own = rows[f"a{layer - 1}"], rows[f"u{layer}"]
        score = [(inputs, rows.part("w", 0, len(inputs))), (rows["data"], rows["bias"])]
        sums = rows.part("z", 0, len(own))
        plan = self._add_products(BlockPlan(), rows, score, [(own, sums)])
        if layer == layers:
            return plan
        if self.activation == "relu":
            return plan.unit(sums, 0.0, rows[f"a{layer}"]).clear(sums)
        return (
            self._by_pieces(SMOOTH[self.activation][0]).add_units(plan, sums, rows[f"a{layer}"]).clear(sums)
        )

    def _remember(self, plan: BlockPlan, rows: StateRows, layer: int, layers: int) -> BlockPlan:
        """Keep a layer's derivatives (of relu one layer later), or the errors of the last layer, for training."""
        if self.activation == "relu" and layer > 1:
            add_indicators(plan, rows[f"a{layer - 1}"], rows[f"p{layer - 1}"], self.threshold)
        if layer == layers:
            error = rows.part("z", 0, len(rows["y"])) - rows["y"]
            train = rows["train"].expand(len(error), -1)
            return add_switched(plan, error, train, self.bound, rows[f"d{layer}"]).clear(rows["z"])
        if self.activation != "relu":
            slope, target = SMOOTH[self.activation][1], rows[f"p{layer}"]
            self._by_pieces(slope).add_units(plan, rows.part("z", 0, len(target)), target)
        return plan

    def _backward(self, rows: StateRows, layer: int) -> BlockPlan:
        """The layer's errors: its derivatives times W' δ of the layer above."""
        target, slopes = rows[f"d{layer}"], rows[f"p{layer}"]
        sums = rows.part("z", 0, len(target))
        score = [(rows[f"d{layer + 1}"], rows[f"u{layer + 1}"])]
        weights = rows.part("w", 0, len(target))
        plan = self._add_products(BlockPlan(), rows, score, [(weights, sums)]).clear(sums)
        if self.activation == "relu":
            return add_switched(plan, sums, slopes, self.bound, target)
        return add_products(plan, slopes, sums, target, self._by_pieces(torch.square))

    def _update(self, rows: StateRows, layers: int, rate: float) -> BlockPlan:
        """Every neuron adds up errors times inputs. The prompt's tokens clear the numbers of this step."""
        plan = BlockPlan()
        for layer in range(1, layers + 1):
            inputs = rows[f"a{layer - 1}"]
            moves: list[Move] = [(-rate * inputs, rows.part("w", 0, len(inputs)))]
            if self.biases:
                moves.append((-rate * rows["data"], rows["bias"]))
            self._add_products(plan, rows, [(rows[f"u{layer}"], rows[f"d{layer}"])], moves)
            plan.clear(rows[f"d{layer}"])
            if layer < layers:
                plan.clear(rows[f"a{layer}"]).clear(rows[f"p{layer}"])
        if self.box is not None:
            trained = torch.cat([rows["w"], rows["bias"]])
            plan.unit(trained, -self.box, -trained).unit(-trained, -self.box, trained)
        return plan

    def _add_products(
        self, plan: BlockPlan, rows: StateRows, score: list[Term], moves: list[Move]
    ) -> BlockPlan:
        """Heads that add Σ_j score_ij · source_j to the target rows."""
        if self.attention != "softmax":
            return signed_heads(plan, self.attention, score, moves)
        (query, key), (source, target) = stacked(score), stacked(moves)
        products = self.summed_by("sink")
        return products.add(plan, query, key, (source, target), products.sink(rows))

    def _by_pieces(self, function: Callable[[Tensor], Tensor]) -> Piecewise:
        return Piecewise.through(function, uniform_knots(-self.reach, self.reach, self.pieces), 1)


def _rows(weights: list[Tensor]) -> StateRows:
    widest = max(max(weight.shape) for weight in weights)
    sizes = {"a0": weights[0].shape[1], "y": len(weights[-1])}
    for layer, weight in enumerate(weights, 1):
        names = "ud" if layer == len(weights) else "udap"
        sizes |= {f"{name}{layer}": len(weight) for name in names}
    return StateRows(
        **sizes, w=widest, z=widest, **dict.fromkeys(("bias", "data", "train", "one", "sink"), 1)
    )


def _neurons(rows: StateRows, layer: int, weight: Tensor) -> Tensor:
    """The states of the registers of a layer."""
    padded = pad(weight, (0, rows.sizes["w"] - weight.shape[1]))
    return rows.state(
        len(weight), one=1.0, w=padded, **{f"u{layer}": torch.eye(len(weight), dtype=torch.float64)}
    )


def pair_tokens(
    xs: Float[Tensor, "prompts points dim"], ys: Float[Tensor, "prompts points targets"]
) -> Float[Tensor, "prompts points dim_in"]:
    """The input of the net: (x, y), and (x, 0) for the last point."""
    return torch.cat([xs, pad(ys[:, :-1], (0, 0, 0, 1))], -1)


def trained_outputs(
    weights: Sequence[Float[Tensor, "_ _"]],
    xs: Float[Tensor, "prompts points dim"],
    ys: Float[Tensor, "prompts points targets"],
    activation: Callable[[Tensor], Tensor],
    rate: float,
    steps: int,
    box: float | None = None,
    biases: bool = True,
) -> Float[Tensor, "steps prompts points targets"]:
    """The network's outputs at every point after every step on all points but the last. Biases start at 0.

    Without `biases` they stay 0.
    Every step ends with the projection of weights and biases onto |w| <= box.
    """
    most = math.inf if box is None else box

    def outputs(layers: list[tuple[Tensor, Tensor]], a: Tensor) -> Tensor:
        (last, offset), before = layers[-1], layers[:-1]
        for weight, bias in before:
            a = activation(a @ weight.mT + bias)
        return a @ last.mT + offset

    def loss(layers: list[tuple[Tensor, Tensor]]) -> Tensor:
        """The sum over prompts. Each prompt has its own network."""
        error = outputs(layers, xs[:, :-1]) - ys[:, :-1]
        return error.square().sum() / (2 * error.shape[1])

    layers = [(w.expand(len(xs), -1, -1), xs.new_zeros(len(xs), 1, len(w))) for w in weights]
    trained = []
    for _ in range(steps):
        slopes = torch.func.grad(loss)(layers)
        moved = [
            (w - rate * dw, b - rate * biases * db) for (w, b), (dw, db) in zip(layers, slopes, strict=True)
        ]
        layers = [(w.clamp(-most, most), b.clamp(-most, most)) for w, b in moved]
        trained.append(outputs(layers, xs))
    return torch.stack(trained)
