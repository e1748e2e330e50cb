"""The similarity of a net in training to the iterates of solvers [@fu2023, section 4.1].

The measure is the *similarity of errors*: the cosine of the residuals of two predictors at all queries of a prompt,
averaged over prompts. The best match of a net is the iterate with the largest similarity.
"""

from functools import lru_cache
from typing import Annotated, Any

import torch
import torch.nn.functional as F
from jaxtyping import Float64
from pydantic import BeforeValidator, Field, PositiveInt
from torch import Tensor

from loopscale.core.config import Config
from loopscale.core.prompt import Batch, Predictor
from loopscale.core.seeds import stream
from loopscale.evaluate import prompt_set, suited
from loopscale.models.base import Net
from loopscale.solvers.base import Solver
from loopscale.stats.best_matches import HALF_MATCH, MATCH, SIMILARITY, best_matches, between_iterates
from loopscale.tasks.base import Task
from loopscale.tasks.regression import Pairs

COMPARED_PROMPTS = 256
"""Prompts of the validation set on which a net in training is compared with solvers."""


def _by_kind(data: Any) -> Any:
    """A solver that is written as its kind."""
    return {"kind": data} if isinstance(data, str) else data


class Compared(Config):
    """A solver whose iterates a net in training is compared with."""

    solver: Annotated[Solver, BeforeValidator(_by_kind, json_schema_input_type=Solver | str)]
    """The solver, by its kind alone or with its settings."""
    iterates: PositiveInt = Field(64, le=10_000)
    """The number of iterates. A net that matches the last one might match a later one better."""

    def require(self, task: Task) -> None:
        """Raises ValueError if the solver does not solve the task, or if the task is no regression on pairs."""
        problem = task.sample(1, stream("problem")).problem
        if not isinstance(problem, Pairs):
            raise ValueError(
                f"training.similar_to compares the errors of a regression, and {task.kind} is none; leave it out"
            )
        if not self.solver.accepts(problem):
            raise ValueError(
                f"training.similar_to names {self.solver.kind}, which does not solve {task.kind}; write another solver"
            )

    def metrics_of(self, depth: int | None, steps: int) -> dict[str, str]:
        """The names of the metrics by their prefix, for a net of this depth that answers after `steps`."""
        looped = depth is None and steps > 1
        return {
            prefix: prefix + self.solver.kind
            for prefix in (SIMILARITY, MATCH, *([HALF_MATCH] if looped else []))
        }


def measured(report: int) -> bool:
    """True at the reports 1, 2, 4, 8, .., at which a net in training is compared. A training also ends with one."""
    return report & (report - 1) == 0


def similarity_metrics(net: Net, task: Task, steps: int, compared: tuple[Compared, ...]) -> dict[str, float]:
    """The similarity of a net's answers to the iterates of solvers, on validation prompts.

    A looped net answers after every loop. The answer of a net of fixed depth is that of its last layer, because the
    read-out knows the last layer alone.

    Parameters
    ----------
    steps
        T, the loops or layers of the net.

    Returns
    -------
    dict
        For every solver: `similarity_KIND`, the similarity of the best match, the mean over the net's answers;
        `match_KIND`, the best-matching iterate of the last answer, counted from 1, as a real number; and for a looped
        net `half_match_KIND`, that of the loop ⌈T/2⌉. A net that overflows before its last loop has no values.
    """
    if not compared:
        return {}
    first = 1 if net.depth is None else steps
    of_net = torch.cat([_residuals(net, batch, steps, first) for batch in _prompts(task)], 1)
    metrics = dict[str, float]()
    for each in compared:
        iterates = _iterates(each.solver.model_dump_json(), task.model_dump_json(), each.iterates)
        cosines = mean_cosines(of_net, iterates)
        if not cosines.isfinite().all():  # a loop before the last one has overflowed
            continue
        similar, matches = best_matches(cosines.numpy()).similarity, between_iterates(cosines.numpy())
        values = {
            SIMILARITY: float(similar.mean()),
            MATCH: float(matches[-1]),
            HALF_MATCH: float(matches[(len(matches) - 1) // 2]),
        }
        metrics |= {name: values[prefix] for prefix, name in each.metrics_of(net.depth, steps).items()}
    return metrics


def mean_cosines(
    first: Float64[Tensor, "a batch n"], second: Float64[Tensor, "b batch n"]
) -> Float64[Tensor, "a b"]:
    """The mean over prompts of the cosines of vectors of n numbers, for every pair of steps.

    The cosine with a vector of zeros is 0. For residuals the vectors are ŷ - y over the queries of a prompt.
    """
    cosines = torch.einsum("abn,cbn->ac", F.normalize(first, dim=-1), F.normalize(second, dim=-1))
    return cosines / first.shape[1]


@torch.no_grad()
def residuals(predictor: Predictor, batch: Batch, steps: int) -> Float64[Tensor, "steps batch queries"]:
    """ŷ - y at every query, with the coordinates of the target one after the other."""
    return (predictions(predictor, batch, steps) - batch.targets).flatten(2)


@torch.no_grad()
def predictions(
    predictor: Predictor, batch: Batch, steps: int
) -> Float64[Tensor, "steps batch points dim_out"]:
    """The predictions in float64, for every type of the predictor's weights."""
    return predictor.predict(suited(batch, predictor, "cpu"), steps).double()


@torch.no_grad()
def _residuals(net: Net, batch: Batch, steps: int, first: int) -> Float64[Tensor, "answers batch queries"]:
    """ŷ - y after the steps `first` .. `steps`, on the CPU. The net stays on its device."""
    device = str(next(net.parameters()).device)
    answers = net.answers(suited(batch, net, device), steps, first=first)
    return (answers.double().cpu() - batch.targets).flatten(2)


def _prompts(task: Task) -> list[Batch]:
    return list(prompt_set("validate", task, COMPARED_PROMPTS))


@lru_cache(maxsize=8)
def _iterates(solver: str, task: str, count: int) -> Float64[Tensor, "iterates batch queries"]:
    """The residuals of a solver. They are kept, because a training compares its net several times."""
    predictor, posed = Solver.model_validate_json(solver), Task.model_validate_json(task)
    return torch.cat([residuals(predictor, batch, count) for batch in _prompts(posed)], 1)
