"""Principal components: prompts that match their settings, and solvers against numpy, scikit-learn and closed forms."""

import math

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from sklearn.decomposition import PCA

from loopscale.core.seeds import stream
from loopscale.solvers.pca import Eigendecomposition, PowerMethod, SubspaceIteration
from loopscale.tasks.pca import PrincipalComponentAnalysis
from loopscale.theory.bounds.principal_components import (
    PowerError,
    PowerTan,
    PowerTanMedian,
    RandomCosine,
    SpikedCosine,
)
from loopscale.theory.constructions.principal_components import power_method

TASK = PrincipalComponentAnalysis(components=3, dim=6, points=20, gap=0.4)
"""A task with the settings of the theorem: spectrum and eigenvectors of the sample."""


def eigenvalues(xs: torch.Tensor) -> torch.Tensor:
    xs = xs.double()
    return torch.linalg.eigvalsh(xs.mT @ xs / xs.shape[1]).flip(-1)


def tangents(guess: torch.Tensor, truth: torch.Tensor) -> torch.Tensor:
    along = (guess * truth).sum(-1)
    across = guess - along[..., None] * truth
    return across.norm(dim=-1) / along.abs()


@pytest.mark.parametrize("standardised", [False, True])
def test_every_prompt_has_the_set_spectrum(standardised: bool):
    task = TASK.model_copy(update={"standardised": standardised})
    values = eigenvalues(task.sample(30, stream(0)).problem.xs)
    expected = torch.tensor(task.spectrum, dtype=torch.float64)
    torch.testing.assert_close(values, expected.expand(30, -1), rtol=1e-5, atol=0)
    torch.testing.assert_close(expected[1:4] / expected[:3], torch.full((3,), 0.6).double())
    torch.testing.assert_close(expected[3:], expected[3].expand(3))
    assert expected.mean().item() == pytest.approx(1)


def test_with_spectrum_of_population_the_population_has_the_set_spectrum():
    task = PrincipalComponentAnalysis(
        dim=4, points=4000, gap=0.5, spectrum_of="population", target="population"
    )
    batch = task.sample(10, stream(0))
    values = eigenvalues(batch.problem.xs)
    torch.testing.assert_close(values.mean(0), torch.tensor(task.spectrum).double(), rtol=0.03, atol=0)
    exact = Eigendecomposition().predict(batch, 1)
    near = task.measures(exact, batch)
    assert (near["cosine_1"] > 0.995).all()
    assert (near["cosine_2"] < 1 - 1e-7).all(), "eigenvectors of sample and population differ"


def test_targets_equal_the_components_of_scikit_learn():
    """scikit-learn centres the points, so the points are centred here too."""
    batch = TASK.model_copy(update={"standardised": True}).sample(5, stream(0))
    for xs, targets in zip(batch.problem.xs, batch.targets, strict=True):
        components = PCA(3).fit(xs.double().numpy()).components_
        np.testing.assert_allclose(abs((components * targets.numpy()).sum(-1)), 1, rtol=1e-6)


@pytest.mark.parametrize("solver", [PowerMethod(), SubspaceIteration(), Eigendecomposition()])
def test_solvers_converge_to_the_eigenvectors_of_numpy(solver):
    batch = TASK.sample(8, stream(0))
    guess = solver.predict(batch, 120)[-1].numpy()
    xs = batch.problem.xs.double().numpy()
    for points, estimate in zip(xs, guess, strict=True):
        vectors = np.linalg.eigh(points.T @ points)[1][:, ::-1][:, :3].T
        np.testing.assert_allclose(abs(estimate @ vectors.T), np.eye(3), atol=1e-9)
    assert TASK.error(torch.from_numpy(guess), batch).max().item() < 1e-12


def test_the_power_method_equals_the_construction():
    """The construction deflates by v'Av, not |Av|. Both agree for the first vector and for exact eigenvectors."""
    batch = TASK.sample(8, stream(0))
    xs, starts = batch.problem.xs.double(), batch.problem.starts.double()
    estimates = PowerMethod().predict(batch, 60)
    for steps in (1, 7):
        expected = torch.cat([power_method(x[None], s[:1], steps) for x, s in zip(xs, starts, strict=True)])
        torch.testing.assert_close(estimates[steps - 1, :, :1], expected)
    expected = torch.cat([power_method(x[None], s, 60) for x, s in zip(xs, starts, strict=True)])
    torch.testing.assert_close(estimates[-1], expected, rtol=0, atol=1e-6)


def test_the_first_vector_of_subspace_iteration_equals_the_power_method():
    batch = TASK.sample(8, stream(0))
    power, subspace = (solver.predict(batch, 9)[:, :, 0] for solver in (PowerMethod(), SubspaceIteration()))
    torch.testing.assert_close((power * subspace).sum(-1).abs(), torch.ones(9, 8).double())


