"""Regression solvers, compared with numpy, scipy, scikit-learn and the papers' algorithms on every prefix."""

import numpy as np
import pytest
import torch
from scipy.sparse.linalg import cg
from sklearn.linear_model import Ridge as ScikitRidge

from loopscale.core.prompt import Batch
from loopscale.core.seeds import stream
from loopscale.solvers import prefixes
from loopscale.solvers.base import Solver
from loopscale.solvers.regression import (
    Averaging,
    ConjugateGradient,
    GradientDescent,
    LeastSquares,
    Newton,
    Ridge,
)
from loopscale.tasks.base import Task
from loopscale.tasks.linear_regression import LinearRegression
from loopscale.tasks.representation_regression import RepresentationRegression

TASKS = [
    LinearRegression(dim=4, points=10, noise=0.5),
    LinearRegression(dim=5, points=12, noise=0.1, condition=50, x_scale=3, w_scale=0.2),
]
PROMPTS = 5


@pytest.fixture(params=TASKS, ids=["isotropic", "ill-conditioned"])
def batch(request: pytest.FixtureRequest) -> Batch:
    return request.param.sample(PROMPTS, stream("reference"))


def each_prefix(batch: Batch, features: str = "xs"):
    """Prompt, point, the visible pairs and the query, in float64, from the first pair on."""
    xs, ys = getattr(batch.problem, features).double().numpy(), batch.problem.ys.double().numpy()
    for prompt in range(len(xs)):
        for point in range(1, xs.shape[1]):
            yield prompt, point, xs[prompt, :point], ys[prompt, :point], xs[prompt, point]


def predicted(solver: Solver, batch: Batch, steps: int = 1) -> np.ndarray:
    return solver.predict(batch, steps).squeeze(-1).numpy()


def test_least_squares_matches_numpy(batch: Batch):
    predictions = predicted(LeastSquares(), batch)[0]
    for prompt, point, xs, ys, query in each_prefix(batch):
        expected = query @ np.linalg.lstsq(xs, ys, rcond=None)[0]
        assert predictions[prompt, point] == pytest.approx(expected, rel=1e-7, abs=1e-8), (prompt, point)


def test_least_squares_matches_numpy_at_the_size_of_the_paper():
    batch = LinearRegression(points=41, noise=0.1).sample(3, stream("reference"))
    predictions = predicted(LeastSquares(), batch)[0]
    for prompt, point, xs, ys, query in each_prefix(batch):
        expected = query @ np.linalg.lstsq(xs, ys, rcond=None)[0]
        assert predictions[prompt, point] == pytest.approx(expected, rel=1e-6, abs=1e-7), (prompt, point)


@pytest.mark.parametrize("penalty", [0.01, 1.0, 40.0])
def test_ridge_matches_scikit_learn(batch: Batch, penalty: float):
    predictions = predicted(Ridge(penalty=penalty), batch)[0]
    for prompt, point, xs, ys, query in each_prefix(batch):
        expected = (
            ScikitRidge(alpha=penalty, fit_intercept=False, solver="svd").fit(xs, ys).predict(query[None])[0]
        )
        assert predictions[prompt, point] == pytest.approx(expected, rel=1e-9, abs=1e-9)


def test_ridge_takes_the_bayes_penalty_from_the_task():
    task = LinearRegression(dim=4, points=10, noise=0.6, w_scale=2.0)
    batch = task.sample(PROMPTS, stream(0))
    np.testing.assert_array_equal(predicted(Ridge(), batch), predicted(Ridge(penalty=0.36 / 4.0), batch))


def test_ridge_without_noise_is_least_squares():
    batch = LinearRegression(dim=4, points=10).sample(PROMPTS, stream(0))
    np.testing.assert_array_equal(predicted(Ridge(), batch), predicted(LeastSquares(), batch))


def test_no_other_penalty_beats_the_bayes_penalty():
    task = LinearRegression(dim=5, points=11, noise=1.0, w_scale=0.7, condition=20)
    batch = task.sample(4000, stream(0))
    best = task.raw_error(Ridge().predict(batch, 1), batch)[0].mean(-1)
    for factor in (0.3, 3.0):
        other = task.raw_error(Ridge(penalty=factor * 1.0 / 0.49).predict(batch, 1), batch)[0].mean(-1)
        gain = other - best
        assert gain.mean() > 3 * gain.std() / 4000**0.5


def test_averaging_is_the_mean_of_y_times_x(batch: Batch):
    predictions = predicted(Averaging(scale=0.7), batch)[0]
    for prompt, point, xs, ys, query in each_prefix(batch):
        assert predictions[prompt, point] == pytest.approx(
            0.7 * query @ (ys @ xs) / point, rel=1e-9, abs=1e-9
        )


def test_conjugate_gradients_match_scipy_at_every_step(batch: Batch):
    predictions = predicted(ConjugateGradient(), batch, 5)
    for prompt, point, xs, ys, query in each_prefix(batch):
        expected: list[float] = []
        cg(xs.T @ xs, xs.T @ ys, rtol=1e-10, maxiter=5, callback=lambda w: expected.append(query @ w))  # noqa: B023
        np.testing.assert_allclose(
            predictions[: len(expected), prompt, point], expected, rtol=1e-5, atol=1e-6
        )
        np.testing.assert_allclose(
            predictions[len(expected) :, prompt, point], expected[-1], rtol=1e-5, atol=1e-6
        )


