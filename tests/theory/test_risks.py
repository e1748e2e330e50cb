"""Solvers on sampled prompts, compared with the exact risks within 4 standard errors.

An error of a few per cent in a task, a solver or a bound fails here.
"""

import math
from collections.abc import Sequence

import numpy as np
import pytest
import torch

from loopscale.core.seeds import stream
from loopscale.solvers.base import Solver
from loopscale.solvers.regression import (
    Averaging,
    ConjugateGradient,
    GradientDescent,
    LeastSquares,
    Newton,
    Ridge,
)
from loopscale.tasks.linear_regression import LinearRegression
from loopscale.theory.bounds.base import Bound
from tests.theory import checks

BATCH = 2048


def excess(solver: Solver, task: LinearRegression, steps: int, prompts: int) -> torch.Tensor:
    """Squared errors [steps, prompts, points] without the label noise of the query.

    The task draws the noise separately, so the same seed without noise gives <w, x>.
    """
    parts = []
    for part in range(0, prompts, BATCH):
        size = min(BATCH, prompts)
        batch = task.sample(size, stream("risk", part))
        clean = task.model_copy(update={"noise": 0.0}).sample(size, stream("risk", part)).targets
        parts.append((solver.predict(batch, steps) - clean).square().squeeze(-1))
    return torch.cat(parts, dim=1)


def assert_agrees(sampled: torch.Tensor, exact: float) -> None:
    checks.assert_agrees(sampled.numpy(), exact, within=0.4)


def bound(kind: str, task: LinearRegression, **settings) -> Bound:
    trial = {f"task.{name}": value for name, value in task.model_dump().items() if name != "kind"}
    return Bound.fill(kind, settings, trial)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("solver", "kind", "task", "points", "settings"),
    [
        (
            LeastSquares(),
            "ols_min_norm",
            LinearRegression(dim=5, points=16, noise=0.5),
            (0, 1, 3, 10, 12, 15),
            {},
        ),
        (
            LeastSquares(),
            "ols_min_norm",
            LinearRegression(dim=4, points=13, noise=1, condition=30),
            (10, 12),
            {},
        ),
        (
            LeastSquares(),
            "bayes_noiseless",
            LinearRegression(dim=5, points=5, w_scale=2, x_scale=3),
            (1, 3, 4),
            {},
        ),
        (
            Averaging(scale=0.6),
            "averaging",
            LinearRegression(dim=5, points=11, noise=2),
            (1, 4, 10),
            {"scale": 0.6},
        ),
        (
            Averaging(scale=0.1),
            "averaging",
            LinearRegression(dim=4, points=9, noise=1, x_scale=2, w_scale=0.7),
            (2, 8),
            {"scale": 0.1},
        ),
        (Ridge(), "bayes_ridge", LinearRegression(dim=5, points=16, noise=0.5), (1, 4, 5, 6, 10, 15), {}),
        (Ridge(), "bayes_ridge", LinearRegression(dim=1, points=4, noise=1.0), (1, 3), {}),
        (
            Ridge(),
            "bayes_ridge",
            LinearRegression(dim=6, points=9, noise=1, x_scale=2, w_scale=0.3),
            (5, 8),
            {},
        ),
        (
            GradientDescent(rate=0.4),
            "gd_risk_1",
            LinearRegression(dim=5, points=11, noise=1),
            (5, 10),
            {"rate": 0.4},
        ),
    ],
    ids=lambda value: getattr(value, "kind", None),
)
def test_the_excess_of_a_solver_is_exact(
    solver: Solver, kind: str, task: LinearRegression, points: Sequence[int], settings: dict
):
    sampled = excess(solver, task, 1, 8 * BATCH)[0]
    for point in points:
        assert_agrees(sampled[:, point], bound(kind, task, point=point, **settings).value())


@pytest.mark.slow
def test_the_best_averaging_has_the_excess_of_the_best_single_step():
    task = LinearRegression(dim=5, points=11, noise=1.0)
    best = 10 / (10 + 5 + 1 + 1.0)
    sampled = excess(Averaging(scale=best), task, 1, 8 * BATCH)[0, :, -1]
    assert_agrees(sampled, bound("one_step_best", task).value())


@pytest.mark.slow
def test_the_mean_excess_of_the_bayes_predictor_over_all_queries_is_the_decoder_floor():
    task = LinearRegression(dim=5, points=11, noise=0.5)
    assert_agrees(excess(Ridge(), task, 1, 8 * BATCH)[0].mean(-1), bound("decoder_floor", task).value())


