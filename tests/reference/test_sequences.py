"""Autoregressions and chains of thought against their definitions; their solvers against numpy and scikit-learn."""

import math
from dataclasses import replace
from typing import Literal

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from scipy.integrate import quad
from scipy.stats import norm
from sklearn.linear_model import Ridge as ScikitRidge

from loopscale.core.prompt import Batch
from loopscale.core.seeds import stream
from loopscale.solvers.chain_of_thought import LayerBayes, LayerLeastSquares
from loopscale.solvers.regression import (
    Averaging,
    ConjugateGradient,
    GradientDescent,
    LeastSquares,
    Newton,
    RegressionSolver,
    Ridge,
)
from loopscale.studies.schema import solver_kinds
from loopscale.tasks.autoregression import Autoregression
from loopscale.tasks.chain_of_thought import ChainOfThought, Chains
from loopscale.tasks.regression import Regression
from loopscale.tasks.representation_regression import Representation, RepresentationRegression

SERIES = Autoregression(q=2, dim=3, points=9, width=4, noise=0.4, slope=0.4, w_scale=0.8)
CHAINS = ChainOfThought(dim=4, points=8, depth=3, slope=0.3)


def test_a_series_follows_its_equation_with_weights_per_prompt():
    """Without noise, later values are one linear map of the features. Least squares recovers the map."""
    task = Autoregression(q=2, dim=3, points=30, width=4, noise=0)
    problem = task.sample(2, stream(0)).problem
    features, values = problem.representation.double(), problem.ys.double()
    maps = torch.linalg.lstsq(features, values).solution
    torch.testing.assert_close(features @ maps, values, rtol=1e-4, atol=1e-4)
    assert not torch.allclose(maps[0], maps[1], atol=0.1)


def test_features_are_the_normalised_shared_net_of_the_last_q_values():
    batch = SERIES.sample(3, stream(0))
    net = Representation(dim=6, layers=3, width=4, slope=0.4, gain=1.0, representation_seed=0)
    assert net == RepresentationRegression(dim=6, width=4, slope=0.4).representation
    for point, query in enumerate(batch.queries.tolist()):
        window = torch.cat([batch.tokens[:, query - 1], batch.tokens[:, query]], dim=-1)
        torch.testing.assert_close(batch.problem.xs[:, point], window)
        plain = net(window)
        expected = plain / plain.square().mean(-1, keepdim=True).sqrt()
        torch.testing.assert_close(batch.problem.representation[:, point], expected)
        if point + 1 < SERIES.points:
            torch.testing.assert_close(batch.targets[:, point], batch.tokens[:, query + 1])


@pytest.mark.parametrize("settings", [{}, {"dim": 5, "width": 5, "q": 2, "noise": 0.5}, {"w_scale": 3.0}])
def test_series_stay_bounded_for_every_representation(settings: dict):
    """The mean square hardly grows, on average and in the worst of many series."""
    for seed in range(12):
        task = Autoregression.model_validate(settings | {"representation_seed": seed, "points": 60})
        square = task.sample(128, stream("bounded", seed)).tokens.square().mean(-1) / task.variance
        assert square.mean(0).max() < 1.5
        assert square.max() < 12
        late, early = square[:, -20:].mean(), square[:, 5:25].mean()
        assert late < 1.1 * early


def test_variances_equal_the_variance_of_independent_series():
    task = Autoregression(q=1, dim=3, points=25, width=3, slope=0.5)
    targets = task.sample(20_000, stream("others")).targets
    square = targets.square().mean(-1)
    off = (square.mean(0) - task.variances) / (square.std(0) / 20_000**0.5)
    assert off.abs().max() < 5
    assert task.variances[0].item() == pytest.approx(task.variance)
    assert task.variances[-1] > 1.01 * task.variance, "otherwise a constant would suffice"


def test_an_easier_series_uses_only_its_first_coordinates():
    easier = SERIES.easier(dim=2, points=4)
    batch = easier.sample(2000, stream(0))
    assert (batch.tokens[..., 2:] == 0).all()
    assert (batch.targets[..., :2] != 0).all()
    assert easier.noise_variance == pytest.approx(0.16 * 2 / 3)
    whole = SERIES.error(torch.zeros_like(batch.targets), batch)
    assert whole.mean().item() == pytest.approx(2 / 3, rel=0.1), "the scale stays that of the full task"


