"""Linear probes: what a line reads from the states of a net, with a probe for every loop or layer.

A layer in the middle of a net was never trained to be read. Its knowledge shows only through a read-out of its own
[@alain2017]. @fu2023, section 4, train one read-out for each layer on the answer.
The prediction of this read-out counts as the prediction of the layer (`with_probes`).
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float, Float64
from torch import Tensor
from typing_extensions import override

from loopscale.core.prompt import Batch, Predictor
from loopscale.core.seeds import stream
from loopscale.evaluate import suited
from loopscale.models.base import Net
from loopscale.stats.contrasts import Array
from loopscale.tasks.base import Task

RIDGE = 1e-8
"""Penalty on a probe's weights, over the mean square of a coordinate of the state. States may not span their space."""
BLOCK = 64
"""Prompts whose states are in memory at a time."""

Target = Callable[[Batch], Float[Tensor, "batch points wanted"]]
"""The values that a probe reads, at every query of a prompt."""


@dataclass(frozen=True)
class Probes:
    """A linear read-out of the state at a query after every step, the same for all queries. The last row is added."""

    weights: Float64[Tensor, "steps width_and_one wanted"]

    def read(
        self, states: Float64[Tensor, "steps batch points width"]
    ) -> Float64[Tensor, "steps batch points wanted"]:
        return torch.einsum("sbpw,swt->sbpt", states, self.weights[:, :-1]) + self.weights[:, None, None, -1]


class ProbedNet(Predictor):
    """A net whose steps all answer through probes, and not through the read-out that the net was trained with."""

    def __init__(self, net: Net, probes: Probes) -> None:
        self.net, self.probes = net, probes

    @override
    def predict(self, batch: Batch, steps: int) -> Float64[Tensor, "steps batch points dim_out"]:
        if steps > len(self.probes.weights):
            raise ValueError(f"{steps} steps are more than the {len(self.probes.weights)} probed steps")
        return Probes(self.probes.weights[:steps]).read(_states(self.net, batch, steps))


def target_answer(batch: Batch) -> Tensor:
    """The answer at every query."""
    return batch.targets


def target_weights(batch: Batch) -> Tensor:
    """Least squares (of minimum norm) on the pairs before each query, for tasks of regression."""
    xs, ys = batch.problem.xs.double(), batch.problem.ys.double()[..., None]
    before_any = torch.zeros(len(xs), xs.shape[-1], dtype=torch.float64)
    weights = [(torch.linalg.pinv(xs[:, :seen]) @ ys[:, :seen])[..., 0] for seen in range(1, xs.shape[1])]
    return torch.stack([before_any, *weights], dim=1)


@torch.no_grad()
def fit_probes(
    net: Net, task: Task, target: Target, steps: int, prompts: int = 512, name: str = "probe"
) -> Probes:
    """Ridge regression of the target on the states at all queries, over fresh prompts that `name` fixes.

    Raises ValueError for steps beyond the net's depth.
    """
    gram = moment = torch.zeros((), dtype=torch.float64)
    for batch in _prompts(task, prompts, name):
        states = _states(net, batch, steps).flatten(1, 2)
        states = torch.cat([states, torch.ones_like(states[..., :1])], dim=-1)
        gram = gram + states.mT @ states
        moment = moment + states.mT @ target(batch).double().flatten(0, 1)
    scale = gram.diagonal(dim1=-2, dim2=-1).mean(-1)[:, None, None]
    penalty = RIDGE * scale * torch.eye(gram.shape[-1], dtype=torch.float64)
    return Probes(torch.linalg.solve(gram + penalty, moment))


@torch.no_grad()
def probe_errors(
    net: Net, task: Task, target: Target, steps: int, prompts: int = 512, held_out: int = 256
) -> Array:
    """The error of every step's probe on held-out prompts, [steps].

    Over the target's mean square, so that a probe that reads nothing costs 1.
    """
    probes = fit_probes(net, task, target, steps, prompts)
    square = size = torch.zeros((), dtype=torch.float64)
    for batch in _prompts(task, held_out, "held out"):
        wanted = target(batch).double()
        square = square + (probes.read(_states(net, batch, steps)) - wanted).square().sum((1, 2, 3))
        size = size + wanted.square().sum()
    return (square / size).numpy()


def with_probes(net: Net, task: Task, steps: int, prompts: int = 512) -> ProbedNet:
    """The net with a read-out for every step, trained to give the answer there."""
    return ProbedNet(net, fit_probes(net, task, target_answer, steps, prompts))


def _prompts(task: Task, prompts: int, name: str) -> list[Batch]:
    return [
        task.sample(min(BLOCK, prompts - start), stream("probing", name, start))
        for start in range(0, prompts, BLOCK)
    ]


def _states(net: Net, batch: Batch, steps: int) -> Float64[Tensor, "steps batch points width"]:
    return net.states(suited(batch, net, "cpu").tokens, steps)[:, :, batch.queries].double()
