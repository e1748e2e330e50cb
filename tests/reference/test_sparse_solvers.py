"""Solvers of sparse recovery, compared with scikit-learn, numpy and their own theory on every prefix."""

from itertools import islice

import numpy as np
import pytest
import torch
from sklearn.linear_model import Lasso as ScikitLasso
from sklearn.linear_model import orthogonal_mp

from loopscale.core.prompt import Batch
from loopscale.core.seeds import stream
from loopscale.solvers.base import Solver
from loopscale.solvers.sparse import (
    Correlations,
    Fista,
    Ista,
    Lasso,
    OracleSupport,
    OrthogonalMatchingPursuit,
    SparseSolver,
)
from loopscale.tasks.base import Task
from loopscale.tasks.linear_regression import LinearRegression
from loopscale.tasks.sparse_recovery import SparseRecovery
from loopscale.theory.bounds.base import Bound

TASKS = [
    SparseRecovery(dim=8, points=12, nonzero=2, noise=0.3),
    SparseRecovery(dim=10, points=9, nonzero=3, values="signs", matrices="fixed"),
    LinearRegression(dim=5, points=9, noise=0.2, condition=20),
]


@pytest.fixture(params=TASKS, ids=["noisy", "fewer pairs than coordinates", "dense"])
def batch(request: pytest.FixtureRequest) -> Batch:
    return request.param.sample(4, stream("reference"))


def each_prefix(batch: Batch):
    """Prompt, point and the visible pairs, in float64, from the first pair on."""
    xs, ys = batch.problem.xs.double().numpy(), batch.problem.ys.double().numpy()
    for prompt in range(len(xs)):
        for point in range(1, xs.shape[1]):
            yield prompt, point, xs[prompt, :point], ys[prompt, :point]


def iterates(solver: SparseSolver, batch: Batch, steps: int = 1) -> np.ndarray:
    pairs = Correlations(batch.problem.xs, batch.problem.ys)
    return torch.stack(list(islice(solver.resolved(batch.problem).iterates(pairs), steps))).numpy()


def objective(weights: np.ndarray, xs: np.ndarray, ys: np.ndarray, penalty: float) -> float:
    return np.square(xs @ weights - ys).mean() / 2 + penalty * np.abs(weights).sum()


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("penalty", [0.01, 0.2])
def test_lasso_matches_scikit_learn(batch: Batch, penalty: float):
    results = iterates(Lasso(penalty=penalty), batch)[0]
    for prompt, point, xs, ys in each_prefix(batch):
        scikit = ScikitLasso(alpha=penalty, fit_intercept=False, tol=1e-13, max_iter=500_000)
        np.testing.assert_allclose(results[prompt, point], scikit.fit(xs, ys).coef_, atol=1e-7)


@pytest.mark.parametrize("penalty", [1e-4, 0.01, 0.2])
def test_lasso_satisfies_the_optimality_conditions_at_the_size_of_the_paper(penalty: float):
    problem = SparseRecovery(dim=20, points=30, noise=0.1).sample(32, stream("conditions")).problem
    pairs = Correlations(problem.xs, problem.ys)
    weights = next(iter(Lasso(penalty=penalty).iterates(pairs)))
    slope = -pairs.gradient(weights)
    assert (slope.abs() <= penalty + 1e-9).all()
    assert ((slope - penalty * weights.sign())[weights != 0].abs() < 1e-9).all()
    assert (weights[:, 1:] != 0).any(-1).double().mean() > 0.9


def test_ista_matches_the_printed_iteration(batch: Batch):
    results = iterates(Ista(penalty=0.05), batch, 7)
    for prompt, point, xs, ys in each_prefix(batch):
        weights, lipschitz = np.zeros(xs.shape[1]), np.linalg.norm(xs, 2) ** 2 / point
        for step in range(7):
            moved = weights - xs.T @ (xs @ weights - ys) / point / lipschitz
            weights = np.sign(moved) * np.maximum(np.abs(moved) - 0.05 / lipschitz, 0)
            np.testing.assert_allclose(results[step, prompt, point], weights, atol=1e-10)


@pytest.mark.parametrize("solver", [Ista(penalty=0.1), Fista(penalty=0.1)], ids=lambda s: s.kind)
def test_ista_and_fista_converge_to_the_lasso(solver: SparseSolver):
    batch = TASKS[0].sample(4, stream("reference"))
    ends, lasso = iterates(solver, batch, 4000)[-1], iterates(Lasso(penalty=0.1), batch)[0]
    for prompt, point, xs, ys in each_prefix(batch):
        reached, least = (objective(weights[prompt, point], xs, ys, 0.1) for weights in (ends, lasso))
        assert least - 1e-12 <= reached <= least + 1e-7


