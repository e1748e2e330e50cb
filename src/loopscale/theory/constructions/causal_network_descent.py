"""Gradient descent on a network in a decoder: every x trains a network of its own on the pairs before it.

The net reads x_1, y_1, x_2, y_2, ... under a causal mask and predicts y at every x. One block of attention copies the
pairs before x_i into the state of x_i, in the order of the prompt. From then on every token attends to itself alone.
Two heads multiply two numbers of the token: relu(s) - relu(-s) is the score s, and the value is the other number. The
state of x_i holds the weights of its network, and an activation and an error for every pair and neuron.
"""

import torch
from jaxtyping import Float
from pydantic import PositiveFloat
from torch import Tensor
from torch.nn.functional import one_hot
from typing_extensions import override

from loopscale.core.prompt import Prompt
from loopscale.tasks.network_regression import first_weights
from loopscale.tasks.regression import Regression
from loopscale.theory.constructions.base import Design
from loopscale.theory.constructions.block_plan import BlockPlan, Form, StateRows, Term
from loopscale.theory.constructions.example import Example, Stated
from loopscale.theory.constructions.network_descent import NetworkTraining, trained_outputs
from loopscale.theory.constructions.regression import interleaved_tokens, random_linear_regression

SYSTEM = "deep optimizers"


class CausalNetworkDescent(NetworkTraining, kind="causal_network_descent"):
    """The solver `trained_network` with the same rate, for ReLU networks without biases, at every query.

    One layer before the loop, 2N in the loop and N after the loop, for networks of N layers. The heads of a block are
    at most four times the largest layer's weights, and a state has a row for every pair and neuron. The result is exact
    for a large `steepness`. A trial can start from these weights, with `training.start`. A trained net needs a small
    `steepness` and a small `bound`, because both multiply every change of a weight.
    """

    source = "derived; @wu2024, theorem 1, has full attention and one query"
    solves, every_query = Regression, True
    bound: PositiveFloat = 100.0
    """An upper bound on weights, errors, and products of errors and activations."""
    steepness: PositiveFloat = 1e10
    """The derivative of relu is 1 from an activation of |error| / steepness on."""

    @override
    def stated(self, prompt: Prompt) -> Stated:
        return Stated("nothing: the theorem has one query, and full attention")

    @override
    def example(self, rng: torch.Generator) -> Example:
        xs, ys = random_linear_regression(rng, dim=2, pairs=7)
        ys = ys.sin()
        outputs = prefix_trainings(self.initial(2), xs, ys, self.rate, steps=8)
        return Example.at(slice(None, None, 2), interleaved_tokens(xs, ys), outputs)

    def initial(self, dim: int) -> list[Float[Tensor, "neurons inputs"]]:
        """The network's initial weights, one matrix per layer."""
        return [weight.mT for weight in first_weights(self.weights_seed, [dim, *self.hidden, 1], self.gain)]

    @override
    def design(self, prompt: Prompt) -> Design:
        self.require(prompt.dim_out == 1 < prompt.dim_in, "tokens that hold x's coordinates and then one y")
        net = _Decoder(self, prompt)
        layers = range(1, len(net.sizes))
        forward = [net.forward(layer, f"a{layer - 1}", net.pairs, f"a{layer}") for layer in layers[:-1]]
        errors = net.errors(layers[-1])
        backward = [net.backward(layer) for layer in reversed(layers[:-1])]
        first = net.learn(BlockPlan(), 1).clear(net.rows["d1"])
        after = [net.forward(layer, f"r{layer - 1}", 1, f"r{layer}") for layer in layers[:-1]]
        after.append(net.forward(layers[-1], f"r{layers[-1] - 1}", 1, "out", rectified=False))
        return Design(
            net.rows,
            net.rows.read_in("r0", "y"),
            net.rows["out"],
            net.positions(prompt.length),
            [net.collect()],
            [*forward, errors, *backward, first],
            after,
            attention="relu",
            causal=True,
        )


