"""Gradient descent on a network, in context: the net holds another net's weights, and trains it on the prompt.

The net reads tokens (x_i, y_i), the last of them (x, 0), on which it does not train. The network is
W_N r(.. r(W_1 x + b_1) ..) + b_N, and a step descends on Σ |f(x_i) - y_i|² / 2n. Registers are its neurons, each
with the weights that enter it; the prompt's tokens hold activations a and errors δ. A neuron of layer l has its
number, one-hot, in rows of that layer alone: this is what lets a head see one layer only.
"""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Literal

import torch
from jaxtyping import Float
from pydantic import Field, PositiveFloat, PositiveInt
from torch import Tensor
from torch.nn.functional import pad
from typing_extensions import override

from loopscale.core.prompt import Prompt
from loopscale.theory.constructions.base import Construction, Design
from loopscale.theory.constructions.example import Example, Limit
from loopscale.theory.constructions.logic import Signed, bits, passing, switched, times
from loopscale.theory.constructions.piecewise import Piecewise, even
from loopscale.theory.constructions.plan import Plan, Rows
from loopscale.theory.constructions.regression import problem

SMOOTH: dict[str, tuple[Callable[[Tensor], Tensor], Callable[[Tensor], Tensor]]] = {
    "tanh": (torch.tanh, lambda z: 1 - torch.tanh(z) ** 2),
    "softplus": (torch.nn.functional.softplus, torch.sigmoid),
}
"""Activations and their derivatives."""


class NetworkDescent(Construction, kind="network_descent"):
    """Steps of gradient descent on a network of N layers, 2N blocks each; N more read its outputs, at every token.

    relu is exact while no activation is in (0, threshold) and no error more than the bound in size: a derivative is a
    bit, and a product with a bit needs no attention. A smooth activation, its derivative and the products with that
    are by pieces, in the MLPs. (The source's assumptions on derivatives leave relu out.)
    """

    source = (
        "Wu et al. 2025 (In-context deep learning), where a step is 2N + 4 layers, N of them for products"
    )
    algorithm = "gradient descent on a multi-layer perceptron"
    hidden: tuple[PositiveInt, ...] = (4,)
    """Neurons of each layer but the last; N is one more than there are."""
    activation: Literal["relu", "tanh", "softplus"] = "relu"
    """Of the network that is trained."""
    rate: PositiveFloat = 0.1
    """η, for the mean over pairs."""
    attention: Signed = "linear"
    """Of the layers that multiply coordinates, exactly."""
    threshold: PositiveFloat = 1e-8
    """γ: the derivative of relu is 1 from here on."""
    bound: PositiveFloat = 100.0
    """|errors| at most, of outputs and before they are multiplied by derivatives."""
    pieces: PositiveInt = 256
    """M, of smooth functions and of squares."""
    reach: PositiveFloat = 8.0
    """Where these are good: what neurons sum, and sums of a derivative and an error, are at most so large."""
    weights_seed: int = Field(0, ge=0)
    """Of the network's first weights, which are normal; its biases are first 0."""
    gain: PositiveFloat = 1.0
    """A weight of a neuron that reads k others has the variance gain² / k."""

    @property
    @override
    def limit(self) -> Limit | None:
        exact = self.activation == "relu" or not self.hidden
        return None if exact else Limit("pieces", 2.0, (64.0, 128.0, 256.0, 512.0))

    @override
    def example(self, rng: torch.Generator) -> Example:
        xs, ys = problem(rng, dim=3, pairs=12)
        tokens = told(xs, ys.sin())
        weights = self.initial(Prompt(xs.shape[1], tokens.shape[2], ys.shape[2]))
        activation = torch.relu if self.activation == "relu" else SMOOTH[self.activation][0]
        return Example(tokens, descent(weights, xs, ys.sin(), activation, self.rate, steps=10))

    def initial(self, prompt: Prompt) -> list[Float[Tensor, "neurons inputs"]]:
        """The network's first weights, a matrix for each layer."""
        rng = torch.Generator().manual_seed(self.weights_seed)
        sizes = [prompt.dim_in - prompt.dim_out, *self.hidden, prompt.dim_out]
        drawn = [torch.randn(out, into, generator=rng, dtype=torch.float64) for into, out in pairwise(sizes)]
        return [self.gain / weight.shape[1] ** 0.5 * weight for weight in drawn]

    @override
    def design(self, prompt: Prompt) -> Design:
        self.require(prompt.dim_in > prompt.dim_out, "tokens of x's coordinates and then y's")
        self.require(prompt.length > 1, "a pair or more, and then the x in question")
        weights = self.initial(prompt)
        layers, rows = len(weights), _rows(weights)
        registers = torch.cat([_neurons(rows, layer, weight) for layer, weight in enumerate(weights, 1)])
        read_in, read_out = torch.cat([rows["a0"], rows["y"]]).T, rows.part("z", 0, prompt.dim_out)
        tokens = [rows.state(prompt.length - 1, data=1.0, train=1.0), rows.state(1, data=1.0)]
        forward = [
            self._remember(self._forward(rows, n, layers), rows, n, layers) for n in range(1, layers + 1)
        ]
        backward = [self._backward(rows, layer) for layer in reversed(range(1, layers))]
        update = self._update(rows, layers, self.rate / (prompt.length - 1))
        after = [self._forward(rows, layer, layers) for layer in range(1, layers + 1)]
        return Design(
            rows, read_in, read_out, torch.cat([registers, *tokens]), (), [*forward, *backward, update], after,
            self.attention, registers=len(registers),
        )  # fmt: skip

    def _forward(self, rows: Rows, layer: int, layers: int) -> Plan:
        """z, what the layer's neurons sum, at every token of the prompt; and a, but for the last layer."""
        inputs, own = rows[f"a{layer - 1}"], rows[f"u{layer}"]
        score = [(inputs, rows.part("w", 0, len(inputs))), (rows["data"], rows["bias"])]
        sums = rows.part("z", 0, len(own))
        plan = passing(Plan(), self.attention, score, [(own, sums)])
        if layer == layers:
            return plan
        if self.activation == "relu":
            return plan.unit(sums, 0.0, rows[f"a{layer}"]).clear(sums)
        return self._by_pieces(SMOOTH[self.activation][0]).units(plan, sums, rows[f"a{layer}"]).clear(sums)

    def _remember(self, plan: Plan, rows: Rows, layer: int, layers: int) -> Plan:
        """What only training needs of a layer: its derivatives, of relu a layer late; of the last, the errors."""
        if self.activation == "relu" and layer > 1:
            bits(plan, rows[f"a{layer - 1}"], rows[f"p{layer - 1}"], self.threshold)
        if layer == layers:
            off = rows.part("z", 0, len(rows["y"])) - rows["y"]
            train = rows["train"].expand(len(off), -1)
            return switched(plan, off, train, self.bound, rows[f"d{layer}"]).clear(rows["z"])
        if self.activation != "relu":
            slope, target = SMOOTH[self.activation][1], rows[f"p{layer}"]
            self._by_pieces(slope).units(plan, rows.part("z", 0, len(target)), target)
        return plan

    def _backward(self, rows: Rows, layer: int) -> Plan:
        """The layer's errors: derivatives times W' δ, of the layer above."""
        target, slopes = rows[f"d{layer}"], rows[f"p{layer}"]
        sums = rows.part("z", 0, len(target))
        score = [(rows[f"d{layer + 1}"], rows[f"u{layer + 1}"])]
        plan = passing(Plan(), self.attention, score, [(rows.part("w", 0, len(target)), sums)]).clear(sums)
        if self.activation == "relu":
            return switched(plan, sums, slopes, self.bound, target)
        return times(plan, slopes, sums, target, self._by_pieces(torch.square))

    def _update(self, rows: Rows, layers: int, rate: float) -> Plan:
        """Every neuron collects errors times inputs; what a step has left at the prompt's tokens is cleared."""
        plan = Plan()
        for layer in range(1, layers + 1):
            inputs = rows[f"a{layer - 1}"]
            moves = [(-rate * inputs, rows.part("w", 0, len(inputs))), (-rate * rows["data"], rows["bias"])]
            passing(plan, self.attention, [(rows[f"u{layer}"], rows[f"d{layer}"])], moves)
            plan.clear(rows[f"d{layer}"])
            if layer < layers:
                plan.clear(rows[f"a{layer}"]).clear(rows[f"p{layer}"])
        return plan

    def _by_pieces(self, function: Callable[[Tensor], Tensor]) -> Piecewise:
        return Piecewise.through(function, even(-self.reach, self.reach, self.pieces), 1)


