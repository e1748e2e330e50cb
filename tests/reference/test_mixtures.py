"""Mixtures of regressions: EM against a plain loop, the oracle, and what the theory says of both."""

import math

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from scipy.special import logsumexp, softmax

from loopscale.core.prompt import Batch
from loopscale.core.seeds import stream
from loopscale.evaluate import Evaluation, evaluate
from loopscale.solvers.base import Solver
from loopscale.solvers.mixture_regression import MixtureEM, MixtureOracle
from loopscale.solvers.regression import Ridge
from loopscale.tasks.mixture_regression import Components, MixtureRegression
from loopscale.theory.bounds.base import Bound
from loopscale.theory.constructions.mixtures_of_regressions import em_by_gradient

THREE = MixtureRegression(dim=3, points=14, components=3, weights=(3, 2, 1), snr=4)
SIGNS = MixtureRegression(dim=3, points=14, symmetric=True, snr=2, target="components")


def starts(restarts: int, components: int, dim: int) -> np.ndarray:
    """Those that the solver documents: draws from the prior, the same for every prompt."""
    parts = [
        torch.randn(restarts, dim, generator=stream("starts of EM", k), dtype=torch.float64)
        for k in range(components)
    ]
    return torch.stack(parts, 1).numpy()


def plain_em(
    x: np.ndarray, y: np.ndarray, query: np.ndarray, task: MixtureRegression, restarts: int, steps: int
) -> list[float]:
    """One prefix, one start after the other, one component after the other."""
    variance, shares = task.label_noise**2, np.array(task.shares)
    penalty = variance / task.w_scale**2
    runs = []
    for beta in starts(restarts, task.components, task.dim):
        run = []
        for _ in range(steps):
            r = softmax(np.log(shares) - (y[:, None] - x @ beta.T) ** 2 / (2 * variance), axis=1)
            beta = np.array(
                [
                    np.linalg.solve(x.T @ (x * r[:, [k]]) + penalty * np.eye(task.dim), x.T @ (r[:, k] * y))
                    for k in range(task.components)
                ]
            )
            score = np.log(shares) - (y[:, None] - x @ beta.T) ** 2 / (2 * variance)
            goal = np.sum(logsumexp(score, axis=1)) - (beta**2).sum() / (2 * task.w_scale**2)
            run.append((goal, float(shares @ beta @ query)))
        runs.append(run)
    return [max(run[step] for run in runs)[1] for step in range(steps)]


def test_em_is_the_plain_loop_on_every_prefix():
    batch = THREE.sample(2, stream(0))
    found = MixtureEM(restarts=3).predict(batch, 6)
    xs, ys = batch.problem.xs.double().numpy(), batch.problem.ys.double().numpy()
    for prompt in range(2):
        for seen in (1, 2, 7, 13):
            wanted = plain_em(xs[prompt, :seen], ys[prompt, :seen], xs[prompt, seen], THREE, 3, 6)
            np.testing.assert_allclose(found[:, prompt, seen, 0], wanted, rtol=1e-6, atol=1e-8)


def test_em_by_gradient_steps_is_that_of_the_construction():
    task = MixtureRegression(dim=3, points=30, components=2, snr=3, target="components", format="encoder")
    batch = task.sample(4, stream(1))
    mixture = batch.problem.mixture
    x, y = mixture.xs[:, :-1].double(), mixture.ys[:, :-1, None].double()
    start = torch.from_numpy(starts(1, 2, 3)).expand(4, -1, -1)
    wanted = em_by_gradient(x, y, start, task.label_noise, 0.3, 4, steps=5)
    found = MixtureEM(restarts=1, penalty=0, gradient_steps=4, rate=0.3).predict(batch, 5)
    torch.testing.assert_close(found[:, :, 0], wanted.flatten(-2), rtol=1e-9, atol=1e-9)


def test_many_gradient_steps_are_the_exact_m_step():
    batch = THREE.sample(2, stream(0))
    exact, descended = (MixtureEM(restarts=2, gradient_steps=n).predict(batch, 3) for n in (None, 20_000))
    torch.testing.assert_close(descended, exact, rtol=1e-5, atol=1e-6)