class _Decoder:
    """The blocks of the net. Rows `a0` hold the x's and `a1`, `a2`, .. the activations of all pairs, neuron by neuron.

    Rows `d1`, `d2`, .. hold the errors, `w1`, `w2`, .. the weights, and `r0`, `r1`, .. x and its activations.
    """

    def __init__(self, construction: CausalNetworkDescent, prompt: Prompt) -> None:
        self.rate, self.bound, self.steepness = (
            construction.rate,
            construction.bound,
            construction.steepness,
        )
        self.pairs = -(-prompt.length // 2)
        self.weights = construction.initial(prompt.dim_in - 1)
        self.sizes = [prompt.dim_in - 1, *construction.hidden, 1]
        of_pairs = {f"a{layer}": size for layer, size in enumerate(self.sizes[:-1])}
        of_pairs |= {f"d{layer}": size for layer, size in enumerate(self.sizes) if layer}
        of_pairs |= dict.fromkeys(("labels", "slot", "seen"), 1)
        self.rows = StateRows(
            **{name: size * self.pairs for name, size in of_pairs.items()},
            **{f"r{layer}": size for layer, size in enumerate(self.sizes[:-1])},
            **{f"w{layer}": weight.numel() for layer, weight in enumerate(self.weights, 1)},
            **dict.fromkeys(("y", "out", "one", "p", "tx", "share"), 1),
        )

    def positions(self, length: int) -> Float[Tensor, "length D"]:
        """The states without data. A token knows the number of its pair, and an x the number of pairs before it."""
        index = torch.arange(length)
        before, at_x = index // 2, (index % 2 == 0).double()
        seen = (torch.arange(self.pairs) < before[:, None]).double()
        weights = {
            f"w{layer}": at_x[:, None] * weight.flatten() for layer, weight in enumerate(self.weights, 1)
        }
        return self.rows.state(
            length,
            one=1.0,
            p=before.double(),
            tx=at_x,
            slot=one_hot(before, self.pairs).double(),
            seen=at_x[:, None] * seen,
            share=at_x * (before > 0) / before.clamp_min(1),
            **weights,
        )

    def collect(self) -> BlockPlan:
        """Every x copies the pairs before it. A head reads one coordinate, and writes it at the number of its pair."""
        plan, rows = BlockPlan(), self.rows
        for coordinate in range(self.sizes[0]):
            score = [(rows["tx"], rows.part("r0", coordinate))]
            plan.signed_pair(score, [(rows["slot"], self._of_pairs("a0", coordinate))])
        return plan.signed_pair([(rows["tx"], rows["y"])], [(rows["slot"], rows["labels"])])

    def forward(self, layer: int, inputs: str, size: int, outputs: str, rectified: bool = True) -> BlockPlan:
        """A layer's outputs, from `size` numbers for each input."""
        plan, rows = BlockPlan(), self.rows
        for neuron, source, weight in self._weights(layer):
            move = rows.part(inputs, source * size, size), rows.part(outputs, neuron * size, size)
            plan.signed_pair([(weight, rows["one"])], [move], self._itself)
        # relu(z) = z + relu(-z)
        return plan.unit(-rows[outputs], 0.0, rows[outputs]) if rectified else plan

    def errors(self, layer: int) -> BlockPlan:
        """The errors of the outputs, at the pairs before x. The copy of x itself stands at a later place."""
        target, rows = f"d{layer}", self.rows
        plan = self.forward(layer, f"a{layer - 1}", self.pairs, target, rectified=False)
        error, allowed = rows[target] - rows["labels"], self.bound * rows["seen"]
        plan.add(-rows["labels"], rows[target])
        return plan.unit(error - allowed, 0.0, -rows[target]).unit(-error - allowed, 0.0, rows[target])

    def backward(self, layer: int) -> BlockPlan:
        """The errors of a hidden layer, W'd of the layer above where the layer is active. The layer above learns."""
        plan, rows = self.learn(BlockPlan(), layer + 1), self.rows
        for neuron, source, weight in self._weights(layer + 1):
            move = self._of_pairs(f"d{layer + 1}", neuron), self._of_pairs(f"d{layer}", source)
            plan.signed_pair([(weight, rows["one"])], [move], self._itself)
        plan.gate(rows[f"d{layer}"], rows[f"a{layer}"], self.steepness)
        return plan.clear(rows[f"d{layer + 1}"]).clear(rows[f"a{layer}"])

    def learn(self, plan: BlockPlan, layer: int) -> BlockPlan:
        """Every weight of a layer moves by the mean over the pairs of error times input."""
        for neuron, source, weight in self._weights(layer):
            score = [(self._of_pairs(f"d{layer}", neuron), self._of_pairs(f"a{layer - 1}", source))]
            plan.signed_pair(score, [(-self.rate * self.rows["share"], weight)], self._itself)
        return plan

    @property
    def _itself(self) -> list[Term]:
        """Score terms that hide all other tokens. The y of a pair comes after its x, and has no weights and errors."""
        p, one = self.rows["p"], self.rows["one"]
        return [(self.bound * torch.cat([-p, one]), torch.cat([one, p]))]

    def _weights(self, layer: int) -> list[tuple[int, int, Form]]:
        """The number of a neuron and of its input, and the row of their weight."""
        neurons, inputs = self.sizes[layer], self.sizes[layer - 1]
        pairs = ((neuron, source) for neuron in range(neurons) for source in range(inputs))
        return [
            (neuron, source, self.rows.part(f"w{layer}", neuron * inputs + source))
            for neuron, source in pairs
        ]

    def _of_pairs(self, name: str, neuron: int) -> Form:
        """The rows of a neuron, one for each pair."""
        return self.rows.part(name, neuron * self.pairs, self.pairs)


def prefix_trainings(
    weights: list[Float[Tensor, "neurons inputs"]],
    xs: Float[Tensor, "prompts points dim"],
    ys: Float[Tensor, "prompts points 1"],
    rate: float,
    steps: int,
) -> Float[Tensor, "steps prompts points 1"]:
    """The prediction at each point, after every step of training a ReLU network without biases on the points before.

    The prediction at the first point is that of the initial weights.
    """
    at_first = xs[:, 0]
    for weight in weights[:-1]:
        at_first = torch.relu(at_first @ weight.mT)
    guesses = [(at_first @ weights[-1].mT).expand(steps, -1, -1)]
    for i in range(1, xs.shape[1]):
        prefix = slice(i + 1)
        trained = trained_outputs(
            weights, xs[:, prefix], ys[:, prefix], torch.relu, rate, steps, biases=False
        )
        guesses.append(trained[:, :, -1])
    return torch.stack(guesses, dim=2)