@pytest.mark.slow
@pytest.mark.parametrize("x_scale", [1.0, 2.0])
def test_the_excess_of_two_gradient_steps_follows_from_the_moments(x_scale: float):
    task = LinearRegression(dim=5, points=11, x_scale=x_scale)
    rate = 0.4 / x_scale**2
    sampled = excess(GradientDescent(rate=rate), task, 2, 8 * BATCH)[1, :, -1]
    assert_agrees(sampled, bound("gd_risk_2", task, rate=rate).value())


def test_the_wishart_moments_match_sampled_matrices():
    xs = torch.randn(20_000, 10, 5, generator=stream("moments"), dtype=torch.float64)
    eigenvalues = torch.linalg.eigvalsh(xs.mT @ xs / 10)
    for power in (1, 2, 3, 4):
        exact = checks.value("wishart_moments", dim=5, point=10, power=power)
        assert_agrees(eigenvalues.pow(power).sum(-1), exact)


def test_the_best_method_with_two_gradients_is_the_best_polynomial_on_sampled_spectra():
    xs = torch.randn(100_000, 10, 4, generator=stream("polynomial"), dtype=torch.float64)
    s = torch.linalg.eigvalsh(xs.mT @ xs / 10)
    m = [s.pow(j).sum(-1).mean().item() for j in range(5)]
    a, b = np.linalg.solve([[m[2], m[3]], [m[3], m[4]]], [m[1], m[2]])
    left = (1 - a * s - b * s**2).square().sum(-1)
    assert_agrees(left, checks.value("first_order_best_2", dim=4, point=10))


def test_many_gradient_steps_tend_to_their_limit_in_large_dimensions():
    deviation = {}
    for dim, prompts in ((20, 4000), (100, 400)):
        xs = torch.randn(prompts, 2 * dim, dim, generator=stream("limit"), dtype=torch.float64)
        s = torch.linalg.eigvalsh(xs.mT @ xs / (2 * dim))
        left = (1 - 0.4 * s) ** 6
        sampled = (left.square() + 0.25 / (2 * dim) * (1 - left).square() / s).sum(-1).mean().item()
        task = LinearRegression(dim=dim, points=2 * dim + 1, noise=0.5)
        deviation[dim] = abs(sampled / bound("gd_risk_mp", task, rate=0.4, loops=6).value() - 1)
    assert deviation[100] < 0.02
    assert deviation[100] < deviation[20] / 2


@pytest.mark.slow
def test_newton_from_the_identity_beats_the_best_first_order_method_and_a_fixed_step_does_not():
    task = LinearRegression(dim=20, points=41)
    best = torch.tensor([bound("first_order_best", task, loops=loops).value() for loops in (2, 3, 4, 5)])
    solvers = GradientDescent(rate=0.6), Newton(), Newton(start="identity")
    descent, newton, quick = (excess(solver, task, 5, 512)[1:, :, -1].mean(-1) for solver in solvers)
    assert (descent > best).all()
    assert (newton > best).all()
    assert quick[-1] < best[-1]


@pytest.mark.slow
def test_newton_and_conjugate_gradients_match_the_catalogued_finite_size_values():
    """d = 20, N = 40, no noise. The values are simulated to about 1 %; Newton's heavy-tailed last rows are left out."""
    task = LinearRegression(dim=20, points=41)
    table = {
        Newton(): {1: 11.39, 2: 9.069, 3: 6.892, 5: 3.384},
        Newton(start="identity"): {1: 5.961, 2: 3.298, 3: 1.477},
        ConjugateGradient(): {1: 6.857, 2: 3.027, 3: 1.437, 5: 0.322},
    }
    for solver, values in table.items():
        sampled = excess(solver, task, 5, 2 * BATCH)[:, :, -1]
        for loops, value in values.items():
            mean, sem = sampled[loops - 1].mean().item(), sampled[loops - 1].std().item() / (2 * BATCH) ** 0.5
            assert mean == pytest.approx(value, abs=4 * sem + 0.01 * value), (solver, loops)


# The worst case: the residual of each prompt, compared with the bound for the κ of this prompt


