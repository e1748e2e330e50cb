"""Solvers and constructions whose iterates are known to be alike, or to be no closer than they are."""

import math

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.optimize import differential_evolution
from torch import Tensor

from loopscale.analysis.papers import similarity
from loopscale.analysis.papers.trend import trend
from loopscale.core.prompt import Batch, Predictor
from loopscale.core.seeds import stream
from loopscale.solvers.base import Solver
from loopscale.solvers.construction import Constructed
from loopscale.solvers.regression import ConjugateGradient, GradientDescent, LeastSquares, Newton
from loopscale.tasks.base import Task
from loopscale.theory.constructions.newton import newton_iterates

TASK = Task.model_validate({"kind": "linear_regression", "dim": 4, "points": 10, "condition": 20})
STEEP = Task.model_validate({"kind": "linear_regression", "dim": 6, "points": 24, "condition": 100})


class NewtonFrom(Predictor):
    """Newton's iteration as the construction has it: on means over the pairs, from `start` times S."""

    def __init__(self, start: float) -> None:
        self.start = start

    def predict(self, batch: Batch, steps: int) -> Tensor:
        xs, ys = batch.problem.xs.double(), batch.problem.ys.double()[..., None]
        found = [torch.zeros(steps, len(xs), 1, dtype=torch.float64)] + [
            newton_iterates(xs[:, :n], ys[:, :n], xs[:, n], self.start, steps, 1 / n)
            for n in range(1, xs.shape[1])
        ]
        return torch.stack(found, dim=2)


def sampled(task: Task = TASK, prompts: int = 64) -> Batch:
    return task.sample(prompts, stream("similarity"))


def matches(one: Predictor, other: Predictor, steps: tuple[int, int], task: Task = TASK) -> pd.DataFrame:
    return similarity.best_matches(
        similarity.table(similarity.similarity_of_errors(one, other, sampled(task), steps))
    )


def test_a_solver_is_like_itself_at_every_step_and_the_measures_are_symmetric():
    for measure, prompts in (
        (similarity.similarity_of_errors, sampled()),
        (similarity.similarity_of_weights, similarity.ask(TASK, stream("asked"), 16)),
    ):
        same = measure(Newton(), Newton(), prompts, (7, 7))
        np.testing.assert_allclose(same.diagonal(), 1, atol=1e-12)
        assert (same - 1 < 1e-12).all()
        assert same[0, 6] < 0.999
        other = measure(Newton(), GradientDescent(), prompts, (4, 9))
        assert other.shape == (4, 9)
        torch.testing.assert_close(other.T, measure(GradientDescent(), Newton(), prompts, (9, 4)))


def test_similarity_of_errors_is_the_mean_cosine_of_residuals_prompt_by_prompt():
    batch = sampled(prompts=5)
    found = similarity.similarity_of_errors(Newton(), GradientDescent(), batch, (3, 4))
    newton, descent = (each.predict(batch, 4) - batch.targets for each in (Newton(), GradientDescent()))
    for step, iterate in ((0, 0), (2, 3)):
        by_hand = [
            np.dot(a, b) / np.linalg.norm(a) / np.linalg.norm(b)
            for a, b in zip(newton[step, :, :, 0].numpy(), descent[iterate, :, :, 0].numpy(), strict=True)
        ]
        assert float(found[step, iterate]) == pytest.approx(np.mean(by_hand), abs=1e-12)


def test_the_construction_of_newtons_iteration_is_newtons_iteration_step_for_step():
    built = Constructed.model_validate({"name": "newton", "variant": "relu", "start": 0.002})
    found = matches(built, NewtonFrom(0.002), (14, 18), STEEP)
    assert found["iterate"].tolist() == list(range(1, 15))
    assert (found["similarity"] > 1 - 1e-9).all()
    said = trend(found)
    assert said.kind == "linear"
    assert said.fit
    assert said.fit.rate == pytest.approx(1, abs=1e-3)
    assert said.fit.interval is None, "one replicate says nothing of its own noise"