def test_the_power_method_converges_at_the_ratio_of_eigenvalues():
    """This is exact for one component, because all other eigenvalues are equal."""
    task = PrincipalComponentAnalysis(components=1, dim=6, points=20, gap=0.2)
    batch = task.sample(8, stream(0))
    truth = Eigendecomposition().predict(batch, 1)[0, :, 0]
    start = tangents(batch.problem.starts.double()[:, 0], truth)
    guess = PowerMethod().predict(batch, 12)[:, :, 0]
    for step in (1, 5, 12):
        bounds = [PowerTan(loops=step, ratio=0.8, start=tangent).value() for tangent in start.tolist()]
        torch.testing.assert_close(
            tangents(guess[step - 1], truth), torch.tensor(bounds).double(), rtol=1e-4, atol=0
        )


def test_half_of_all_prompts_are_below_the_median_bound():
    task = PrincipalComponentAnalysis(components=1, dim=6, points=12, gap=0.2)
    batch = task.sample(4000, stream(0))
    truth = Eigendecomposition().predict(batch, 1)[0, :, 0]
    after = tangents(PowerMethod().predict(batch, 4)[-1, :, 0], truth)
    median = PowerTanMedian(dim=6, loops=4, ratio=0.8).value()
    assert (after < median).double().mean().item() == pytest.approx(0.5, abs=4 * 0.5 / 4000**0.5)


def test_the_mean_error_equals_the_bound_for_random_starts():
    task = PrincipalComponentAnalysis(components=1, dim=6, points=12, gap=0.3)
    batch = task.sample(4000, stream(0))
    error = task.error(PowerMethod().predict(batch, 8), batch)[..., 0]
    for loops in (1, 8):
        sem = error[loops - 1].std().item() / 4000**0.5
        expected = PowerError(dim=6, loops=loops, gap=0.3).value()
        assert error[loops - 1].mean().item() == pytest.approx(expected, abs=4 * sem)


def test_later_components_converge_at_the_ratio_of_their_eigenvalues():
    batch = TASK.sample(8, stream(0))
    truth = Eigendecomposition().predict(batch, 1)[0]
    far = tangents(SubspaceIteration().predict(batch, 31)[:], truth)
    torch.testing.assert_close(far[30] / far[29], torch.full((8, 3), 0.6).double(), rtol=0.02, atol=0)


def test_random_starts_have_the_chance_cosine_and_cost_more_than_zero():
    task = PrincipalComponentAnalysis(components=1, dim=8)
    batch = task.sample(8000, stream(0))
    guess = batch.problem.starts[None]
    expected = RandomCosine(dim=8).value()
    assert task.measures(guess, batch)["cosine_1"].mean().item() == pytest.approx(expected, abs=0.01)
    assert task.error(guess, batch).mean().item() == pytest.approx(2 * (1 - expected), abs=0.02)


def test_the_cosine_of_sample_and_population_equals_the_limit():
    task = PrincipalComponentAnalysis(
        components=1, dim=100, points=200, gap=0.8, spectrum_of="population", target="population"
    )
    batch = task.sample(60, stream(0))
    cosine = task.measures(Eigendecomposition().predict(batch, 1), batch)["cosine_1"].square().mean().item()
    assert cosine == pytest.approx(SpikedCosine(dim=100, points=200, spike=1 / 0.2 - 1).value(), abs=0.02)


def test_all_measures_ignore_signs_and_two_ignore_the_order():
    batch = TASK.sample(6, stream(0))
    truth = batch.targets[None]
    signs = torch.tensor([1.0, -1.0, -1.0])[:, None]
    for guess, ordered, first in ((signs * truth, 0.0, 1.0), (truth[:, :, [1, 0, 2]], 4 / 3, 0.0)):
        assert TASK.error(guess, batch).mean().item() == pytest.approx(ordered, abs=1e-5)
        measures = TASK.measures(guess, batch)
        assert set(measures) == {"cosine_1", "cosine_2", "cosine_3", "unordered", "subspace"}
        assert measures["cosine_1"].mean().item() == pytest.approx(first, abs=1e-5)
        assert measures["cosine_3"].mean().item() == pytest.approx(1, abs=1e-5)
        for name in ("unordered", "subspace"):
            assert measures[name].max().item() == pytest.approx(0, abs=1e-5)


def test_the_cosine_ignores_length_and_is_zero_for_a_zero_estimate():
    batch = TASK.sample(6, stream(0))
    measures = TASK.measures(torch.stack([0.01 * batch.targets, torch.zeros_like(batch.targets)]), batch)
    torch.testing.assert_close(measures["cosine_2"], torch.tensor([1.0, 0.0]).double()[:, None].expand(2, 6))
    torch.testing.assert_close(measures["subspace"], torch.tensor([0.0, 1.0]).double()[:, None].expand(2, 6))


def test_the_missed_subspace_follows_from_principal_angles():
    batch = TASK.sample(4, stream(0))
    guess = torch.randn(1, 4, 3, 6, generator=stream("guess"), dtype=torch.float64)
    missed = TASK.measures(guess, batch)["subspace"][0]
    for n in range(4):
        q = np.linalg.qr(guess[0, n].numpy().T)[0]
        cosines = np.linalg.svd(q.T @ batch.targets[n].double().numpy().T)[1]
        assert missed[n].item() == pytest.approx(1 - np.mean(cosines**2), abs=1e-6)


