"""Similarities of solvers and constructions whose iterates are known to be alike, or to differ."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from loopscale.core.prompt import Batch, Predictor
from loopscale.core.seeds import stream
from loopscale.papers import similarity
from loopscale.papers.best_matches import fit_trend
from loopscale.papers.similarity import InputSweep
from loopscale.solvers.base import Solver
from loopscale.solvers.construction import Constructed
from loopscale.solvers.regression import ConjugateGradient, GradientDescent, LeastSquares, Newton
from loopscale.stats.best_matches import Matches, best_matches
from loopscale.tasks.base import Task
from loopscale.theory.constructions.newton import newton_iterates
from loopscale.training.similarity import mean_cosines, residuals

TASK = Task.model_validate({"kind": "linear_regression", "dim": 4, "points": 10, "condition": 20})
STEEP = Task.model_validate({"kind": "linear_regression", "dim": 6, "points": 24, "condition": 100})


class NewtonFrom(Predictor):
    """Newton's iteration as in the construction: on means over the pairs, from `start` times S."""

    def __init__(self, start: float) -> None:
        self.start = start

    def predict(self, batch: Batch, steps: int) -> Tensor:
        xs, ys = batch.problem.xs.double(), batch.problem.ys.double()[..., None]
        answers = [torch.zeros(steps, len(xs), 1, dtype=torch.float64)] + [
            newton_iterates(xs[:, :n], ys[:, :n], xs[:, n], self.start, steps, 1 / n)
            for n in range(1, xs.shape[1])
        ]
        return torch.stack(answers, dim=2)


def similarity_of_errors(first: Predictor, second: Predictor, batch: Batch, steps: tuple[int, int]) -> Tensor:
    predictors = zip((first, second), steps, strict=True)
    return mean_cosines(*(residuals(each, batch, count) for each, count in predictors))


def similarity_of_weights(
    first: Predictor, second: Predictor, sweep: InputSweep, steps: tuple[int, int]
) -> Tensor:
    predictors = zip((first, second), steps, strict=True)
    return mean_cosines(*(similarity.least_squares_weights(each, sweep, count) for each, count in predictors))


def sampled(task: Task = TASK, prompts: int = 64) -> Batch:
    return task.sample(prompts, stream("similarity"))


def matches(first: Predictor, second: Predictor, steps: tuple[int, int], task: Task = TASK) -> Matches:
    return best_matches(similarity_of_errors(first, second, sampled(task), steps).numpy())


def test_a_solver_is_similar_to_itself_and_the_measures_are_symmetric():
    for measure, prompts in (
        (similarity_of_errors, sampled()),
        (similarity_of_weights, similarity.sweep_inputs(TASK, stream("asked"), 16)),
    ):
        same = measure(Newton(), Newton(), prompts, (7, 7))
        np.testing.assert_allclose(same.diagonal(), 1, atol=1e-12)
        assert (same - 1 < 1e-12).all()
        assert same[0, 6] < 0.999
        other = measure(Newton(), GradientDescent(), prompts, (4, 9))
        assert other.shape == (4, 9)
        torch.testing.assert_close(other.T, measure(GradientDescent(), Newton(), prompts, (9, 4)))


def test_similarity_of_errors_is_the_mean_cosine_of_residuals_over_prompts():
    batch = sampled(prompts=5)
    found = similarity_of_errors(Newton(), GradientDescent(), batch, (3, 4))
    newton, descent = (each.predict(batch, 4) - batch.targets for each in (Newton(), GradientDescent()))
    for step, iterate in ((0, 0), (2, 3)):
        by_hand = [
            np.dot(a, b) / np.linalg.norm(a) / np.linalg.norm(b)
            for a, b in zip(newton[step, :, :, 0].numpy(), descent[iterate, :, :, 0].numpy(), strict=True)
        ]
        assert float(found[step, iterate]) == pytest.approx(np.mean(by_hand), abs=1e-12)