@pytest.fixture(scope="module")
def spectrum() -> tuple[LinearRegression, torch.Tensor]:
    task = LinearRegression(dim=4, points=33)
    xs = task.sample(64, stream(0)).problem.xs[:, :-1].double()
    return task, torch.linalg.eigvalsh(xs.mT @ xs)


def relative_distance(solver: Solver, task: LinearRegression, steps: int) -> torch.Tensor:
    """|prediction - least squares prediction| / (|w| |x|) at the last query, at most the norm of I - M S."""
    batch = task.sample(64, stream(0))
    xs, ys = batch.problem.xs.double(), batch.problem.ys.double()
    w = torch.linalg.lstsq(xs[:, :-1], ys[:, :-1, None]).solution.squeeze(-1)
    errors = (solver.predict(batch, steps)[:, :, -1, 0] - (w * xs[:, -1]).sum(-1)).abs()
    return errors / (w.norm(dim=-1) * xs[:, -1].norm(dim=-1))


@pytest.mark.parametrize(
    ("solver", "kind", "settings"),
    [
        (GradientDescent(), "gd_contraction", {}),
        (Newton(), "newton_residual", {"start": "spectral"}),
        (Newton(start="identity"), "newton_residual", {"start": "identity"}),
    ],
    ids=["gradient_descent", "newton", "newton-identity"],
)
def test_no_prompt_exceeds_its_worst_case_bound(solver, kind, settings, spectrum):
    task, eigenvalues = spectrum
    left = relative_distance(solver, task, 6)
    kappas = (eigenvalues[:, -1] / eigenvalues[:, 0]).tolist()
    limit = torch.tensor(
        [[bound(kind, task, kappa=k, loops=t, **settings).value() for k in kappas] for t in range(1, 7)]
    )
    assert (left <= limit + 1e-6).all()
    assert (left[:3] > limit[:3] / 2).any(), "a bound far above all residuals tests nothing"


def test_a_spectrum_of_two_eigenvalues_attains_the_worst_case_bounds():
    """Residuals of the algorithms on a matrix with only the two ends of the spectrum."""
    task, kappa = LinearRegression(dim=2, points=3), 7.0
    xs = torch.diag(torch.tensor([1.0, kappa], dtype=torch.float64).sqrt())
    s = xs.T @ xs
    for loops in (1, 2, 3):
        descent = torch.linalg.matrix_power(torch.eye(2) - 2 / (1 + kappa) * s, loops)
        newton = torch.linalg.matrix_power(torch.eye(2) - s @ s / kappa**2, 2**loops)
        for kind, residual in (("gd_contraction", descent), ("newton_residual", newton)):
            exact = bound(kind, task, kappa=kappa, loops=loops).value()
            assert torch.linalg.matrix_norm(residual, 2).item() == pytest.approx(exact, rel=1e-12)


@pytest.mark.parametrize(
    ("kind", "steps"), [("gd_contraction", "gd_steps"), ("newton_residual", "newton_steps")]
)
@pytest.mark.parametrize("kappa", [3.0, 20.0])
def test_the_residual_reaches_the_accuracy_after_the_required_steps(kind: str, steps: str, kappa: float):
    task = LinearRegression()
    needed = math.ceil(bound(steps, task, kappa=kappa, accuracy=1e-4).value())
    before, after = (bound(kind, task, kappa=kappa, loops=k).value() for k in (needed - 1, needed))
    assert after <= 1e-4 < before


def test_the_chebyshev_bound_is_the_best_polynomial_on_its_own_extreme_points():
    """For some right-hand side, every method therefore leaves this residual, also conjugate gradients."""
    steps, kappa = 4, 12.0
    angles = np.pi * np.arange(steps + 1) / steps
    s = (kappa + 1) / 2 + (kappa - 1) / 2 * np.cos(angles)
    best = math.inf
    weights = np.ones(steps + 1)
    # Lawson's iteration finds the weights with the largest error of the best polynomial.
    for _ in range(2000):
        basis = s[:, None] ** np.arange(1, steps + 1)
        fit = np.linalg.lstsq(basis * weights[:, None] ** 0.5, weights**0.5, rcond=None)[0]
        residual = np.abs(1 - basis @ fit)
        best = min(best, residual.max())
        weights = weights * residual
        weights /= weights.sum()
    exact = bound("chebyshev", LinearRegression(), kappa=kappa, loops=steps).value()
    assert best == pytest.approx(exact, rel=1e-3)