def test_gradient_steps_are_two_to_the_newton_steps():
    found = matches(Newton(start="identity"), GradientDescent(rate="safe"), (6, 100), STEEP)
    assert found["iterate"].tolist() == [2, 4, 8, 16, 32, 64]
    said = trend(found)
    assert said.kind == "exponential"
    assert said.fit
    assert said.fit.rate == pytest.approx(math.log(2), abs=1e-6)


@pytest.mark.parametrize("solver", [Newton(), GradientDescent(), ConjugateGradient()], ids=lambda s: s.kind)
def test_the_weights_that_a_solver_induces_are_its_weights(solver: Solver):
    asked = similarity.ask(TASK, stream("asked"), problems=6, seen=7)
    assert asked.inputs.shape == (6, 16, 4)
    induced = similarity.induced_weights(solver, asked, 5)
    first = Batch(*(getattr(asked.batch, name) for name in ("tokens", "targets", "queries", "problem")))
    xs, ys = first.problem.xs[::16].double(), first.problem.ys[::16].double()
    basis = torch.eye(4, dtype=torch.float64)
    for coordinate in range(4):  # asked at a unit vector, a linear predictor answers with a weight
        unit = xs.clone()
        unit[:, -1] = basis[coordinate]
        problem = type(first.problem)(unit, ys, 0.0, 1.0)
        answer = solver.predict(Batch(first.tokens, first.targets, first.queries, problem), 5)[:, :, -1, 0]
        torch.testing.assert_close(induced[..., coordinate], answer, atol=1e-8, rtol=1e-8)


def test_least_squares_induces_the_true_weights_of_the_pairs_and_questions_leave_them():
    asked = similarity.ask(TASK, stream("asked"), problems=3, questions=9)
    pairs = asked.batch.problem.xs.unflatten(0, (3, 9)), asked.batch.problem.ys.unflatten(0, (3, 9))
    assert (pairs[0][:, :1, :-1] == pairs[0][:, :, :-1]).all()
    assert pairs[0].shape == (3, 9, 10, 4)
    true = torch.linalg.lstsq(pairs[0][:, 0, :-1].double(), pairs[1][:, 0, :-1, None].double()).solution[
        ..., 0
    ]
    torch.testing.assert_close(
        similarity.induced_weights(LeastSquares(), asked, 1)[0], true, atol=1e-6, rtol=1e-6
    )


def test_pairs_in_one_token_are_asked_as_the_task_poses_them():
    encoder = TASK.model_copy(update={"format": "encoder"})
    asked, in_turns = (similarity.ask(task, stream("asked"), problems=6, seen=7) for task in (encoder, TASK))
    assert asked.batch.tokens.shape[1:] == (encoder.prompt.length - 2, encoder.prompt.dim_in)
    found, expected = (similarity.induced_weights(LeastSquares(), each, 1) for each in (asked, in_turns))
    torch.testing.assert_close(found, expected)


def test_the_same_length_of_prompt_is_asked_as_the_task_has():
    assert similarity.ask(TASK, stream(0), 2).batch.tokens.shape[1] == TASK.prompt.length
    with pytest.raises(ValueError, match=r"10 pairs and a question .* 1 \.\. 9"):
        similarity.ask(TASK, stream(0), 2, seen=10)


def test_conjugate_gradients_are_like_newton_although_they_are_no_newton_iteration():
    """Why similarity alone says nothing: whatever solves the problem is like what else does."""
    found = matches(Newton(), ConjugateGradient(), (12, 8))
    assert (found["similarity"] > 0.9).all()
    assert found["similarity"].iloc[-1] > 0.95


