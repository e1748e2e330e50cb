"""The distribution of clustering prompts: mixtures that match their settings, and tables of scikit-learn."""

import math

import pytest
import torch
from pydantic import ValidationError
from sklearn.datasets import load_iris, load_wine
from sklearn.preprocessing import StandardScaler

from loopscale.core.seeds import stream
from loopscale.tasks.clustering import Clustering
from loopscale.tasks.tables import TABLE_NAMES, excerpts, load_table


@pytest.mark.parametrize("components", [2, 3, 5])
def test_equidistant_centres_have_the_distance_of_the_snr_and_mean_zero(components: int):
    centres = Clustering(components=components, dim=6, snr=3).sample(20, stream(0)).problem.centres.double()
    distances = torch.cdist(centres, centres) + 3 * torch.eye(components)
    torch.testing.assert_close(distances, torch.full_like(distances, 3), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(centres.mean(1), torch.zeros(20, 6).double(), rtol=0, atol=1e-5)


def test_the_nearest_random_centres_have_the_distance_of_the_snr():
    centres = Clustering(components=4, dim=3, snr=5, centres="random").sample(50, stream(0)).problem.centres
    nearest = (torch.cdist(centres, centres) + torch.full((4,), torch.inf).diag()).amin((1, 2))
    torch.testing.assert_close(nearest, torch.full((50,), 5.0), rtol=1e-4, atol=0)


@pytest.mark.parametrize("tails", [None, 8])
def test_the_noise_has_the_set_condition_and_the_whitener_whitens_it(tails: int | None):
    task = Clustering(components=2, dim=4, points=2000, condition=25, tails=tails)
    batch = task.sample(20, stream(0))
    noise = batch.problem.xs - torch.einsum("bnk,bkd->bnd", batch.targets, batch.problem.centres)
    white = torch.einsum("bij,bnj->bni", batch.problem.whitener, noise)
    torch.testing.assert_close(white.flatten(0, 1).T.cov(), torch.eye(4), rtol=0, atol=0.05)
    values = torch.linalg.eigvalsh(noise.mT @ noise / 2000)
    assert values.sum(-1).mean().item() == pytest.approx(4, rel=0.03)
    assert (values[:, -2:].mean() / values[:, :2].mean()).item() == pytest.approx(25, rel=0.1)
    fourth = white.pow(4).mean().item()
    assert fourth == pytest.approx(3 if tails is None else 3 * (tails - 2) / (tails - 4), rel=0.12)


def test_imbalance_is_the_ratio_of_largest_and_smallest_component():
    task = Clustering(components=3, imbalance=9, points=500)
    assert task.weights == pytest.approx((9 / 13, 3 / 13, 1 / 13))
    shares = task.sample(200, stream(0)).targets.mean((0, 1))
    torch.testing.assert_close(shares, torch.tensor(task.weights), rtol=0, atol=0.01)


def test_a_standardised_prompt_has_mean_zero_and_mean_square_one():
    xs = Clustering(standardised=True, condition=5).sample(10, stream(0)).tokens
    torch.testing.assert_close(xs.mean(1), torch.zeros(10, 8), rtol=0, atol=1e-5)
    torch.testing.assert_close(xs.square().mean((1, 2)), torch.ones(10))


def test_an_easier_mixture_uses_fewer_coordinates_and_keeps_the_distance_of_centres():
    batch = Clustering(components=3, dim=8, snr=4).easier(3, 20).sample(5, stream(0))
    assert not batch.tokens[..., 3:].any()
    assert batch.tokens[..., :3].any(-1).all()
    assert torch.cdist(batch.problem.centres, batch.problem.centres)[0, 0, 1].item() == pytest.approx(4)


@pytest.mark.parametrize("table", TABLE_NAMES)
def test_the_columns_of_a_table_are_standardised(table: str):
    rows = load_table(table)
    assert rows.xs.mean(0).abs().max() < 1e-5
    spread = rows.xs.std(0, correction=0)
    assert ((spread - 1).abs() < 1e-4).logical_or(spread == 0).all()
    assert rows.labels.min() == 0
    assert len(rows.labels.unique()) == int(rows.labels.max()) + 1


def test_an_excerpt_has_projected_rows_of_the_table():
    for name, source in (("iris", load_iris()), ("wine", load_wine())):
        xs, labels = excerpts((name,), 3, 60, 4, stream(0))
        whole = torch.tensor(StandardScaler().fit_transform(source.data))
        residuals = torch.linalg.lstsq(
            load_table(name).xs.double(), whole
        ).residuals  # zero for the same table
        assert residuals.numel() == 0 or residuals.max() < 1e-6
        for prompt, classes in zip(xs.double(), labels, strict=True):
            # A projection of rows has at most the rank of the columns, and no class is larger than in the table.
            assert torch.linalg.matrix_rank(prompt) == 4
            assert classes.bincount(minlength=3).max() <= torch.tensor(source.target).bincount().max()
            assert len(prompt.unique(dim=0)) > 50, "rows are drawn without replacement"


def test_the_classes_of_a_prompt_belong_to_its_rows():
    """Two classes of iris are linearly separable, so labels must follow their rows through every shuffle."""
    xs, labels = excerpts(("iris",), 200, 80, 4, stream(0), classes=2)
    accuracies = []
    for prompt, classes in zip(xs, labels, strict=True):
        design = torch.cat([prompt, torch.ones(80, 1)], dim=1)
        side = design @ torch.linalg.lstsq(design, 2.0 * classes[:, None] - 1).solution
        accuracies.append(((side[:, 0] > 0) == classes.bool()).float().mean())
    assert set(labels.unique().tolist()) == {0, 1}
    assert torch.stack(accuracies).mean() > 0.97


def test_prompts_come_from_all_named_tables():
    task = Clustering(components=2, dim=3, points=40, data=("iris", "breast_cancer", "digits"))
    assert task.tables == ("iris", "breast_cancer", "digits")
    prompts = [task.sample(1, stream(n)).problem.xs[0] for n in range(12)]
    repeats = {len(xs.unique(dim=0)) for xs in prompts}
    assert max(repeats) == 40
    assert task.sample(3, stream(0)).problem.centres is None


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"data": "irs"}, "data names no table; write gaussian, or one or a list of breast_cancer, digits"),
        ({"data": []}, "data names no table"),
        ({"data": "iris", "components": 4}, "table iris has 3 classes, not 4; write 3 or less"),
        ({"data": "wine", "components": 2, "points": 120}, "guarantees only 107 rows for 120 points"),
        ({"components": 5, "dim": 3}, "5 centres cannot be equidistant in 3 dimensions; write a dim of 4"),
        ({"dim": 1, "components": 2, "condition": 3}, "condition 3 needs a dim of 2 or more"),
        ({"tails": 2}, "tails"),
        ({"components": 5, "points": 3}, "3 points cannot come from 5 components; write points: 5 or more"),
        (
            {"data": "iris", "snr": 2},
            "data names tables, but snr can only describe Gaussian data; write snr: 4.0, or data",
        ),
        (
            {"data": "iris", "condition": 3, "imbalance": 2, "tails": 5, "centres": "random"},
            "write centres: equidistant, condition: 1.0, imbalance: 1.0, tails: null, or data: gaussian",
        ),
    ],
)
def test_impossible_settings_are_refused(settings: dict, message: str):
    with pytest.raises(ValidationError, match=message):
        Clustering.model_validate(settings)


def test_zero_logits_cost_the_entropy_of_uniform_labels():
    task = Clustering(components=4)
    batch = task.sample(5, stream(0))
    raw = task.raw_error(torch.zeros_like(batch.targets), batch)
    torch.testing.assert_close(raw, torch.full_like(raw, math.log(4)))
