"""What can be read off a net's states by a line: a probe for every loop or layer, trained on prompts of its own.

A layer in the middle of a net was never trained to be read, so what it knows shows only through a read-out of its own
(Alain and Bengio 2017). Fu et al. 2023 (arXiv:2310.17086, section 4) train one a layer on the answer, and take what it
gives for the layer's prediction: `read_through`.
"""

from collections.abc import Callable
from dataclasses import dataclass

import pandas as pd
import torch
from jaxtyping import Float, Float64
from torch import Tensor
from typing_extensions import override

from loopscale.analysis.papers.similarity import answers
from loopscale.core.prompt import Batch, Predictor
from loopscale.core.seeds import stream
from loopscale.evaluate import suited
from loopscale.models.base import Net
from loopscale.solvers.base import Solver
from loopscale.tasks.base import Task

RIDGE = 1e-8
"""Penalty on a probe's weights, over the mean square of a coordinate of the state: for what states do not span."""
BLOCK = 64
"""Prompts whose states are held at a time."""

Target = Callable[[Batch], Float[Tensor, "batch points wanted"]]
"""What a probe is to read at every query of a prompt."""


@dataclass(frozen=True)
class Probes:
    """A linear read-out of the state at a query after every step, the same for all queries."""

    weights: Float64[Tensor, "steps width_and_one wanted"]
    """The last row is what is added."""

    def read(
        self, states: Float64[Tensor, "steps batch points width"]
    ) -> Float64[Tensor, "steps batch points wanted"]:
        return torch.einsum("sbpw,swt->sbpt", states, self.weights[:, :-1]) + self.weights[:, None, None, -1]


class ReadThrough(Predictor):
    """A net whose every step answers through a probe of its own, in place of the read-out that it was trained with."""

    def __init__(self, net: Net, probes: Probes) -> None:
        self.net, self.probes = net, probes

    @override
    def predict(self, batch: Batch, steps: int) -> Float64[Tensor, "steps batch points dim_out"]:
        if steps > len(self.probes.weights):
            raise ValueError(f"{steps} steps are more than the {len(self.probes.weights)} that were probed")
        return Probes(self.probes.weights[:steps]).read(_states(self.net, batch, steps))


def the_answer(batch: Batch) -> Tensor:
    return batch.targets


def the_weights(batch: Batch) -> Tensor:
    """Least squares (of minimum norm) on the pairs that a query has seen, for tasks of regression."""
    xs, ys = batch.problem.xs.double(), batch.problem.ys.double()[..., None]
    nothing = torch.zeros(len(xs), xs.shape[-1], dtype=torch.float64)
    found = [(torch.linalg.pinv(xs[:, :seen]) @ ys[:, :seen])[..., 0] for seen in range(1, xs.shape[1])]
    return torch.stack([nothing, *found], dim=1)


def iterate_of(solver: Solver, step: int) -> Target:
    """What a solver answers after `step` steps."""
    return lambda batch: answers(solver, batch, step)[-1]


@torch.no_grad()
def probes(
    net: Net, task: Task, target: Target, steps: int, prompts: int = 512, name: str = "probe"
) -> Probes:
    """Ridge regression of the target on the states at all queries, over `prompts` fresh ones that `name` fixes.

    Raises ValueError for steps beyond the net's depth.
    """
    gram = moment = torch.zeros((), dtype=torch.float64)
    for batch in _prompts(task, prompts, name):
        states = _states(net, batch, steps).flatten(1, 2)
        states = torch.cat([states, torch.ones_like(states[..., :1])], dim=-1)
        gram = gram + states.mT @ states
        moment = moment + states.mT @ target(batch).double().flatten(0, 1)
    scale = gram.diagonal(dim1=-2, dim2=-1).mean(-1)[:, None, None]
    return Probes(
        torch.linalg.solve(gram + RIDGE * scale * torch.eye(gram.shape[-1], dtype=torch.float64), moment)
    )


@torch.no_grad()
def probed(
    net: Net, task: Task, target: Target, steps: int, prompts: int = 512, held_out: int = 256
) -> pd.DataFrame:
    """A row for every step: the error of its probe on prompts that it was not trained on.

    Over the target's mean square, so that reading nothing costs 1.
    """
    trained = probes(net, task, target, steps, prompts)
    square = size = torch.zeros((), dtype=torch.float64)
    for batch in _prompts(task, held_out, "held out"):
        wanted = target(batch).double()
        square = square + (trained.read(_states(net, batch, steps)) - wanted).square().sum((1, 2, 3))
        size = size + wanted.square().sum()
    return pd.DataFrame({"step": range(1, steps + 1), "error": (square / size).numpy()})


def read_through(net: Net, task: Task, steps: int, prompts: int = 512) -> ReadThrough:
    """The net with a read-out for every step, trained to give the answer there."""
    return ReadThrough(net, probes(net, task, the_answer, steps, prompts))


def _prompts(task: Task, prompts: int, name: str) -> list[Batch]:
    return [
        task.sample(min(BLOCK, prompts - start), stream("probing", name, start))
        for start in range(0, prompts, BLOCK)
    ]


def _states(net: Net, batch: Batch, steps: int) -> Float64[Tensor, "steps batch points width"]:
    return net.states(suited(batch, net, "cpu").tokens, steps)[:, :, batch.queries].double()