@pytest.mark.parametrize("features", ["xs", "representation"])
def test_least_squares_of_a_vector_equals_numpy(features: str):
    batch = SERIES.sample(4, stream("reference"))
    predictions = LeastSquares(features=_feature_setting(features)).predict(batch, 1)[0].numpy()
    for prompt, point, xs, ys, query in each_prefix(batch, features):
        expected = query @ np.linalg.lstsq(xs, ys, rcond=None)[0]
        np.testing.assert_allclose(predictions[prompt, point], expected, rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("features", ["xs", "representation"])
@pytest.mark.parametrize("penalty", [None, 2.0])
def test_ridge_of_a_vector_equals_scikit_learn(features: str, penalty: float | None):
    batch = SERIES.sample(4, stream("reference"))
    predictions = Ridge(features=_feature_setting(features), penalty=penalty).predict(batch, 1)[0].numpy()
    alpha = (0.4 / 0.8) ** 2 if penalty is None else penalty
    for prompt, point, xs, ys, query in each_prefix(batch, features):
        expected = (
            ScikitRidge(alpha=alpha, fit_intercept=False, solver="svd").fit(xs, ys).predict(query[None])
        )
        np.testing.assert_allclose(predictions[prompt, point], expected[0], rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize(
    "solver", [GradientDescent(), Newton(), ConjugateGradient(), Averaging(), Ridge(penalty=0.3)]
)
def test_a_vector_is_regressed_coordinate_by_coordinate(solver: RegressionSolver):
    batch = SERIES.sample(4, stream("reference"))
    predictions = solver.predict(batch, 6)
    for coordinate in range(SERIES.dim):
        alone = Regression(batch.problem.xs, batch.problem.ys[..., coordinate], 0.16, 0.64)
        expected = solver.predict(replace(batch, problem=alone), 6)
        torch.testing.assert_close(
            predictions[..., coordinate : coordinate + 1], expected, rtol=1e-9, atol=1e-9
        )


def test_ridge_on_the_features_is_the_best_predictor_of_a_series():
    """Ridge is the Bayes predictor: other penalties and ridge on x have larger errors. Its error exceeds the noise."""
    batch = SERIES.sample(4000, stream(0))
    best = SERIES.raw_error(Ridge(features="representation").predict(batch, 1), batch)[0]
    assert (best.mean(0) > SERIES.noise_variance).all()
    bayes = (0.4 / 0.8) ** 2
    others = [Ridge(features="representation", penalty=factor * bayes) for factor in (0.2, 5.0)]
    for other in (*others, Ridge()):
        gain = (SERIES.raw_error(other.predict(batch, 1), batch)[0] - best).mean(-1)
        assert gain.mean() > 3 * gain.std() / 4000**0.5, other


def test_ridge_on_the_features_has_the_bayes_risk():
    """Given the past, the expected squared error per coordinate is σ² + τ² (φ'(I + S τ²/σ²)^-1 φ)."""
    batch = SERIES.sample(4000, stream(0))
    raw = SERIES.raw_error(Ridge(features="representation").predict(batch, 1), batch)[0].double()
    phi = batch.problem.representation.double()
    noise, weight = batch.problem.noise_variance, batch.problem.weight_variance
    for point in range(SERIES.points):
        gram = phi[:, :point].mT @ phi[:, :point]
        spread = torch.linalg.inv(torch.eye(4) / weight + gram / noise)
        risk = noise + torch.einsum("bi,bij,bj->b", phi[:, point], spread, phi[:, point])
        off = raw[:, point] - risk
        assert off.mean().abs() < 4 * off.std() / 4000**0.5, point


def test_all_chains_of_a_prompt_come_from_one_net_and_have_one_token_per_state():
    task = ChainOfThought(dim=3, points=9, depth=2, slope=0.2)
    batch = task.sample(2, stream(0))
    assert batch.tokens.shape == (2, 26, 3)
    assert batch.queries.tolist() == [n for n in range(26) if n % 3 < 2]
    torch.testing.assert_close(batch.problem.xs, batch.tokens[:, batch.queries])
    inner = batch.queries[:-1] + 1
    torch.testing.assert_close(batch.targets[:, :-1], batch.tokens[:, inner])
    for layer in range(2):
        xs, ys = (states[:, layer::2].double() for states in (batch.problem.xs, batch.problem.ys))
        before = torch.where(ys < 0, ys / 0.2, ys)
        weight = torch.linalg.lstsq(xs, before).solution
        torch.testing.assert_close(xs @ weight, before, rtol=1e-4, atol=1e-4)
        assert (weight[0] - weight[1]).abs().max() > 0.1


@pytest.mark.parametrize("weights", ["gaussian", "orthogonal"])
@pytest.mark.parametrize("slope", [0.01, 0.5, 1.0])
def test_every_state_of_a_chain_has_variance_one(slope: float, weights: Literal["gaussian", "orthogonal"]):
    task = ChainOfThought(dim=8, points=3, slope=slope, weights=weights)
    targets = task.sample(20_000, stream(0)).targets
    square = targets.square().mean(-1).unflatten(1, (3, 6)).mean(1)
    off = (square.mean(0) - 1) / (square.std(0) / 20_000**0.5)
    assert off.abs().max() < 4.5


@pytest.mark.parametrize(
    ("weights", "growth"), [("gaussian", 1 + 3.08 / 5), ("orthogonal", 1 + 3 * 0.36 / 7)]
)
def test_the_size_of_states_spreads_by_the_documented_factor_per_layer(
    weights: Literal["gaussian", "orthogonal"], growth: float
):
    """The formulas of the docstring at dim 5 and slope 0.5, after two layers, where the estimate is still precise."""
    task = ChainOfThought(dim=5, points=1, depth=2, slope=0.5, weights=weights)
    square = task.sample(60_000, stream(0)).targets.double().square().mean(-1)
    first, second = square.square().mean(0).tolist()
    assert second / first == pytest.approx(growth, rel=0.06)


def test_orthogonal_layers_keep_lengths_and_have_no_bayes_predictor():
    task = ChainOfThought(dim=3, points=6, depth=2, slope=0.2, weights="orthogonal")
    problem = task.sample(2, stream(0)).problem
    xs, ys = problem.xs[:, 1::2].double(), problem.ys[:, 1::2].double()
    before = torch.where(ys < 0, ys / 0.2, ys)
    torch.testing.assert_close(before.norm(dim=-1), xs.norm(dim=-1) * (2 / 1.04) ** 0.5, rtol=1e-4, atol=1e-5)
    assert LayerLeastSquares().takes(problem)
    assert not LayerBayes().takes(problem)
    assert LayerBayes.kind not in solver_kinds(task)


@pytest.mark.parametrize("slope", [0, 1e-6])
def test_a_slope_that_cannot_be_inverted_in_float32_is_refused(slope: float):
    with pytest.raises(ValidationError, match=r"slope\n.*0\.001"):
        ChainOfThought(slope=slope)


def test_with_the_smallest_slope_bayes_still_solves_a_chain():
    task = ChainOfThought(slope=0.001, points=25)
    batch = task.sample(20, stream(0))
    error = task.error(LayerBayes().predict(batch, 1), batch)[0].unflatten(1, (25, 6))
    assert error[:, 20:].mean() < 1e-6


@pytest.mark.parametrize("slope", [0, 1e-6])
def test_a_slope_with_dead_features_is_refused(slope: float):
    with pytest.raises(ValidationError, match=r"slope\n.*0\.001"):
        Autoregression(slope=slope)


@pytest.mark.parametrize("layers", [1, 5])
def test_predicting_zero_costs_one_if_all_features_are_negative(layers: int):
    """Φ has one feature and keeps negative values negative. For half of all inputs Φ is as small as slope^layers."""
    task = Autoregression(q=1, dim=2, width=1, layers=layers, slope=0.001, representation_seed=12)
    assert task.representation.weights[1:] == () or min(task.representation.weights[1:]) > 0
    batch = task.sample(4096, stream(0))
    cost = task.error(torch.zeros_like(batch.targets), batch)[:, 0]
    assert cost.mean().item() == pytest.approx(1, abs=4 * cost.std().item() / 64)


def test_measures_contain_the_error_of_every_step_of_a_chain():
    batch = CHAINS.sample(5, stream(0))
    guess = torch.zeros_like(batch.targets).unflatten(1, (8, 3))
    guess[:, :, 1] = batch.targets.unflatten(1, (8, 3))[:, :, 1]
    measured = CHAINS.measures(guess.flatten(1, 2)[None], batch)
    error = CHAINS.error(torch.zeros_like(batch.targets), batch)
    assert list(measured) == ["chain_step_1", "chain_step_2", "chain_step_3"]
    assert (measured["chain_step_2"] == 0).all()
    torch.testing.assert_close(measured["chain_step_3"][0], error[:, 2::3].mean(-1))
    whole = CHAINS.error(guess.flatten(1, 2), batch).mean(-1)
    torch.testing.assert_close(torch.stack(list(measured.values())).mean(0)[0], whole)


def test_least_squares_of_a_layer_equals_numpy_on_the_inputs_of_the_activation():
    batch = CHAINS.sample(4, stream("reference"))
    predictions = LayerLeastSquares().predict(batch, 2)
    xs, ys = batch.problem.xs.double().numpy(), batch.problem.ys.double().numpy()
    for prompt in range(4):
        for query in range(3, 24):
            seen = [n for n in range(query) if n % 3 == query % 3]
            before = np.where(ys[prompt, seen] < 0, ys[prompt, seen] / 0.3, ys[prompt, seen])
            forecast = xs[prompt, query] @ np.linalg.lstsq(xs[prompt, seen], before, rcond=None)[0]
            expected = np.where(forecast < 0, 0.3 * forecast, forecast)
            np.testing.assert_allclose(
                predictions[:, prompt, query], np.stack([expected] * 2), rtol=1e-6, atol=1e-6
            )


@pytest.mark.parametrize("solver", [LayerLeastSquares(), LayerBayes()], ids=lambda solver: solver.kind)
def test_a_chain_is_solved_after_as_many_demonstrations_as_coordinates(solver):
    batch = CHAINS.sample(500, stream(0))
    error = CHAINS.error(solver.predict(batch, 1), batch)[0].unflatten(1, (8, 3))
    assert error[:, 4:].median() < 1e-10
    assert error[:, 3].median() > 1e-3


def test_bayes_is_the_posterior_mean_over_layers():
    """The reference integrates over the posterior Gaussian of each coordinate."""
    xs = torch.tensor([[[2.0, 0.0], [1.0, 3.0]]])
    ys = torch.tensor([[[1.2, -0.4], [0.0, 0.0]]])
    problem = Chains(xs, ys, depth=1, slope=0.2, weight_variance=0.7, gaussian=True, at_work=xs.shape[-1])
    predictions = LayerBayes().predict(Batch(xs, ys, torch.arange(2), problem), 1)[0, 0, 1]
    for coordinate, slope_known in enumerate((0.6, -1.0)):
        mean, spread = slope_known, 3 * math.sqrt(0.7)
        expected, _ = quad(
            lambda z, m=mean, s=spread: (z if z > 0 else 0.2 * z) * norm.pdf(z, m, s), -40, 40, points=[0]
        )
        assert predictions[coordinate].item() == pytest.approx(expected, rel=1e-6)


def test_the_bayes_error_before_any_demonstration_equals_its_formula():
    task = ChainOfThought(dim=6, points=1, slope=0.1)
    batch = task.sample(20_000, stream(0))
    error = task.error(LayerBayes().predict(batch, 1), batch)[0]
    expected = 1 - (1 - 0.1) ** 2 / (math.pi * (1 + 0.1**2))
    off = (error.mean(0) - expected) / (error.std(0) / 20_000**0.5)
    assert off.abs().max() < 4.5


def test_bayes_beats_least_squares_on_chains():
    batch = CHAINS.sample(4000, stream(0))
    best = CHAINS.error(LayerBayes().predict(batch, 1), batch)[0].unflatten(1, (8, 3))[:, :4].mean((1, 2))
    plain = (
        CHAINS.error(LayerLeastSquares().predict(batch, 1), batch)[0].unflatten(1, (8, 3))[:, :4].mean((1, 2))
    )
    gain = plain - best
    assert gain.mean() > 3 * gain.std() / 4000**0.5


def each_prefix(batch: Batch, features: str):
    """Yields prompt, point, the seen xs and ys, and the query, in float64, for all points with at least one pair."""
    xs, ys = getattr(batch.problem, features).double().numpy(), batch.problem.ys.double().numpy()
    for prompt in range(len(xs)):
        for point in range(1, xs.shape[1]):
            yield prompt, point, xs[prompt, :point], ys[prompt, :point], xs[prompt, point]


def _feature_setting(features: str):
    return "inputs" if features == "xs" else "representation"