def test_the_first_of_equal_iterates_is_the_match_and_the_last_is_said_to_be_the_last():
    rows = pd.DataFrame(
        {
            "step": [1] * 3 + [2] * 3,
            "iterate": [1, 2, 3] * 2,
            "similarity": [0.5, 0.9, 0.9 + 1e-8, 0.1, 0.2, 0.3],
        }
    )
    found = similarity.best_matches(rows)
    assert found["iterate"].tolist() == [2, 3]
    assert found["last"].tolist() == [False, True]


def planted(iterates: list[list[int]], similarity: float = 0.95) -> pd.DataFrame:
    rows = [
        {"replicate": n, "step": step, "iterate": each, "similarity": similarity, "last": False}
        for n, found in enumerate(iterates)
        for step, each in enumerate(found, 1)
    ]
    return pd.DataFrame(rows)


def test_planted_trends_are_found_and_their_intervals_hold_the_planted_rates():
    rng, held = np.random.default_rng(0), []
    for _ in range(30):
        lines = [
            np.round(1 + (3 + rng.normal(0, 0.2)) * np.arange(1, 9) + rng.normal(0, 0.4, 8)) for _ in range(3)
        ]
        found = trend(planted([np.maximum(each, 1).astype(int).tolist() for each in lines]))
        assert found.kind == "linear"
        assert found.fit
        assert found.fit.interval
        held.append(found.fit.interval[0] <= 3 <= found.fit.interval[1])
    assert sum(held) >= 25
    powers = [np.round(2.0 ** (np.arange(1, 9) + rng.normal(0, 0.2, 8))) for _ in range(3)]
    found = trend(planted([each.astype(int).tolist() for each in powers]))
    assert found.kind == "exponential"
    assert found.fit
    assert found.fit.interval
    assert found.fit.interval[0] < math.log(2) < found.fit.interval[1]


@pytest.mark.parametrize(
    ("iterates", "similar", "kind", "why"),
    [
        ([[3, 19, 2, 14, 1, 9], [9, 2, 17, 1, 20, 3]], 0.95, "none", "jumps about"),
        ([[4] * 6, [4] * 6], 0.95, "none", "stays where it is"),
        ([[1, 3, 5, 7, 9, 11], [12, 10, 8, 6, 4, 2]], 0.95, "undecided", "contains 0"),
        ([[1, 2, 3, 4]], 0.95, "undecided", "too few steps"),
        ([[1, 2, 3], [1, 2, 3]], 0.95, "undecided", "fewer than 4"),
        ([[1, 2, 3, 4, 5, 6], [1, 2, 3, 4, 5, 6]], 0.3, "undecided", "fewer than 4"),
        ([[4, 5, 6, 7, 8, 9]], 0.95, "undecided", "fit alike"),
    ],
)
def test_what_is_no_trend_is_said_to_be_none(iterates: list[list[int]], similar: float, kind: str, why: str):
    found = trend(planted(iterates, similar))
    assert (found.kind, why in found.why) == (kind, True), found


def test_the_line_is_the_nearest_one_also_where_the_matches_grow_fast():
    steps, iterates = np.arange(2, 7), np.array([3, 5, 17, 33, 37])
    rows = planted([iterates.tolist()] * 2)
    found = trend(rows.assign(step=rows["step"] + 1)).fits["linear"]

    def loss(line: tuple[float, float]) -> float:
        return float(np.sum(np.log(np.maximum(line[0] + line[1] * steps, 1e-3) / iterates) ** 2))

    wanted = differential_evolution(loss, [(-60, 60), (-20, 20)], rng=0, tol=1e-10)
    assert loss((found.levels[0], found.rates[0])) == pytest.approx(wanted.fun, rel=1e-4)
    assert found.rates[0] == pytest.approx(wanted.x[1], rel=1e-2)
    assert found.levels[0] + 2 * found.rates[0] > 0, "above 0 at every step"


def test_matches_at_the_last_iterate_are_left_out():
    rows = planted([[2, 4, 6, 8, 10, 10, 10]])
    rows.loc[rows["iterate"] == 10, "last"] = True
    assert trend(rows).steps == (1, 2, 3, 4)