def test_em_never_lowers_its_goal():
    batch = SIGNS.sample(64, stream(2))
    solver = MixtureEM(restarts=1, penalty=0)
    mixture = batch.problem.mixture
    goals = []
    for beta in solver.predict(batch, 12)[:, :, 10]:
        off = torch.stack(
            [
                mixture.ys[:, :10] - (sign * mixture.xs[:, :10] @ beta.float()[..., None])[..., 0]
                for sign in (1, -1)
            ]
        )
        goals.append((-off.double().square() / (2 * SIGNS.label_noise**2)).logsumexp(0).sum(1))
    assert (torch.stack(goals).diff(dim=0) > -1e-3).all()


@pytest.mark.parametrize("weights", [None, (3, 1)])
def test_of_two_opposite_components_of_equal_weights_the_best_prediction_is_nothing(weights: tuple | None):
    task = MixtureRegression(dim=3, points=10, symmetric=True, weights=weights, snr=3)
    batch = task.sample(1024, stream(0))
    oracle, ridge = MixtureOracle().predict(batch, 1), Ridge().predict(batch, 1)
    cost = task.error(oracle, batch)[0].mean(1)
    if weights is None:
        assert task.noise_variance == pytest.approx(task.variance)
        assert not oracle.any()
        assert not ridge.any()
        assert not MixtureEM(restarts=1).predict(batch, 3).any()
    else:
        assert task.error(ridge, batch)[0, :, -1].mean() < 0.95
        wanted = task.noise_variance / task.variance
        assert cost.mean().item() == pytest.approx(wanted, abs=4 * cost.std().item() / 32)


@pytest.mark.parametrize(
    "task", [THREE, MixtureRegression(dim=2, points=6, symmetric=True, weights=(2, 1))], ids=str
)
def test_the_oracles_excess_is_none(task: MixtureRegression):
    curve = evaluate(MixtureOracle(), task, Evaluation(loops=1, prompts=20_000))
    assert curve.measures["oracle_distance"][0] < 1e-12
    error = np.hypot.reduce(curve.sem[0]) * task.variance
    assert curve.raw[0].mean() == pytest.approx(task.noise_variance, abs=4 * error / len(curve.sem[0]) ** 0.5)


def told(batch: Batch, task: MixtureRegression, seen: int, labels: np.ndarray) -> np.ndarray:
    """The squared distance from the mean component to the Bayes estimate of it, for one who is told the labels."""
    mixture, penalty = batch.problem, (task.label_noise / task.w_scale) ** 2
    found = []
    for x, y, label, beta in zip(mixture.xs, mixture.ys, labels, mixture.components, strict=True):
        off = np.zeros(task.dim)
        for k, share in enumerate(task.shares):
            mine = x[:seen].double().numpy()[label[:seen] == k]
            answers = y[:seen].double().numpy()[label[:seen] == k]
            estimate = np.linalg.solve(mine.T @ mine + penalty * np.eye(task.dim), mine.T @ answers)
            off += share * (estimate - beta[k].double().numpy())
        found.append(off @ off)
    return np.array(found)


def test_the_floor_is_the_risk_of_one_who_is_told_the_components_of_all_pairs():
    task = MixtureRegression(dim=2, points=9, components=2, weights=(3, 1), snr=500)
    batch = task.sample(1000, stream(3))
    # At this SNR a pair's component is the one whose prediction is nearest, but for one pair in some hundreds.
    near = (
        (batch.problem.ys[..., None] - batch.problem.xs @ batch.problem.components.mT)
        .abs()
        .argmin(-1)
        .numpy()
    )
    for seen in (1, 3, 8):
        off = told(batch, task, seen, near)
        floor = Bound.fill("mixture_told", {"point": seen}, task.model_dump()).value()
        assert off.mean() == pytest.approx(floor, abs=4 * off.std() / 1000**0.5 + 0.01 * floor)


def test_no_solver_is_below_the_floor():
    task = MixtureRegression(dim=2, points=9, components=2, snr=3)
    batch = task.sample(800, stream(4))
    mean = torch.einsum("bkd,bpd->bp", batch.problem.components, batch.problem.xs)[..., None] / 2
    floor = Bound.fill("mixture_told", {}, task.model_dump()).along("point", range(9))
    for solver in (MixtureEM(), Ridge()):
        # What is off from the oracle's guess: the excess, without the noise of the label.
        off = (solver.predict(batch, 10)[-1] - mean)[..., 0].square()
        assert (off.mean(0).numpy() > floor - 3 * (off.std(0) / 800**0.5).numpy()).all()
    assert off.mean(0)[-1] < off.mean(0)[0] / 2


