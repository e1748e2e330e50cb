"""Principal components: prompts as their settings say, and solvers against numpy, scikit-learn and closed forms."""

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
"""Of which the settings are as in the theorem: the sample's spectrum, the sample's eigenvectors."""


def eigenvalues(xs: torch.Tensor) -> torch.Tensor:
    xs = xs.double()
    return torch.linalg.eigvalsh(xs.mT @ xs / xs.shape[1]).flip(-1)


def tangents(guess: torch.Tensor, truth: torch.Tensor) -> torch.Tensor:
    along = (guess * truth).sum(-1)
    across = guess - along[..., None] * truth
    return across.norm(dim=-1) / along.abs()


@pytest.mark.parametrize("standardised", [False, True])
def test_every_prompt_has_the_spectrum_that_is_set(standardised: bool):
    task = TASK.model_copy(update={"standardised": standardised})
    values = eigenvalues(task.sample(30, stream(0)).problem.xs)
    expected = torch.tensor(task.spectrum, dtype=torch.float64)
    torch.testing.assert_close(values, expected.expand(30, -1), rtol=1e-5, atol=0)
    torch.testing.assert_close(expected[1:4] / expected[:3], torch.full((3,), 0.6).double())
    torch.testing.assert_close(expected[3:], expected[3].expand(3))
    assert expected.mean().item() == pytest.approx(1)


def test_the_population_has_it_where_the_spectrum_is_the_populations():
    task = PrincipalComponentAnalysis(
        dim=4, points=4000, gap=0.5, spectrum_of="population", target="population"
    )
    batch = task.sample(10, stream(0))
    values = eigenvalues(batch.problem.xs)
    torch.testing.assert_close(values.mean(0), torch.tensor(task.spectrum).double(), rtol=0.03, atol=0)
    exact = Eigendecomposition().predict(batch, 1)
    near = task.measures(exact, batch)
    assert (near["cosine_1"] > 0.995).all()
    assert (near["cosine_2"] < 1 - 1e-7).all(), "the sample's are not the population's"


def test_targets_are_the_eigenvectors_of_scikit_learn():
    """Its PCA centres, so that points are centred here."""
    batch = TASK.model_copy(update={"standardised": True}).sample(5, stream(0))
    for xs, targets in zip(batch.problem.xs, batch.targets, strict=True):
        found = PCA(3).fit(xs.double().numpy()).components_
        np.testing.assert_allclose(abs((found * targets.numpy()).sum(-1)), 1, rtol=1e-6)


@pytest.mark.parametrize("solver", [PowerMethod(), SubspaceIteration(), Eigendecomposition()])
def test_solvers_come_to_the_eigenvectors_of_numpy(solver):
    batch = TASK.sample(8, stream(0))
    guess = solver.predict(batch, 120)[-1].numpy()
    xs = batch.problem.xs.double().numpy()
    for points, found in zip(xs, guess, strict=True):
        vectors = np.linalg.eigh(points.T @ points)[1][:, ::-1][:, :3].T
        np.testing.assert_allclose(abs(found @ vectors.T), np.eye(3), atol=1e-9)
    assert TASK.error(torch.from_numpy(guess), batch).max().item() < 1e-12


def test_the_power_method_is_that_of_the_construction():
    """Which deflates by v'Av and not by |Av|: the same once v is the eigenvector, and for the first always."""
    batch = TASK.sample(8, stream(0))
    xs, starts = batch.problem.xs.double(), batch.problem.starts.double()
    found = PowerMethod().predict(batch, 60)
    for steps in (1, 7):
        expected = torch.cat([power_method(x[None], s[:1], steps) for x, s in zip(xs, starts, strict=True)])
        torch.testing.assert_close(found[steps - 1, :, :1], expected)
    expected = torch.cat([power_method(x[None], s, 60) for x, s in zip(xs, starts, strict=True)])
    torch.testing.assert_close(found[-1], expected, rtol=0, atol=1e-6)


def test_the_first_of_a_subspace_is_that_of_the_power_method():
    batch = TASK.sample(8, stream(0))
    one, other = (solver.predict(batch, 9)[:, :, 0] for solver in (PowerMethod(), SubspaceIteration()))
    torch.testing.assert_close((one * other).sum(-1).abs(), torch.ones(9, 8).double())


def test_the_power_method_gains_the_ratio_of_eigenvalues_in_every_step():
    """Exactly, for one component: all other eigenvalues are equal."""
    task = PrincipalComponentAnalysis(components=1, dim=6, points=20, gap=0.2)
    batch = task.sample(8, stream(0))
    truth = Eigendecomposition().predict(batch, 1)[0, :, 0]
    start = tangents(batch.problem.starts.double()[:, 0], truth)
    guess = PowerMethod().predict(batch, 12)[:, :, 0]
    for step in (1, 5, 12):
        bounds = [PowerTan(loops=step, ratio=0.8, start=each).value() for each in start.tolist()]
        torch.testing.assert_close(
            tangents(guess[step - 1], truth), torch.tensor(bounds).double(), rtol=1e-4, atol=0
        )


