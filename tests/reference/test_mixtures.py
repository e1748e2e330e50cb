"""Mixtures of regressions: EM against a plain loop, the oracle, and both against theory."""

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
    """The documented starts of the solver: draws from the prior, the same for every prompt."""
    parts = [
        torch.randn(restarts, dim, generator=stream("starts of EM", k), dtype=torch.float64)
        for k in range(components)
    ]
    return torch.stack(parts, 1).numpy()


def plain_em(
    x: np.ndarray, y: np.ndarray, query: np.ndarray, task: MixtureRegression, restarts: int, steps: int
) -> list[float]:
    """EM on one prefix, with explicit loops over starts and components."""
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


def test_em_equals_the_plain_loop_on_every_prefix():
    batch = THREE.sample(2, stream(0))
    predictions = MixtureEM(restarts=3).predict(batch, 6)
    xs, ys = batch.problem.xs.double().numpy(), batch.problem.ys.double().numpy()
    for prompt in range(2):
        for seen in (1, 2, 7, 13):
            expected = plain_em(xs[prompt, :seen], ys[prompt, :seen], xs[prompt, seen], THREE, 3, 6)
            np.testing.assert_allclose(predictions[:, prompt, seen, 0], expected, rtol=1e-6, atol=1e-8)


def test_em_by_gradient_steps_equals_the_construction():
    task = MixtureRegression(dim=3, points=30, components=2, snr=3, target="components", format="encoder")
    batch = task.sample(4, stream(1))
    mixture = batch.problem.mixture
    x, y = mixture.xs[:, :-1].double(), mixture.ys[:, :-1, None].double()
    start = torch.from_numpy(starts(1, 2, 3)).expand(4, -1, -1)
    expected = em_by_gradient(x, y, start, task.label_noise, 0.3, 4, steps=5)
    predictions = MixtureEM(restarts=1, penalty=0, gradient_steps=4, rate=0.3).predict(batch, 5)
    torch.testing.assert_close(predictions[:, :, 0], expected.flatten(-2), rtol=1e-9, atol=1e-9)


@pytest.mark.slow
def test_many_gradient_steps_equal_the_exact_m_step():
    batch = THREE.sample(2, stream(0))
    exact, descended = (MixtureEM(restarts=2, gradient_steps=n).predict(batch, 3) for n in (None, 20_000))
    torch.testing.assert_close(descended, exact, rtol=1e-5, atol=1e-6)


def test_em_never_lowers_its_objective():
    batch = SIGNS.sample(64, stream(2))
    solver = MixtureEM(restarts=1, penalty=0)
    mixture = batch.problem.mixture
    goals = []
    for beta in solver.predict(batch, 12)[:, :, 10]:
        residuals = torch.stack(
            [
                mixture.ys[:, :10] - (sign * mixture.xs[:, :10] @ beta.float()[..., None])[..., 0]
                for sign in (1, -1)
            ]
        )
        goals.append((-residuals.double().square() / (2 * SIGNS.label_noise**2)).logsumexp(0).sum(1))
    assert (torch.stack(goals).diff(dim=0) > -1e-3).all()


@pytest.mark.parametrize("weights", [None, (3, 1)])
def test_zero_is_the_best_prediction_for_opposite_components_of_equal_weights(weights: tuple | None):
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
        floor = task.noise_variance / task.variance
        assert cost.mean().item() == pytest.approx(floor, abs=4 * cost.std().item() / 32)


@pytest.mark.parametrize(
    "task", [THREE, MixtureRegression(dim=2, points=6, symmetric=True, weights=(2, 1))], ids=str
)
def test_the_oracle_has_no_excess(task: MixtureRegression):
    curve = evaluate(MixtureOracle(), task, Evaluation(loops=1, prompts=20_000))
    assert curve.measures["oracle_distance"][0] < 1e-12
    error = np.hypot.reduce(curve.sem[0]) * task.variance
    assert curve.raw[0].mean() == pytest.approx(task.noise_variance, abs=4 * error / len(curve.sem[0]) ** 0.5)


def squared_distance_given_labels(
    batch: Batch, task: MixtureRegression, seen: int, labels: np.ndarray
) -> np.ndarray:
    """Squared distance between the mean component and its Bayes estimate from pairs with known labels."""
    mixture, penalty = batch.problem, (task.label_noise / task.w_scale) ** 2
    distances = []
    for x, y, label, beta in zip(mixture.xs, mixture.ys, labels, mixture.components, strict=True):
        off = np.zeros(task.dim)
        for k, share in enumerate(task.shares):
            inputs = x[:seen].double().numpy()[label[:seen] == k]
            answers = y[:seen].double().numpy()[label[:seen] == k]
            estimate = np.linalg.solve(inputs.T @ inputs + penalty * np.eye(task.dim), inputs.T @ answers)
            off += share * (estimate - beta[k].double().numpy())
        distances.append(off @ off)
    return np.array(distances)