@pytest.mark.slow
def test_the_construction_of_newton_matches_newton_step_for_step():
    built = Constructed.model_validate({"name": "newton", "variant": "relu", "start": 0.002})
    found = matches(built, NewtonFrom(0.002), (14, 18), STEEP)
    assert found.iterates.tolist() == list(range(1, 15))
    assert (found.similarity > 1 - 1e-9).all()
    trend = fit_trend([found])
    assert trend.kind == "linear"
    assert trend.fit
    assert trend.fit.rate == pytest.approx(1, abs=1e-3)
    assert trend.fit.interval is None, "one replicate does not show its noise"


def test_k_newton_steps_match_two_to_the_k_gradient_steps():
    found = matches(Newton(start="identity"), GradientDescent(rate="safe"), (6, 100), STEEP)
    assert found.iterates.tolist() == [2, 4, 8, 16, 32, 64]
    trend = fit_trend([found])
    assert trend.kind == "exponential"
    assert trend.fit
    assert trend.fit.rate == pytest.approx(math.log(2), abs=1e-6)


@pytest.mark.parametrize("solver", [Newton(), GradientDescent(), ConjugateGradient()], ids=lambda s: s.kind)
def test_a_linear_solver_induces_its_own_weights(solver: Solver):
    sweep = similarity.sweep_inputs(TASK, stream("asked"), problems=6, seen=7)
    assert sweep.inputs.shape == (6, 16, 4)
    induced = similarity.least_squares_weights(solver, sweep, 5)
    first = Batch(*(getattr(sweep.batch, name) for name in ("tokens", "targets", "queries", "problem")))
    xs, ys = first.problem.xs[::16].double(), first.problem.ys[::16].double()
    basis = torch.eye(4, dtype=torch.float64)
    for coordinate in range(4):  # at a unit vector the answer of a linear predictor is a weight
        unit = xs.clone()
        unit[:, -1] = basis[coordinate]
        problem = type(first.problem)(unit, ys, 0.0, 1.0)
        answer = solver.predict(Batch(first.tokens, first.targets, first.queries, problem), 5)[:, :, -1, 0]
        torch.testing.assert_close(induced[..., coordinate], answer, atol=1e-8, rtol=1e-8)


def test_least_squares_induces_the_weights_of_the_pairs_at_any_inputs():
    sweep = similarity.sweep_inputs(TASK, stream("asked"), problems=3, inputs=9)
    pairs = sweep.batch.problem.xs.unflatten(0, (3, 9)), sweep.batch.problem.ys.unflatten(0, (3, 9))
    assert (pairs[0][:, :1, :-1] == pairs[0][:, :, :-1]).all()
    assert pairs[0].shape == (3, 9, 10, 4)
    true = torch.linalg.lstsq(pairs[0][:, 0, :-1].double(), pairs[1][:, 0, :-1, None].double()).solution[
        ..., 0
    ]
    torch.testing.assert_close(
        similarity.least_squares_weights(LeastSquares(), sweep, 1)[0], true, atol=1e-6, rtol=1e-6
    )


def test_a_task_with_pairs_in_one_token_is_posed_in_its_own_format():
    encoder = TASK.model_copy(update={"format": "encoder"})
    sweep, in_turns = (
        similarity.sweep_inputs(task, stream("asked"), problems=6, seen=7) for task in (encoder, TASK)
    )
    assert sweep.batch.tokens.shape[1:] == (encoder.prompt.length - 2, encoder.prompt.dim_in)
    found, expected = (
        similarity.least_squares_weights(LeastSquares(), each, 1) for each in (sweep, in_turns)
    )
    torch.testing.assert_close(found, expected)


def test_a_posed_prompt_has_the_length_of_the_task():
    assert similarity.sweep_inputs(TASK, stream(0), 2).batch.tokens.shape[1] == TASK.prompt.length
    with pytest.raises(ValueError, match=r"10 pairs and one query .* 1 \.\. 9"):
        similarity.sweep_inputs(TASK, stream(0), 2, seen=10)


def test_conjugate_gradients_are_similar_to_newton_although_they_differ():
    """Similarity alone tells no algorithms apart: all solvers of the problem are similar."""
    found = matches(Newton(), ConjugateGradient(), (12, 8))
    assert (found.similarity > 0.9).all()
    assert found.similarity[-1] > 0.95