def test_half_of_all_prompts_are_nearer_than_the_median():
    task = PrincipalComponentAnalysis(components=1, dim=6, points=12, gap=0.2)
    batch = task.sample(4000, stream(0))
    truth = Eigendecomposition().predict(batch, 1)[0, :, 0]
    after = tangents(PowerMethod().predict(batch, 4)[-1, :, 0], truth)
    median = PowerTanMedian(dim=6, loops=4, ratio=0.8).value()
    assert (after < median).double().mean().item() == pytest.approx(0.5, abs=4 * 0.5 / 4000**0.5)


def test_the_mean_error_of_prompts_is_that_of_random_starts():
    task = PrincipalComponentAnalysis(components=1, dim=6, points=12, gap=0.3)
    batch = task.sample(4000, stream(0))
    error = task.error(PowerMethod().predict(batch, 8), batch)[..., 0]
    for loops in (1, 8):
        sem = error[loops - 1].std().item() / 4000**0.5
        expected = PowerError(dim=6, loops=loops, gap=0.3).value()
        assert error[loops - 1].mean().item() == pytest.approx(expected, abs=4 * sem)


def test_later_components_are_gained_at_the_ratio_of_their_own_eigenvalues():
    batch = TASK.sample(8, stream(0))
    truth = Eigendecomposition().predict(batch, 1)[0]
    far = tangents(SubspaceIteration().predict(batch, 31)[:], truth)
    torch.testing.assert_close(far[30] / far[29], torch.full((8, 3), 0.6).double(), rtol=0.02, atol=0)


def test_a_start_is_as_near_as_chance_has_it_and_unit_guesses_cost_more_than_none():
    task = PrincipalComponentAnalysis(components=1, dim=8)
    batch = task.sample(8000, stream(0))
    guess = batch.problem.starts[None]
    expected = RandomCosine(dim=8).value()
    assert task.measures(guess, batch)["cosine_1"].mean().item() == pytest.approx(expected, abs=0.01)
    assert task.error(guess, batch).mean().item() == pytest.approx(2 * (1 - expected), abs=0.02)


def test_the_samples_eigenvector_is_as_near_the_populations_as_in_the_limit():
    task = PrincipalComponentAnalysis(
        components=1, dim=100, points=200, gap=0.8, spectrum_of="population", target="population"
    )
    batch = task.sample(60, stream(0))
    found = task.measures(Eigendecomposition().predict(batch, 1), batch)["cosine_1"].square().mean().item()
    assert found == pytest.approx(SpikedCosine(dim=100, points=200, spike=1 / 0.2 - 1).value(), abs=0.02)


def test_no_measure_has_a_sign_and_only_one_no_order():
    batch = TASK.sample(6, stream(0))
    truth = batch.targets[None]
    signs = torch.tensor([1.0, -1.0, -1.0])[:, None]
    for guess, ordered, first in ((signs * truth, 0.0, 1.0), (truth[:, :, [1, 0, 2]], 4 / 3, 0.0)):
        assert TASK.error(guess, batch).mean().item() == pytest.approx(ordered, abs=1e-5)
        found = TASK.measures(guess, batch)
        assert set(found) == {"cosine_1", "cosine_2", "cosine_3", "unordered", "subspace"}
        assert found["cosine_1"].mean().item() == pytest.approx(first, abs=1e-5)
        assert found["cosine_3"].mean().item() == pytest.approx(1, abs=1e-5)
        for name in ("unordered", "subspace"):
            assert found[name].max().item() == pytest.approx(0, abs=1e-5)


def test_the_cosine_is_of_the_direction_and_nothing_has_none():
    batch = TASK.sample(6, stream(0))
    found = TASK.measures(torch.stack([0.01 * batch.targets, torch.zeros_like(batch.targets)]), batch)
    torch.testing.assert_close(found["cosine_2"], torch.tensor([1.0, 0.0]).double()[:, None].expand(2, 6))
    torch.testing.assert_close(found["subspace"], torch.tensor([0.0, 1.0]).double()[:, None].expand(2, 6))


def test_the_subspace_missed_is_that_of_principal_angles():
    batch = TASK.sample(4, stream(0))
    guess = torch.randn(1, 4, 3, 6, generator=stream("guess"), dtype=torch.float64)
    found = TASK.measures(guess, batch)["subspace"][0]
    for n in range(4):
        q = np.linalg.qr(guess[0, n].numpy().T)[0]
        cosines = np.linalg.svd(q.T @ batch.targets[n].double().numpy().T)[1]
        assert found[n].item() == pytest.approx(1 - np.mean(cosines**2), abs=1e-6)


