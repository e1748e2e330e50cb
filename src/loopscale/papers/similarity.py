"""How similar two predictors are, every step of one with every step of the other [@fu2023].

Section 4.1 of the paper compares algorithms by two cosines, each averaged over prompts. *Similarity of errors* is the
cosine of the residuals at all queries of a prompt. *Similarity of induced weights* is the cosine of the weights that a
predictor acts as if it had: the pairs stay fixed, the predictor answers at random inputs, and its answers are regressed
on these inputs.

Both cosines are near 1 for any two predictors that solve the problem, whichever way they solve it. Similarity alone
tells no algorithms apart. The growth of the best-matching step does (`best_matches.py`).
"""

from dataclasses import dataclass, replace

import torch
from jaxtyping import Float, Float64
from torch import Tensor

from loopscale.core.prompt import Batch, Predictor
from loopscale.tasks.base import Task
from loopscale.tasks.regression import Regression, pose
from loopscale.training.similarity import predictions

INPUTS_PER_COORDINATE = 4
"""Random inputs of a problem, for every coordinate of an input."""


@dataclass(frozen=True)
class InputSweep:
    """Problems whose pairs stay fixed, each posed once for every one of its random last inputs."""

    batch: Batch
    """One prompt for every input: the prompts of the first problem, then those of the second, ..."""
    inputs: Float[Tensor, "problems inputs dim"]


@torch.no_grad()
def least_squares_weights(
    predictor: Predictor, sweep: InputSweep, steps: int
) -> Float64[Tensor, "steps problems dim"]:
    """Least squares of the predictor's answers on the random inputs: X̃⁺ỹ after every step.

    For a linear predictor these are its own weights, up to rounding.
    """
    answers = predictions(predictor, sweep.batch, steps)[:, :, -1, 0].unflatten(1, sweep.inputs.shape[:2])
    return (torch.linalg.pinv(sweep.inputs.double()) @ answers[..., None])[..., 0]


def sweep_inputs(
    task: Task, rng: torch.Generator, problems: int = 64, seen: int | None = None, inputs: int = 0
) -> InputSweep:
    """Random problems of a task, each posed at random inputs after the same pairs.

    The inputs follow the distribution of the problem's own inputs: they are the rest of a longer prompt.

    Parameters
    ----------
    seen
        Pairs before the last input; by default all but one.
    inputs
        Random inputs of every problem; by default four for every coordinate.

    Raises
    ------
    ValueError
        For a task that is no regression on pairs, or more pairs than the task has.
    """
    points = int(getattr(task, "points", 0))
    seen = points - 1 if seen is None else seen
    if not 0 < seen < points:
        raise ValueError(
            f"{seen} pairs and one query exceed a prompt of {task.kind} with {points} points; write 1 .. {points - 1}"
        )
    small = task.model_copy(update={"points": seen + 1}).sample(1, torch.Generator().manual_seed(0)).problem
    if not isinstance(small, Regression):
        raise ValueError(f"{task.kind} is no regression, so predictors induce no weights; use a regression")
    inputs = inputs or INPUTS_PER_COORDINATE * small.xs.shape[-1]
    problem = task.model_copy(update={"points": seen + inputs}).sample(problems, rng).problem

    def posed(values: Tensor) -> Tensor:
        """[problems, seen + inputs, ..] as prompts of `seen` + 1, one for every input."""
        pairs = values[:, None, :seen].expand(-1, inputs, *[-1] * (values.ndim - 1))
        return torch.cat([pairs, values[:, seen:, None]], dim=2).flatten(0, 1)

    representation = None if problem.representation is None else posed(problem.representation)
    prompts = replace(
        problem, xs=posed(problem.xs), ys=posed(problem.ys), representation=representation, first=0
    )
    return InputSweep(pose(prompts, "encoder" if task.whole else "decoder"), problem.xs[:, seen:])
