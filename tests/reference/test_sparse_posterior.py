"""The Bayes predictor of sparse recovery: against every support written out, limits that are known, and rivals."""

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
    missed = solver.predict(batch, 2)[-1, ..., 0] - batch.targets[..., 0].double()
    return missed.square().mean(0).numpy()


def written_out(task: SparseRecovery, xs: np.ndarray, ys: np.ndarray, asked: np.ndarray) -> float:
    """E(y | pairs), support by support, by the density of all that was seen at once."""
    tau, s = task.w_scale, task.nonzero
    likely, guesses = [], []
    for support in combinations(range(task.dim), s):
        seen, there = xs[:, support], asked[list(support)]
        if task.values == "gaussian":
            spread = tau**2 * seen @ seen.T + task.noise**2 * np.eye(len(ys))
            likely.append(multivariate_normal(np.zeros(len(ys)), spread).logpdf(ys))
            guesses.append(there @ (tau**2 * seen.T @ np.linalg.solve(spread, ys)))
            continue
        for signs in product((-tau, tau), repeat=s):
            likely.append(-np.square(ys - seen @ signs).sum() / (2 * task.noise**2))
            guesses.append(there @ np.array(signs))
    return float(softmax(likely) @ guesses)


@pytest.mark.parametrize("task", [NOISY, SIGNS, NOISY.model_copy(update={"active": 4})])
def test_it_is_the_posterior_mean_with_every_support_written_out(task: SparseRecovery):
    batch = task.sample(3, stream("written out"))
    found = SparsePosterior().predict(batch, 1)[0, ..., 0].numpy()
    xs, ys = batch.problem.xs.double().numpy(), batch.problem.ys.double().numpy()
    small = task.model_copy(update={"dim": task.at_work, "active": None})
    for prompt in range(3):
        assert found[prompt, 0] == 0
        for seen in range(1, task.points):
            pairs = xs[prompt, :seen, : small.dim], ys[prompt, :seen]
            expected = written_out(small, *pairs, xs[prompt, seen, : small.dim])
            assert found[prompt, seen] == pytest.approx(expected, rel=1e-6, abs=1e-9)


def test_where_nothing_is_zero_it_is_ridge():
    task = NOISY.model_copy(update={"nonzero": 6})
    batch = task.sample(20, stream("dense"))
    torch.testing.assert_close(SparsePosterior().predict(batch, 1), Ridge().predict(batch, 1))


@pytest.mark.parametrize("task", [NOISY, SIGNS])
def test_nobody_who_is_not_told_the_support_has_less_error_and_who_is_told_has(task: SparseRecovery):
    bayes, oracle = (raw_errors(task, each) for each in (SparsePosterior(), OracleSupport()))
    others = [raw_errors(task, each) for each in (Lasso(), Lasso(penalty=0.1), Ridge(), LeastSquares())]
    assert all((bayes.mean() < other.mean()) for other in others)
    if task.values == "gaussian":
        assert (oracle[1:] < bayes[1:]).all()


@pytest.mark.parametrize(("values", "enough"), [("gaussian", 3), ("signs", 1)])
def test_without_noise_it_is_exact_once_no_other_support_fits(values: str, enough: int):
    """Two unknowns on a support: a third pair tells the supports apart. Signs are countable, and one pair does."""
    task = SparseRecovery(dim=8, points=6, nonzero=2, values=values)
    found = raw_errors(task, SparsePosterior(), 500) / task.variance
    assert found[enough - 1] > 0.3
    assert found[enough] < 1e-3
    assert (found[enough + 1 :] < 1e-9).all()


def test_more_supports_than_can_be_counted_are_not_taken():
    some = SparseRecovery(dim=20).sample(1, stream(0)).problem
    many = SparseRecovery(dim=40, nonzero=5).sample(1, stream(0)).problem
    assert SparsePosterior().accepts(some)
    assert not SparsePosterior().accepts(many)
