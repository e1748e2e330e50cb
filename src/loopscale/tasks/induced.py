"""The effective weights of any predictor of a regression [@fu2023, section 4]."""

from dataclasses import replace
from functools import cache

import torch
from jaxtyping import Float
from torch import Tensor, nn

from loopscale.core.prompt import Batch, Predictor
from loopscale.core.seeds import stream
from loopscale.tasks.regression import pose


def induced_weights(
    predictor: Predictor, batch: Batch, steps: int, at_work: int, x_scale: float
) -> Float[Tensor, "steps batch dim"]:
    """The weights w of the linear map from the last query to its prediction, after each step.

    The last x is replaced by each vector of an orthogonal basis of the first `at_work` coordinates. The basis vectors
    have the average length of an x. With an orthogonal basis, w follows without a division that could fail. The
    result is exact if the prediction is linear in its query. @fu2023 solve a regression on random queries, which
    converges to this result for many queries.
    """
    problem, (prompts, _, dim) = batch.problem, batch.problem.xs.shape
    length = x_scale * at_work**0.5
    format = "encoder" if batch.tokens.shape[1] == problem.xs.shape[1] else "decoder"
    basis = _basis(at_work).to(problem.xs)
    weights = torch.zeros(steps, prompts, dim, device=problem.xs.device)
    for vector in basis:
        query = nn.functional.pad(length * vector, (0, dim - at_work))
        xs = torch.cat([problem.xs[:, :-1], query.expand(prompts, 1, dim)], dim=1)
        posed = pose(replace(problem, xs=xs), format)
        answer = predictor.predict(replace(posed, queries=batch.queries), steps)[:, :, -1]
        weights = weights + answer * query / length**2
    return weights


@cache
def _basis(dim: int) -> Float[Tensor, "dim dim"]:
    """A random basis with a fixed seed. No vector lies along an axis, because sparse predictors favour axes."""
    matrix = torch.randn(dim, dim, generator=stream("basis of queries"), dtype=torch.float64)
    return torch.linalg.qr(matrix).Q