def test_the_auxiliary_matrix_holds_the_starts_at_the_queries_and_nothing_else():
    plain, given = (
        TASK.model_copy(update={"auxiliary": name}).sample(3, stream(0)) for name in ("none", "start")
    )
    torch.testing.assert_close(given.tokens[..., :9], plain.tokens, rtol=0, atol=0)
    torch.testing.assert_close(given.tokens[:, 20:, 9:], given.problem.starts, rtol=0, atol=0)
    assert not given.tokens[:, :20, 9:].any()
    torch.testing.assert_close(given.problem.starts.norm(dim=-1), torch.ones(3, 3))
    assert torch.equal(plain.tokens[:, 20:, 6:], torch.eye(3).expand(3, 3, 3))
    assert not plain.tokens[:, 20:, :6].any()


def test_an_easier_task_asks_for_no_more_components_than_it_has():
    batch = TASK.easier(2, 9).sample(5, stream(0))
    assert batch.targets.shape == (5, 2, 6)
    assert not batch.targets[..., 2:].any()
    assert not batch.problem.starts[..., 2:].any()
    values = eigenvalues(batch.problem.xs)
    torch.testing.assert_close(values[:, 1] / values[:, 0], torch.full((5,), 0.6).double(), rtol=1e-5, atol=0)
    assert TASK.easier(6, 1).sample(5, stream(0)).targets.shape == (5, 1, 6)


def test_centred_points_are_not_asked_for_the_component_that_they_lost():
    task = PrincipalComponentAnalysis(components=2, dim=4, points=9, standardised=True)
    for points, asked in ((1, 1), (2, 1), (3, 2)):
        easier = task.easier(2, points)
        batch = easier.sample(5, stream(0))
        assert batch.targets.shape == (5, asked, 4)
        assert batch.tokens.shape == (5, easier.prompt.length, easier.prompt.dim_in)
        if points > 1:
            assert (eigenvalues(batch.problem.xs)[:, asked - 1] > 0.01).all(), "what is asked for is there"


def test_fewer_points_than_coordinates_have_the_first_eigenvalues_and_no_others():
    task = PrincipalComponentAnalysis(components=2, dim=8, points=4)
    values = eigenvalues(task.sample(5, stream(0)).problem.xs)
    expected = torch.tensor(task.spectrum[:4], dtype=torch.float64).expand(5, 4)
    torch.testing.assert_close(values[:, :4], expected, rtol=1e-5, atol=0)
    assert values[:, 4:].abs().max() < 1e-6
    assert values.mean() < 0.7


@pytest.mark.parametrize("data", ["wine", ("iris", "breast_cancer")])
def test_tables_are_prompts_of_centred_rows_of_mean_square_one(data):
    task = PrincipalComponentAnalysis(data=data, dim=4, points=24)
    batch = task.sample(8, stream(0))
    xs = batch.problem.xs
    torch.testing.assert_close(xs.mean(1), torch.zeros(8, 4), rtol=0, atol=1e-5)
    torch.testing.assert_close(xs.square().mean((1, 2)), torch.ones(8))
    assert task.tables == ((data,) if isinstance(data, str) else data)
    assert task.error(Eigendecomposition().predict(batch, 1), batch).max().item() < 1e-12


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"components": 9}, "32 points in 8 dimensions have 8 components at most, not 9; write 8 or less"),
        (
            {"components": 9, "dim": 4, "active": 4},
            "in 4 dimensions have 4 components at most, not 9; write 4",
        ),
        (
            {"components": 4, "points": 3},
            "3 points have 3 components at most, .* points: 4 or more, or comp.*: 3",
        ),
        ({"components": 4, "points": 4, "standardised": True}, "4 points that are centred have 3 components"),
        (
            {"components": 1, "points": 1, "standardised": True},
            r"a single point that is centred .* no components, not 1; write points: 2 or more \[",
        ),
        ({"data": "moons"}, "data names no table; write gaussian, or one or a list of"),
        ({"data": "wine", "target": "population"}, "write target: sample"),
        ({"data": "iris", "points": 151}, "may have only 150 rows for 151 points"),
        ({"gap": 1.0}, "gap"),
        ({"gap": 0.0}, "gap"),
        ({"active": 9}, "active 9 is more than the dim 8 coordinates"),
    ],
)
def test_settings_that_no_prompt_can_have_are_refused(settings: dict, said: str):
    with pytest.raises(ValidationError, match=said):
        PrincipalComponentAnalysis.model_validate(settings)


def test_the_gap_is_the_ratio_that_the_theory_speaks_of():
    """So that `power_tan` with ratio 1 - gap is of these prompts."""
    for gap in (0.1, 0.7):
        first, second = PrincipalComponentAnalysis(gap=gap).spectrum[:2]
        assert math.isclose(second / first, 1 - gap)