def test_components_are_judged_up_to_their_order_and_of_two_opposite_ones_their_sign():
    for task in (SIGNS, THREE.model_copy(update={"target": "components"})):
        batch = task.sample(8, stream(0))
        assert isinstance(batch.problem, Components)
        other = -batch.targets if task.symmetric else batch.targets.unflatten(-1, (3, 3)).flip(-2).flatten(-2)
        for guess in (batch.targets, other):
            assert not task.error(guess, batch).any()
        assert task.prompt.dim_out == task.wanted * 3
        near = task.error(batch.targets + 0.01, batch)
        torch.testing.assert_close(near, torch.full_like(near, 1e-4), rtol=1e-2, atol=0)


def test_em_finds_components_that_are_far_apart_and_says_how_near_it_came():
    task = MixtureRegression(
        dim=2, points=40, components=2, snr=50, prior="sphere", target="components", format="encoder"
    )
    curve = evaluate(MixtureEM(restarts=10), task, Evaluation(loops=30, prompts=128))
    assert curve.error[-1, 0] < 0.05
    # A mean of roots, and so no more than the root of the mean.
    assert 0 < curve.measures["parameter_error"][-1] <= curve.error[-1, 0] ** 0.5
    assert curve.measures["parameter_error"][-1] < curve.measures["parameter_error"][0]


def parameter_error(snr: float, pairs: int, prompts: int, steps: int) -> tuple[float, float]:
    """The mean of |β̂ - β| / σ, and the mean of its square, by maximum likelihood on ±β."""
    task = MixtureRegression(
        dim=3,
        points=pairs + 1,
        symmetric=True,
        snr=snr,
        prior="sphere",
        target="components",
        format="encoder",
    )
    batch = task.sample(prompts, stream("slopes", pairs))
    error = task.error(MixtureEM(restarts=2, penalty=0).predict(batch, steps)[-1:], batch)[0, :, 0]
    return snr * error.sqrt().mean().item(), snr**2 * error.mean().item()


@pytest.mark.slow
def test_the_slope_in_the_prompts_length_changes_across_the_threshold_of_the_snr():
    lengths, ends = (100, 400, 1600), []
    for snr, steps in ((0.02, 60), (2.0, 30)):
        found = [parameter_error(snr, n, 250, steps)[0] for n in lengths]
        ends.append(np.polyfit(np.log(lengths), np.log(found), 1)[0])
    low, high = ends
    assert low == pytest.approx(-1 / 4, abs=0.06)
    assert high == pytest.approx(-1 / 2, abs=0.06)


@pytest.mark.slow
def test_with_many_pairs_em_has_the_error_of_maximum_likelihood():
    found = parameter_error(2.0, 500, 800, 20)[1]
    exact = Bound.fill("mlr_fisher", {"dim": 3, "point": 500, "snr": 2.0}, {}).value()
    assert found == pytest.approx(exact, rel=4 * math.sqrt(2 / 3 / 800) + 0.03)


def test_on_a_sphere_the_snr_is_exact_in_every_prompt():
    task = MixtureRegression(dim=5, points=3, components=3, snr=4, w_scale=2, prior="sphere")
    norms = task.sample(20, stream(0)).problem.components.norm(dim=-1)
    torch.testing.assert_close(norms, torch.full_like(norms, 4 * task.label_noise))


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (
            {"symmetric": True, "components": 3},
            "symmetric components are 2, β and -β, not 3; write components: 2",
        ),
        ({"weights": [1, 1, 1]}, "3 weights are not one for each of 2 components; write 2 weights"),
        ({"target": "components", "components": 6}, "every order, of 5 components at most, not 6"),
        ({"dim": 3, "active": 4}, "active 4 is more than the dim 3"),
    ],
)
def test_mixtures_that_make_no_sense_are_refused(settings: dict, said: str):
    with pytest.raises(ValidationError, match=said):
        MixtureRegression.model_validate(settings)


def test_a_rate_without_gradient_steps_is_refused():
    with pytest.raises(ValidationError, match="rate needs gradient steps"):
        Solver.model_validate({"kind": "mixture_em", "rate": 0.5})