def _rows(weights: list[Tensor]) -> Rows:
    widest = max(max(weight.shape) for weight in weights)
    sizes = {"a0": weights[0].shape[1], "y": len(weights[-1])}
    for layer, weight in enumerate(weights, 1):
        names = "ud" if layer == len(weights) else "udap"
        sizes |= {f"{name}{layer}": len(weight) for name in names}
    return Rows(**sizes, w=widest, z=widest, bias=1, data=1, train=1)


def _neurons(rows: Rows, layer: int, weight: Tensor) -> Tensor:
    """The registers of a layer."""
    spread = pad(weight, (0, rows.sizes["w"] - weight.shape[1]))
    return rows.state(len(weight), w=spread, **{f"u{layer}": torch.eye(len(weight), dtype=torch.float64)})


def told(
    xs: Float[Tensor, "prompts points dim"], ys: Float[Tensor, "prompts points targets"]
) -> Float[Tensor, "prompts points dim_in"]:
    """What the net reads: x and y together, but of the last point only x."""
    return torch.cat([xs, pad(ys[:, :-1], (0, 0, 0, 1))], -1)


def descent(
    weights: Sequence[Float[Tensor, "_ _"]],
    xs: Float[Tensor, "prompts points dim"],
    ys: Float[Tensor, "prompts points targets"],
    activation: Callable[[Tensor], Tensor],
    rate: float,
    steps: int,
) -> Float[Tensor, "steps prompts points targets"]:
    """What the network says of every point, after every step on all but the last, from these weights and biases 0."""

    def outputs(layers: list[tuple[Tensor, Tensor]], a: Tensor) -> Tensor:
        (last, offset), before = layers[-1], layers[:-1]
        for weight, bias in before:
            a = activation(a @ weight.mT + bias)
        return a @ last.mT + offset

    def loss(layers: list[tuple[Tensor, Tensor]]) -> Tensor:
        """The sum over prompts, each of which has a network of its own."""
        off = outputs(layers, xs[:, :-1]) - ys[:, :-1]
        return off.square().sum() / (2 * off.shape[1])

    layers = [(w.expand(len(xs), -1, -1), xs.new_zeros(len(xs), 1, len(w))) for w in weights]
    said = []
    for _ in range(steps):
        slopes = torch.func.grad(loss)(layers)
        layers = [(w - rate * dw, b - rate * db) for (w, b), (dw, db) in zip(layers, slopes, strict=True)]
        said.append(outputs(layers, xs))
    return torch.stack(said)