def test_the_auxiliary_matrix_contains_only_the_starts_at_the_queries():
    plain, with_starts = (
        TASK.model_copy(update={"auxiliary": name}).sample(3, stream(0)) for name in ("none", "start")
    )
    torch.testing.assert_close(with_starts.tokens[..., :9], plain.tokens, rtol=0, atol=0)
    torch.testing.assert_close(with_starts.tokens[:, 20:, 9:], with_starts.problem.starts, rtol=0, atol=0)
    assert not with_starts.tokens[:, :20, 9:].any()
    torch.testing.assert_close(with_starts.problem.starts.norm(dim=-1), torch.ones(3, 3))
    assert torch.equal(plain.tokens[:, 20:, 6:], torch.eye(3).expand(3, 3, 3))
    assert not plain.tokens[:, 20:, :6].any()


def test_an_easier_task_asks_for_existing_components_only():
    batch = TASK.easier(2, 9).sample(5, stream(0))
    assert batch.targets.shape == (5, 2, 6)
    assert not batch.targets[..., 2:].any()
    assert not batch.problem.starts[..., 2:].any()
    values = eigenvalues(batch.problem.xs)
    torch.testing.assert_close(values[:, 1] / values[:, 0], torch.full((5,), 0.6).double(), rtol=1e-5, atol=0)
    assert TASK.easier(6, 1).sample(5, stream(0)).targets.shape == (5, 1, 6)


def test_centred_points_have_one_component_less():
    task = PrincipalComponentAnalysis(components=2, dim=4, points=9, standardised=True)
    for points, asked in ((1, 1), (2, 1), (3, 2)):
        easier = task.easier(2, points)
        batch = easier.sample(5, stream(0))
        assert batch.targets.shape == (5, asked, 4)
        assert batch.tokens.shape == (5, easier.prompt.length, easier.prompt.dim_in)
        if points > 1:
            assert (eigenvalues(batch.problem.xs)[:, asked - 1] > 0.01).all(), (
                "every requested component exists"
            )


def test_fewer_points_than_coordinates_have_only_the_first_eigenvalues():
    task = PrincipalComponentAnalysis(components=2, dim=8, points=4)
    values = eigenvalues(task.sample(5, stream(0)).problem.xs)
    expected = torch.tensor(task.spectrum[:4], dtype=torch.float64).expand(5, 4)
    torch.testing.assert_close(values[:, :4], expected, rtol=1e-5, atol=0)
    assert values[:, 4:].abs().max() < 1e-6
    assert values.mean() < 0.7


@pytest.mark.parametrize("data", ["wine", ("iris", "breast_cancer")])
def test_prompts_of_tables_are_standardised(data):
    task = PrincipalComponentAnalysis(data=data, dim=4, points=24)
    batch = task.sample(8, stream(0))
    xs = batch.problem.xs
    torch.testing.assert_close(xs.mean(1), torch.zeros(8, 4), rtol=0, atol=1e-5)
    torch.testing.assert_close(xs.square().mean((1, 2)), torch.ones(8))
    assert task.tables == ((data,) if isinstance(data, str) else data)
    assert task.error(Eigendecomposition().predict(batch, 1), batch).max().item() < 1e-12


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"components": 9}, "32 points in 8 dimensions have at most 8 components, not 9; write 8 or less"),
        (
            {"components": 9, "dim": 4, "active": 4},
            "in 4 dimensions have at most 4 components, not 9; write 4",
        ),
        (
            {"components": 4, "points": 3},
            "3 points have at most 3 components, .* points: 4 or more, or comp.*: 3",
        ),
        (
            {"components": 4, "points": 4, "standardised": True},
            "4 points that are centred have at most 3 components",
        ),
        (
            {"components": 1, "points": 1, "standardised": True},
            r"a single centred point .* no components, not 1; write points: 2 or more \[",
        ),
        ({"data": "moons"}, "data names no table; write gaussian, or one or a list of"),
        ({"data": "wine", "target": "population"}, "write target: sample"),
        ({"data": "iris", "points": 151}, "guarantees only 150 rows for 151 points"),
        ({"gap": 1.0}, "gap"),
        ({"gap": 0.0}, "gap"),
        ({"active": 9}, "active 9 is more than the dim 8 coordinates;"),
    ],
)
def test_impossible_settings_are_refused(settings: dict, message: str):
    with pytest.raises(ValidationError, match=message):
        PrincipalComponentAnalysis.model_validate(settings)


def test_one_minus_gap_is_the_ratio_of_eigenvalues_in_theory():
    """So `power_tan` with ratio 1 - gap applies to these prompts."""
    for gap in (0.1, 0.7):
        first, second = PrincipalComponentAnalysis(gap=gap).spectrum[:2]
        assert math.isclose(second / first, 1 - gap)