def test_fista_and_ista_keep_their_bounds_and_ista_is_slower(batch: Batch):
    """The bounds are 2L|β|²/(k+1)² and L|β|²/2k above the minimum (Beck and Teboulle 2009, theorems 4.4 and 3.1)."""
    lasso, slow, fast = (iterates(solver, batch, 40) for solver in (Lasso(), Ista(), Fista()))
    above, closest = {"slow": 0.0, "fast": 0.0}, 0.0
    for prompt, point, xs, ys in each_prefix(batch):
        least = objective(lasso[0, prompt, point], xs, ys, 0.01)
        far = np.square(lasso[0, prompt, point]).sum() * np.linalg.norm(xs, 2) ** 2 / point
        for step in range(1, 41):
            gaps = [objective(each[step - 1, prompt, point], xs, ys, 0.01) - least for each in (slow, fast)]
            assert gaps[0] <= far / (2 * step) + 1e-12
            assert gaps[1] <= 2 * far / (step + 1) ** 2 + 1e-12
            closest = max(closest, gaps[0] / far * 2 * step)
            if step == 40:
                above["slow"], above["fast"] = above["slow"] + gaps[0], above["fast"] + gaps[1]
    assert closest > 0.05, "a bound that is never approached would test nothing"
    assert above["fast"] < above["slow"] / 2


def test_matching_pursuit_matches_scikit_learn(batch: Batch):
    """scikit-learn receives normalised columns, because the solver compares normalised columns."""
    results = iterates(OrthogonalMatchingPursuit(atoms=3), batch, 3)
    for prompt, point, xs, ys in each_prefix(batch):
        sizes = np.linalg.norm(xs, axis=0)
        for atoms in range(1, min(3, point) + 1):
            scikit = orthogonal_mp(xs / sizes, ys, n_nonzero_coefs=atoms) / sizes
            np.testing.assert_allclose(results[atoms - 1, prompt, point], scikit, atol=1e-8)


def test_matching_pursuit_stops_at_the_known_number_of_coordinates():
    batch = TASKS[0].sample(8, stream("reference"))
    results = iterates(OrthogonalMatchingPursuit(), batch, 6)
    chosen = (results != 0).sum(-1)
    assert chosen.max() == 2
    assert (chosen[0, :, 1:] == 1).all()
    np.testing.assert_array_equal(results[1], results[5])


def test_oracle_is_least_squares_on_the_support():
    batch = SparseRecovery(dim=8, points=10, nonzero=3).sample(4, stream("oracle"))
    support = batch.problem.support.numpy()
    results = OracleSupport().predict(batch, 1)[0, ..., 0].numpy()
    for prompt, point, xs, ys in each_prefix(batch):
        query = batch.problem.xs[prompt, point].double().numpy()[support[prompt]]
        weights = np.linalg.lstsq(xs[:, support[prompt]], ys, rcond=None)[0]
        assert results[prompt, point] == pytest.approx(query @ weights, rel=1e-6, abs=1e-7)


def test_oracle_has_the_predicted_risk():
    task = SparseRecovery(dim=12, points=13, nonzero=3, noise=1.0)
    batch = task.sample(6000, stream("risk"))
    raw = task.raw_error(OracleSupport(penalty=0.0).predict(batch, 1), batch)[0, :, -1]
    expected = (
        1 + Bound.fill("sparse_oracle", {"dim": 12, "point": 12, "nonzero": 3, "noise": 1.0}, {}).value()
    )
    assert abs(raw.mean().item() - expected) < 4 * raw.std().item() / 6000**0.5


def test_no_solver_beats_the_oracle_under_noise():
    task = SparseRecovery(dim=8, points=12, nonzero=2, noise=0.5)
    batch = task.sample(800, stream("oracle"))
    best = task.error(OracleSupport().predict(batch, 1), batch)[0]
    for kind, choice in Solver.choices().items():
        solver = choice()
        if kind == "oracle_support" or not isinstance(solver, SparseSolver):
            continue
        others = task.error(solver.predict(batch, 5), batch)[-1]
        gap = (others - best).mean(1)
        assert gap.mean() > -3 * gap.std() / len(gap) ** 0.5, kind


def test_without_noise_l1_recovers_where_least_squares_does_not():
    task = SparseRecovery(dim=40, points=31, nonzero=3)
    batch = task.sample(24, stream("recovery"))
    assert 1.5 * Bound.fill("l1_threshold", {"dim": 40, "nonzero": 3}, {}).value() < 30
    lasso = task.error(Lasso(penalty=1e-6).predict(batch, 1), batch)[0, :, -1]
    dense = task.error(Solver.model_validate({"kind": "least_squares"}).predict(batch, 1), batch)[0, :, -1]
    assert lasso.max() < 1e-8
    assert dense.mean() > 0.1


@pytest.mark.parametrize("kind", ["ista", "lasso", "orthogonal_matching_pursuit"])
def test_inactive_coordinates_stay_zero(kind: str):
    task = Task.model_validate({"kind": "sparse_recovery", "dim": 9, "points": 8, "active": 4})
    solver = Solver.model_validate({"kind": kind})
    assert isinstance(solver, SparseSolver)
    assert not iterates(solver, task.sample(4, stream("few")), 3)[..., 4:].any()