@pytest.mark.parametrize("rate", [None, 0.1])
def test_gradient_descent_matches_the_matrix_iteration(batch: Batch, rate: float | None):
    predictions = predicted(GradientDescent(rate=rate), batch, 6)
    for prompt, point, xs, ys, query in each_prefix(batch):
        if rate is None:
            spectrum = np.linalg.svd(xs, compute_uv=False) ** 2
            step = 2 * point / (spectrum.min() + spectrum.max())
        else:
            step = rate
        w = np.zeros(xs.shape[1])
        for k in range(6):
            w = w - step * xs.T @ (xs @ w - ys) / point
            assert predictions[k, prompt, point] == pytest.approx(query @ w, rel=1e-7, abs=1e-8)


@pytest.mark.parametrize("start", ["spectral", "frobenius", "identity"])
def test_newton_matches_the_matrix_iteration_of_eq_4(batch: Batch, start: str):
    predictions = predicted(Newton(start=start), batch, 12)
    for prompt, point, xs, ys, query in each_prefix(batch):
        s = xs.T @ xs
        m = {
            "spectral": s / np.linalg.norm(s @ s.T, 2),
            "frobenius": s / np.linalg.norm(s @ s.T, "fro"),
            "identity": np.eye(len(s)) / np.linalg.norm(s, 2),
        }[start]
        for k in range(12):
            m = 2 * m - m @ s @ m
            assert predictions[k, prompt, point] == pytest.approx(query @ m @ xs.T @ ys, rel=1e-6, abs=1e-6)


def test_k_newton_steps_from_the_identity_equal_two_to_the_k_gradient_steps(batch: Batch):
    xs = batch.problem.xs.double()[:, :-1]
    rate = xs.shape[1] / torch.linalg.matrix_norm(xs, 2).square()
    newton = Newton(start="identity").predict(batch, 6)[:, :, -1, 0]
    for prompt in range(PROMPTS):
        descent = GradientDescent(rate=rate[prompt].item()).predict(batch, 64)[:, prompt, -1, 0]
        steps = 2 ** torch.arange(1, 7) - 1
        torch.testing.assert_close(newton[:, prompt], descent[steps], rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(
    "solver", [Newton(), Newton(start="frobenius"), ConjugateGradient()], ids=lambda s: s.kind
)
def test_converging_solvers_reach_the_least_squares_solution_of_minimum_norm(solver: Solver, batch: Batch):
    np.testing.assert_allclose(
        predicted(solver, batch, 200)[-1], predicted(LeastSquares(), batch)[0], rtol=1e-5, atol=1e-6
    )


def test_newton_converges_where_the_iteration_as_written_diverges():
    batch = LinearRegression(dim=8, points=5).sample(2, stream(0))
    xs = batch.problem.xs[0, :4].double().numpy()
    s = xs.T @ xs
    m = s / np.linalg.norm(s @ s.T, 2)
    with np.errstate(all="ignore"):
        for _ in range(120):
            m = 2 * m - m @ s @ m
    assert not np.abs(m).max() < 1e3, "the iteration as written must diverge here"
    np.testing.assert_allclose(
        predicted(Newton(), batch, 120)[-1], predicted(LeastSquares(), batch)[0], atol=1e-9
    )


def test_least_squares_on_the_representation_is_exact_with_as_many_pairs_as_features():
    task = RepresentationRegression(dim=6, width=5, points=9, slope=0.5)
    batch = task.sample(64, stream(0))
    error = task.error(LeastSquares(features="representation").predict(batch, 1), batch)[0]
    assert error[:, 5:].median() < 1e-9
    assert error[:, :4].median() > 1e-3
    assert task.error(LeastSquares().predict(batch, 1), batch)[0][:, 5:].median() > 1e-3


def test_newton_on_the_representation_matches_least_squares():
    batch = RepresentationRegression(dim=4, width=4, points=8, noise=0.3, slope=0.5).sample(2, stream(0))
    predictions = predicted(Newton(features="representation"), batch, 60)[-1]
    for prompt, point, xs, ys, query in each_prefix(batch, "representation"):
        expected = query @ np.linalg.lstsq(xs, ys, rcond=None)[0]
        assert predictions[prompt, point] == pytest.approx(expected, rel=1e-6, abs=1e-6)


@pytest.mark.parametrize("kind", [k for k, c in Solver.choices().items() if "features" in c.model_fields])
def test_a_missing_representation_raises_with_advice(kind: str):
    solver = Solver.model_validate({"kind": kind, "features": "representation"})
    batch = LinearRegression(dim=3, points=4).sample(2, stream(0))
    assert not solver.accepts(batch.problem)
    with pytest.raises(
        ValueError, match=f"{kind} has features: representation, but the task has no representation"
    ):
        solver.predict(batch, 1)


@pytest.mark.parametrize(
    "task", [LinearRegression(points=5), RepresentationRegression(points=5)], ids=lambda t: t.kind
)
def test_predictions_do_not_depend_on_the_chunk_size(task: Task, monkeypatch: pytest.MonkeyPatch):
    batch = task.sample(7, stream(0))
    together = predicted(GradientDescent(), batch, 3)
    monkeypatch.setattr(prefixes, "MAX_ENTRIES", 3 * 5 * 20**2)
    np.testing.assert_allclose(predicted(GradientDescent(), batch, 3), together, rtol=1e-10, atol=1e-12)
