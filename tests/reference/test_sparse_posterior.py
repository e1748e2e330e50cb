"""The Bayes predictor of sparse recovery, compared with an explicit enumeration, known limits and other solvers."""

from itertools import combinations, product

import numpy as np
import pytest
import torch
from scipy.special import softmax
from scipy.stats import multivariate_normal

from loopscale.core.seeds import stream
from loopscale.solvers.regression import LeastSquares, Ridge
from loopscale.solvers.sparse import Lasso, OracleSupport
from loopscale.solvers.sparse_posterior import SparsePosterior
from loopscale.tasks.sparse_recovery import SparseRecovery

NOISY = SparseRecovery(dim=6, points=6, nonzero=2, noise=0.4, x_scale=0.7, w_scale=1.5)
SIGNS = NOISY.model_copy(update={"values": "signs"})


def raw_errors(task: SparseRecovery, solver, prompts: int = 4000) -> np.ndarray:
    batch = task.sample(prompts, stream("posterior"))
    residuals = solver.predict(batch, 2)[-1, ..., 0] - batch.targets[..., 0].double()
    return residuals.square().mean(0).numpy()


def enumerated(task: SparseRecovery, xs: np.ndarray, ys: np.ndarray, asked: np.ndarray) -> float:
    """E(y | pairs) by enumeration of the supports, from the joint density of all labels."""
    tau, s = task.w_scale, task.nonzero
    log_likelihoods, guesses = [], []
    for support in combinations(range(task.dim), s):
        inputs, query = xs[:, support], asked[list(support)]
        if task.values == "gaussian":
            covariance = tau**2 * inputs @ inputs.T + task.noise**2 * np.eye(len(ys))
            log_likelihoods.append(multivariate_normal(np.zeros(len(ys)), covariance).logpdf(ys))
            guesses.append(query @ (tau**2 * inputs.T @ np.linalg.solve(covariance, ys)))
            continue
        for signs in product((-tau, tau), repeat=s):
            log_likelihoods.append(-np.square(ys - inputs @ signs).sum() / (2 * task.noise**2))
            guesses.append(query @ np.array(signs))
    return float(softmax(log_likelihoods) @ guesses)


@pytest.mark.parametrize("task", [NOISY, SIGNS, NOISY.model_copy(update={"active": 4})])
def test_the_solver_matches_the_posterior_mean_by_enumeration(task: SparseRecovery):
    batch = task.sample(3, stream("written out"))
    predictions = SparsePosterior().predict(batch, 1)[0, ..., 0].numpy()
    xs, ys = batch.problem.xs.double().numpy(), batch.problem.ys.double().numpy()
    small = task.model_copy(update={"dim": task.at_work, "active": None})
    for prompt in range(3):
        assert predictions[prompt, 0] == 0
        for seen in range(1, task.points):
            pairs = xs[prompt, :seen, : small.dim], ys[prompt, :seen]
            expected = enumerated(small, *pairs, xs[prompt, seen, : small.dim])
            assert predictions[prompt, seen] == pytest.approx(expected, rel=1e-6, abs=1e-9)


def test_without_zero_coordinates_the_solver_equals_ridge():
    task = NOISY.model_copy(update={"nonzero": 6})
    batch = task.sample(20, stream("dense"))
    torch.testing.assert_close(SparsePosterior().predict(batch, 1), Ridge().predict(batch, 1))


@pytest.mark.parametrize("task", [NOISY, SIGNS])
def test_only_the_oracle_has_a_smaller_error(task: SparseRecovery):
    bayes, oracle = (raw_errors(task, solver) for solver in (SparsePosterior(), OracleSupport()))
    others = [raw_errors(task, solver) for solver in (Lasso(), Lasso(penalty=0.1), Ridge(), LeastSquares())]
    assert all((bayes.mean() < other.mean()) for other in others)
    if task.values == "gaussian":
        assert (oracle[1:] < bayes[1:]).all()


@pytest.mark.parametrize(("values", "enough"), [("gaussian", 3), ("signs", 1)])
def test_without_noise_the_solver_is_exact_as_soon_as_only_one_support_fits(values: str, enough: int):
    """With two unknown values on a support, the third pair identifies the support. With signs, one pair does."""
    task = SparseRecovery(dim=8, points=6, nonzero=2, values=values)
    errors = raw_errors(task, SparsePosterior(), 500) / task.variance
    assert errors[enough - 1] > 0.3
    assert errors[enough] < 1e-3
    assert (errors[enough + 1 :] < 1e-9).all()


def test_problems_with_too_many_supports_are_not_accepted():
    few = SparseRecovery(dim=20).sample(1, stream(0)).problem
    many = SparseRecovery(dim=40, nonzero=5).sample(1, stream(0)).problem
    assert SparsePosterior().accepts(few)
    assert not SparsePosterior().accepts(many)
