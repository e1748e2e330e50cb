"""How alike two predictors are, every step of one with every step of the other (Fu et al. 2023, arXiv:2310.17086).

Their section 4.1 compares algorithms by two cosines, each averaged over prompts. *Similarity of errors* is that of the
residuals at all queries of a prompt. *Similarity of induced weights* is that of the weights which a predictor acts as
if it had: its pairs are held fixed, it is asked at random inputs, and its answers are regressed on these.

Both are near 1 for any two predictors that solve the problem, whichever way they came there: similarity alone tells no
algorithms apart. What does is how the best-matching step grows, for which see `trend.py`.
"""

# pandas types every selection as a union of all that it could be: those rules find nothing here but that.
# pyright: reportArgumentType=false, reportAttributeAccessIssue=false, reportGeneralTypeIssues=false

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
import torch
import torch.nn.functional as F
from jaxtyping import Float, Float64
from torch import Tensor

from loopscale.core.prompt import Batch, Predictor
from loopscale.evaluate import suited
from loopscale.tasks.base import Task
from loopscale.tasks.regression import Regression, pose

QUESTIONS = 4
"""Random inputs at which a predictor is asked, for every coordinate of an input."""
TIE = 1e-6
"""Similarities that differ by less are equal: an iteration that has converged repeats itself."""

Steps = tuple[int, int]
Matrix = Float64[Tensor, "steps_of_one steps_of_other"]


@dataclass(frozen=True)
class Asked:
    """Prompts whose pairs stay while the input at the end, where an answer is asked for, is drawn again and again."""

    batch: Batch
    """A prompt for every question: those of the first problem, then those of the second, ..."""
    inputs: Float[Tensor, "problems questions dim"]


@torch.no_grad()
def similarity_of_errors(one: Predictor, other: Predictor, batch: Batch, steps: Steps) -> Matrix:
    """The mean over prompts of cos(ŷ_one - y, ŷ_other - y), vectors over the queries of a prompt.

    `steps` are those of `one` and of `other`. A vector of zeros is like nothing: its cosine is 0.
    """
    return cosines(*(residuals(each, batch, many) for each, many in zip((one, other), steps, strict=True)))


@torch.no_grad()
def similarity_of_weights(one: Predictor, other: Predictor, asked: Asked, steps: Steps) -> Matrix:
    """The mean over problems of the cosine of the weights that the two induce."""
    return cosines(
        *(induced_weights(each, asked, many) for each, many in zip((one, other), steps, strict=True))
    )


def cosines(one: Float64[Tensor, "a batch n"], other: Float64[Tensor, "b batch n"]) -> Matrix:
    """The mean over prompts of the cosines of vectors of n numbers, of every step with every step."""
    return torch.einsum("abn,cbn->ac", F.normalize(one, dim=-1), F.normalize(other, dim=-1)) / one.shape[1]


@torch.no_grad()
def residuals(predictor: Predictor, batch: Batch, steps: int) -> Float64[Tensor, "steps batch queries"]:
    """ŷ - y at every query, coordinates of the target one after the other."""
    return (answers(predictor, batch, steps) - batch.targets).flatten(2)


@torch.no_grad()
def induced_weights(predictor: Predictor, asked: Asked, steps: int) -> Float64[Tensor, "steps problems dim"]:
    """Least squares of the predictor's answers on the inputs at which it was asked: X̃⁺ỹ after every step.

    A linear predictor's own weights, to rounding.
    """
    found = answers(predictor, asked.batch, steps)[:, :, -1, 0]
    return (torch.linalg.pinv(asked.inputs.double()) @ found.unflatten(1, asked.inputs.shape[:2])[..., None])[
        ..., 0
    ]


def ask(
    task: Task, rng: torch.Generator, problems: int = 64, seen: int | None = None, questions: int = 0
) -> Asked:
    """Problems of the task, each with its first `seen` pairs (default: all but one) and `questions` random inputs.

    Questions are drawn as the problem's own inputs are: they are the rest of a longer prompt. By default there are four
    for every coordinate. Raises ValueError for a task that is no regression on pairs, or more pairs than it has.
    """
    points = int(getattr(task, "points", 0))
    seen = points - 1 if seen is None else seen
    if not 0 < seen < points:
        raise ValueError(
            f"{seen} pairs and a question are no prompt of {task.kind} with {points} points; write 1 .. {points - 1}"
        )
    few = task.model_copy(update={"points": seen + 1}).sample(1, torch.Generator().manual_seed(0)).problem
    if not isinstance(few, Regression):
        raise ValueError(f"{task.kind} is no regression whose weights could be asked for; take one that is")
    questions = questions or QUESTIONS * few.xs.shape[-1]
    problem = task.model_copy(update={"points": seen + questions}).sample(problems, rng).problem

    def posed(values: Tensor) -> Tensor:
        """[problems, seen + questions, ..] as prompts of `seen` + 1, one for every question."""
        pairs = values[:, None, :seen].expand(-1, questions, *[-1] * (values.ndim - 1))
        return torch.cat([pairs, values[:, seen:, None]], dim=2).flatten(0, 1)

    representation = None if problem.representation is None else posed(problem.representation)
    prompts = replace(
        problem, xs=posed(problem.xs), ys=posed(problem.ys), representation=representation, first=0
    )
    return Asked(pose(prompts, "encoder" if task.whole else "decoder"), problem.xs[:, seen:])


@torch.no_grad()
def answers(predictor: Predictor, batch: Batch, steps: int) -> Float64[Tensor, "steps batch points dim_out"]:
    """What it predicts, in float64, whatever its weights are in."""
    return predictor.predict(suited(batch, predictor, "cpu"), steps).double()


def table(similarity: Matrix) -> pd.DataFrame:
    """A row for every pair of steps, both counted from 1: step (of one), iterate (of the other), similarity."""
    steps, iterates = (np.arange(1, many + 1) for many in similarity.shape)
    rows = {"step": np.repeat(steps, len(iterates)), "iterate": np.tile(iterates, len(steps))}
    return pd.DataFrame(rows | {"similarity": similarity.flatten().numpy()})


def best_matches(similarities: pd.DataFrame, by: Iterable[str] = ()) -> pd.DataFrame:
    """The iterate that every step is most like (the first of equals), and how much; one table for all of `by`.

    `last` is True where that is the last iterate there is: a later one might be better still.
    """
    columns, rows = [*by, "step"], []
    for at, group in similarities.groupby(columns, sort=False):
        group = group.sort_values("iterate")
        values = group["similarity"].to_numpy(dtype=np.float64)
        best = int(np.argmax(values >= values.max() - TIE))
        rows.append((*at, int(group["iterate"].iloc[best]), values[best], best == len(values) - 1))
    return pd.DataFrame(rows, columns=[*columns, "iterate", "similarity", "last"])
