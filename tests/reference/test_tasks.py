"""The regression tasks against their definitions: spectrum, scales, representation."""

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from torch import nn

from loopscale.core.seeds import stream
from loopscale.evaluate import error_curve
from loopscale.solvers.regression import ConjugateGradient
from loopscale.tasks.linear_regression import LinearRegression
from loopscale.tasks.representation_regression import RepresentationRegression
from loopscale.theory.bounds.base import Bound


@pytest.mark.parametrize(("dim", "condition"), [(20, 100.0), (4, 9.0), (5, 10.0), (3, 1.0)])
def test_the_covariance_has_two_levels_with_the_right_ratio_and_trace(dim: int, condition: float):
    task = LinearRegression(dim=dim, points=4000, condition=condition, x_scale=2.0)
    xs = task.sample(3, stream(0)).problem.xs.double()
    spectra = torch.linalg.eigvalsh(xs.mT @ xs / 4000).flip(-1)
    expected = torch.tensor(task.spectrum, dtype=torch.float64)
    assert expected.sum().item() == pytest.approx(4 * dim)
    assert (expected[0] / expected[-1]).item() == pytest.approx(condition)
    assert (expected == expected[0]).sum() == (dim // 2 if condition > 1 else dim)
    for spectrum in spectra:
        np.testing.assert_allclose(spectrum, expected, rtol=0.25)
    np.testing.assert_allclose(spectra.sum(-1), 4 * dim, rtol=0.05)


def test_a_spectrum_has_as_many_levels_as_set_and_falls_by_equal_factors():
    spectrum = np.array(LinearRegression(dim=7, condition=27, spectrum_levels=4, x_scale=2.0).spectrum)
    values, counts = np.unique(spectrum.round(12), return_counts=True)
    np.testing.assert_allclose(values[1:] / values[:-1], 3)
    assert counts.tolist() == [2, 2, 2, 1]
    assert spectrum.sum() == pytest.approx(4 * 7)
    with pytest.raises(ValidationError, match="spectrum_levels: 3"):
        LinearRegression(dim=3, condition=2, spectrum_levels=4)


def test_more_levels_need_more_steps_of_conjugate_gradients():
    """With many more pairs than dimensions, the pairs have nearly the spectrum of the inputs."""

    def errors(**levels: int) -> list[float]:
        task = LinearRegression(dim=8, points=400, condition=1000, **levels)
        return error_curve(ConjugateGradient(), task, 2, stream(0), 8)[:, -1].tolist()

    assert errors(spectrum_levels=2) == errors()
    assert errors()[1] < errors(spectrum_levels=8)[1] / 10


@pytest.mark.parametrize(
    ("kind", "noise"),
    [("lsa_min", 0.5), ("ridge_equiv", 0.5), ("first_order_spectrum", 0.0), ("gd_contraction", 0.0)],
)
def test_bounds_read_the_levels_of_the_task(kind: str, noise: float):
    settings = {"task.dim": 8, "task.points": 24, "task.condition": 64.0, "task.noise": noise}
    two, default, eight = (
        Bound.fill(kind, {}, settings | more).value()
        for more in ({"task.spectrum_levels": 2}, {}, {"task.spectrum_levels": 8})
    )
    assert two == default != pytest.approx(eight, rel=0.01)


def test_every_prompt_draws_its_eigenvectors():
    xs = LinearRegression(dim=6, points=3000, condition=1000).sample(2, stream(0)).problem.xs.double()
    first, second = (torch.linalg.eigh(x.T @ x).eigenvectors[:, -3:] for x in xs)
    assert torch.linalg.svdvals(first.T @ second).min() < 0.9


def test_inputs_are_isotropic_over_prompts():
    xs = LinearRegression(dim=4, points=1, condition=50).sample(40_000, stream(0)).problem.xs[:, 0]
    np.testing.assert_allclose(xs.T @ xs / 40_000, np.eye(4), atol=0.04)


@pytest.mark.parametrize("condition", [1.0, 30.0])
def test_an_easier_task_zeroes_all_but_the_first_coordinates(condition: float):
    task = LinearRegression(dim=6, points=8, condition=condition)
    xs = task.easier(dim=2, points=8).sample(4, stream(0)).problem.xs
    torch.testing.assert_close(xs[..., :2], task.sample(4, stream(0)).problem.xs[..., :2])
    assert (xs[..., 2:] == 0).all()


def test_the_representation_equals_a_leaky_relu_net_of_torch():
    task = RepresentationRegression(dim=4, width=7, layers=2, slope=0.2, points=5)
    batch = task.sample(3, stream(0))
    net = nn.Sequential(
        nn.Linear(4, 7, bias=False), nn.LeakyReLU(0.2), nn.Linear(7, 7, bias=False), nn.LeakyReLU(0.2)
    )
    rng = stream(0, "representation")
    for layer, fan_in in ((net[0], 4), (net[2], 7)):
        scale = (2 / (1 + 0.2**2) * 7 / fan_in) ** 0.5
        layer.weight.data = (scale * nn.init.orthogonal_(torch.empty(fan_in, 7), generator=rng)).T
    torch.testing.assert_close(batch.problem.representation, net(batch.problem.xs).detach())


def test_y_is_linear_in_the_representation_with_weights_per_prompt():
    task = RepresentationRegression(dim=4, width=3, points=12, w_scale=5.0)
    problem = task.sample(2, stream(0)).problem
    weights = torch.linalg.lstsq(problem.representation.double(), problem.ys.double()[..., None]).solution
    torch.testing.assert_close(
        problem.representation.double() @ weights, problem.ys.double()[..., None], rtol=1e-4, atol=1e-4
    )
    assert not torch.allclose(weights[0], weights[1])


@pytest.mark.parametrize("settings", [{}, {"dim": 2, "width": 1, "representation_seed": 1}])
def test_predicting_zero_costs_one_with_a_relu(settings: dict):
    task = RepresentationRegression.model_validate(settings | {"slope": 0})
    batch = task.sample(8192, stream(0))
    cost = task.error(torch.zeros_like(batch.targets), batch).mean(1)
    assert cost.mean().item() == pytest.approx(1, abs=4 * cost.std().item() / 8192**0.5)


def test_only_its_seed_determines_the_representation():
    same, other = RepresentationRegression(), RepresentationRegression(representation_seed=1)
    xs = torch.randn(5, 20, generator=stream(0))
    torch.testing.assert_close(same.representation(xs), RepresentationRegression(points=7).representation(xs))
    assert not torch.allclose(same.representation(xs), other.representation(xs))


@pytest.mark.slow
@pytest.mark.parametrize("layers", [1, 3, 6])
def test_the_variance_of_y_hardly_depends_on_depth(layers: int):
    """Averaged over nets, because a single net of width 20 can be off by half. Linear regression has variance 20."""
    variances = [RepresentationRegression(layers=layers, representation_seed=s).variance for s in range(8)]
    assert 14 < sum(variances) / 8 < 26


@pytest.mark.parametrize(
    ("task", "settings", "message"),
    [
        (LinearRegression, {"condition": 4, "dim": 1}, "condition 4 needs a dim of 2 or more"),
        (LinearRegression, {"condition": 0.5}, "condition"),
        (LinearRegression, {"dim": 3, "active": 4}, "active 4 is more than the dim 3"),
        (RepresentationRegression, {"dim": 3, "active": 4}, "active 4 is more than the dim 3"),
        (RepresentationRegression, {"slope": 2}, "slope"),
        (RepresentationRegression, {"dim": 3, "width": 2, "slope": 0}, "is 0 everywhere.*write slope: 0.01"),
        (RepresentationRegression, {"dim": 3, "width": 2, "slope": 1e-20}, "is 0 everywhere"),
        (RepresentationRegression, {"layers": 0}, "layers"),
        (LinearRegression, {"sigma": 1}, "sigma"),
    ],
)
def test_contradictory_settings_are_refused(task: type, settings: dict, message: str):
    with pytest.raises(ValidationError, match=message):
        task(**settings)