def test_the_floor_is_the_risk_given_the_labels_of_all_pairs():
    task = MixtureRegression(dim=2, points=9, components=2, weights=(3, 1), snr=500)
    batch = task.sample(1000, stream(3))
    # At this SNR the nearest prediction identifies the component of all but one in several hundred pairs.
    near = (
        (batch.problem.ys[..., None] - batch.problem.xs @ batch.problem.components.mT)
        .abs()
        .argmin(-1)
        .numpy()
    )
    for seen in (1, 3, 8):
        off = squared_distance_given_labels(batch, task, seen, near)
        floor = Bound.fill("mixture_told", {"point": seen}, task.model_dump()).value()
        assert off.mean() == pytest.approx(floor, abs=4 * off.std() / 1000**0.5 + 0.01 * floor)


def test_no_solver_is_below_the_floor():
    task = MixtureRegression(dim=2, points=9, components=2, snr=3)
    batch = task.sample(800, stream(4))
    mean = torch.einsum("bkd,bpd->bp", batch.problem.components, batch.problem.xs)[..., None] / 2
    floor = Bound.fill("mixture_told", {}, task.model_dump()).along("point", range(9))
    for solver in (MixtureEM(), Ridge()):
        # Distance to the prediction of the oracle: the excess without the noise of the label.
        off = (solver.predict(batch, 10)[-1] - mean)[..., 0].square()
        assert (off.mean(0).numpy() > floor - 3 * (off.std(0) / 800**0.5).numpy()).all()
    assert off.mean(0)[-1] < off.mean(0)[0] / 2


def test_the_error_of_components_ignores_their_order_and_sign():
    for task in (SIGNS, THREE.model_copy(update={"target": "components"})):
        batch = task.sample(8, stream(0))
        assert isinstance(batch.problem, Components)
        other = -batch.targets if task.symmetric else batch.targets.unflatten(-1, (3, 3)).flip(-2).flatten(-2)
        for guess in (batch.targets, other):
            assert not task.error(guess, batch).any()
        assert task.prompt.dim_out == task.wanted * 3
        near = task.error(batch.targets + 0.01, batch)
        torch.testing.assert_close(near, torch.full_like(near, 1e-4), rtol=1e-2, atol=0)


def test_em_finds_distant_components_and_parameter_error_falls():
    task = MixtureRegression(
        dim=2, points=40, components=2, snr=50, prior="sphere", target="components", format="encoder"
    )
    curve = evaluate(MixtureEM(restarts=10), task, Evaluation(loops=30, prompts=128))
    assert curve.error[-1, 0] < 0.05
    # The mean of square roots is at most the square root of the mean.
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
def test_the_slope_of_the_error_in_the_prompt_length_depends_on_the_snr():
    lengths, slopes = (100, 400, 1600), []
    for snr, steps in ((0.02, 60), (2.0, 30)):
        errors = [parameter_error(snr, n, 250, steps)[0] for n in lengths]
        slopes.append(np.polyfit(np.log(lengths), np.log(errors), 1)[0])
    low, high = slopes
    assert low == pytest.approx(-1 / 4, abs=0.06)
    assert high == pytest.approx(-1 / 2, abs=0.06)


@pytest.mark.slow
def test_with_many_pairs_em_has_the_error_of_maximum_likelihood():
    error = parameter_error(2.0, 500, 800, 20)[1]
    exact = Bound.fill("mlr_fisher", {"dim": 3, "point": 500, "snr": 2.0}, {}).value()
    assert error == pytest.approx(exact, rel=4 * math.sqrt(2 / 3 / 800) + 0.03)


def test_a_spherical_prior_has_the_exact_snr_in_every_prompt():
    task = MixtureRegression(dim=5, points=3, components=3, snr=4, w_scale=2, prior="sphere")
    norms = task.sample(20, stream(0)).problem.components.norm(dim=-1)
    torch.testing.assert_close(norms, torch.full_like(norms, 4 * task.label_noise))


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"symmetric": True, "components": 3},
            "symmetric means two components, β and -β, not 3; write components: 2",
        ),
        ({"weights": [1, 1, 1]}, "there are 3 weights for 2 components; write 2 weights"),
        ({"target": "components", "components": 6}, "every order of at most 5 components, not 6"),
        ({"dim": 3, "active": 4}, "active 4 is more than the dim 3"),
    ],
)
def test_contradictory_mixtures_are_refused(settings: dict, message: str):
    with pytest.raises(ValidationError, match=message):
        MixtureRegression.model_validate(settings)


def test_a_rate_without_gradient_steps_is_refused():
    with pytest.raises(ValidationError, match="rate needs gradient steps"):
        Solver.model_validate({"kind": "mixture_em", "rate": 0.5})
