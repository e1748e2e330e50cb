"""The weights that a predictor of a regression acts by, whatever it is made of (Fu et al. 2023, section 4)."""

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
    """w of the linear map from the last query to the prediction there, after each step.

    The last x is replaced in turn by the vectors of an orthogonal basis, as long as an x is on average, of the first
    `at_work` coordinates: with those one solves for w without a division that could go wrong. Exact for a predictor
    that is linear in its query. Fu et al. solve a regression on queries drawn at random, which is this for many.
    """
    problem, (prompts, _, dim) = batch.problem, batch.problem.xs.shape
    length = x_scale * at_work**0.5
    format = "encoder" if batch.tokens.shape[1] == problem.xs.shape[1] else "decoder"
    basis = _basis(at_work).to(problem.xs)
    found = torch.zeros(steps, prompts, dim, device=problem.xs.device)
    for vector in basis:
        asked = nn.functional.pad(length * vector, (0, dim - at_work))
        xs = torch.cat([problem.xs[:, :-1], asked.expand(prompts, 1, dim)], dim=1)
        posed = pose(replace(problem, xs=xs), format)
        answer = predictor.predict(replace(posed, queries=batch.queries), steps)[:, :, -1]
        found = found + answer * asked / length**2
    return found


@cache
def _basis(dim: int) -> Float[Tensor, "dim dim"]:
    """Turned at random, and always the same: no vector is along an axis, which a sparse predictor would notice."""
    drawn = torch.randn(dim, dim, generator=stream("basis of queries"), dtype=torch.float64)
    return torch.linalg.qr(drawn).Q
