"""Posteriors, EM and Lloyd's algorithm by attention, compared with the algorithms after every iteration."""

import numpy as np
import pytest
import torch
from scipy.special import softmax
from sklearn.cluster import KMeans
from torch import Tensor

from loopscale.core.prompt import Prompt
from loopscale.theory.constructions.base import blocks
from loopscale.theory.constructions.gaussian_mixtures import (
    GaussianEM,
    IteratedMixture,
    Lloyd,
    SoftmaxGaussianEM,
    em_iterates,
)
from loopscale.theory.constructions.posteriors import GaussianMixture, GaussianPosterior
from loopscale.theory.constructions.verification import approach, distances, order

SIZES = pytest.mark.parametrize(
    ("dim", "count", "components"), [(2, 120, 3), (1, 20, 2), (5, 60, 4), (3, 9, 1)]
)


def distance(construction: IteratedMixture, dim: int = 2, count: int = 60, steps: int = 8) -> float:
    """The largest distance from the algorithm."""
    rng = torch.Generator().manual_seed(100 * dim + count)
    return distances(construction, construction.example(rng, dim, count, prompts=2, steps=steps)).max().item()


def centres(construction: IteratedMixture, x: Tensor, mu: Tensor, steps: int) -> Tensor:
    """The centres after every iteration on these points."""
    tokens = torch.cat([mu, x])[None]
    return construction.net(Prompt(tokens.shape[1], x.shape[1], x.shape[1]))(tokens, steps)[:, 0, : len(mu)]


@SIZES
@pytest.mark.parametrize("starts", ["tokens", "points"])
def test_softmax_attention_is_the_posterior(dim: int, count: int, components: int, starts):
    weights = np.arange(1.0, components + 1)
    construction = GaussianPosterior(
        components=components, starts=starts, weights=tuple(weights), variance=0.7
    )
    tokens = construction.example(torch.Generator().manual_seed(count), dim, count).tokens
    x, mu = tokens[:, -count:].numpy(), tokens[:, :components].numpy()
    squares = ((x[:, :, None] - mu[:, None]) ** 2).sum(3)
    outputs = construction.net(Prompt(tokens.shape[1], dim, components))(tokens, 2)[-1, :, -count:].numpy()
    assert np.abs(outputs - softmax(np.log(weights) - squares / (2 * 0.7), axis=2)).max() < 1e-13


@SIZES
def test_loops_are_iterations_of_em(dim: int, count: int, components: int):
    assert distance(GaussianEM(components=components, pieces=128), dim, count) < 1e-11


def test_a_loop_of_em_has_four_layers_plus_polish():
    for polish in (0, 2):
        construction = GaussianEM(polish=polish)
        assert len(blocks(construction.net(Prompt(20, 2, 2)))) == 1 + 4 + polish


@pytest.mark.parametrize("reads", ["centres", "posteriors"])
def test_em_may_start_from_points_and_have_unequal_shares(reads):
    weights = (0.6, 0.3, 0.1)
    construction = GaussianEM(
        reads=reads, starts="points", weights=weights, variance=0.5, pieces=128, fewest=0.1
    )
    assert distance(construction) < 1e-11


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(
    "construction",
    [
        GaussianEM(polish=0),
        GaussianEM(polish=1),
        GaussianEM(polish=3),
        GaussianEM(shares="estimated"),
        SoftmaxGaussianEM(variance=4.0, radius=6.0),
    ],
    ids=["plain", "polished", "polished thrice", "shares", "softmax"],
)
def test_em_error_has_the_stated_order_in_the_pieces(construction: IteratedMixture):
    assert construction.limit is not None
    errors = approach(construction, construction.limit)
    assert order(construction.limit, errors).agrees(construction.limit)


@pytest.mark.quick_cases(3)
@SIZES
@pytest.mark.parametrize("starts", ["tokens", "points"])
def test_loops_of_softmax_alone_are_iterations_of_em(dim: int, count: int, components: int, starts):
    construction = SoftmaxGaussianEM(components=components, starts=starts, pieces=2048, radius=6.0)
    assert len(blocks(construction.net(Prompt(20, dim, dim)))) == 1 + 2
    assert distance(construction, dim, count) < 1e-5


@pytest.mark.parametrize("kind", [GaussianEM, SoftmaxGaussianEM])
@pytest.mark.parametrize("reads", ["centres", "posteriors"])
def test_a_single_component_is_exact(kind: type[IteratedMixture], reads):
    construction = kind(components=1, reads=reads, pieces=8)
    assert construction.limit is None
    assert distance(construction) < 1e-13


@SIZES
def test_loops_are_iterations_of_lloyds_algorithm(dim: int, count: int, components: int):
    assert distance(Lloyd(components=components), dim, count) < 1e-10


def test_lloyd_converges_to_the_centres_of_scikit_learn():
    tokens = Lloyd(components=4).example(torch.Generator().manual_seed(0), count=150).tokens[0]
    mu, x = tokens[:4], tokens[4:]
    known = KMeans(4, init=mu.numpy(), n_init=1, algorithm="lloyd", tol=0.0).fit(x.numpy()).cluster_centers_
    assert np.abs(centres(Lloyd(components=4), x, mu, 25)[-1].numpy() - known).max() < 1e-10


def test_a_centre_without_points_does_not_move():
    construction = Lloyd()
    tokens = construction.example(torch.Generator().manual_seed(0), count=30).tokens[0]
    mu, x = tokens[:3], tokens[3:] / 2
    mu[1] = torch.tensor([9.0, 0.0])
    wanted, _ = em_iterates(x[None], mu[None], construction.priors, construction.assignments, steps=5)
    assert (wanted[-1, 0, 1] == mu[1]).all(), "the centre should be empty"
    assert (centres(construction, x, mu, 5) - wanted[:, 0]).abs().max() < 1e-10


def test_lloyd_error_falls_exponentially_with_the_sharpness():
    """Two points at distances 1 and 2 from the centres. The gap is (4 - 1) / 2."""
    x, mu = torch.tensor([[0.0], [3.0]]).double(), torch.tensor([[1.0], [2.0]]).double()
    sharpness = np.array([4.0, 6.0, 8.0, 10.0])
    left = [(centres(Lloyd(components=2, sharpness=s), x, mu, 1)[0] - x).abs().max() for s in sharpness]
    assert np.polyfit(sharpness, np.log(left), 1)[0] == pytest.approx(-1.5, abs=0.05)


@pytest.mark.parametrize(
    ("construction", "prompt", "condition"),
    [
        (GaussianEM(), Prompt(3, 2, 2), "more tokens than components"),
        (GaussianEM(fewest=5), Prompt(8, 2, 2), "more than 5 points"),
        (GaussianEM(), Prompt(20, 2, 3), "targets of 2 coordinates to output centres"),
        (Lloyd(reads="posteriors"), Prompt(20, 2, 2), "targets of 3 coordinates to output posteriors"),
        (GaussianPosterior(), Prompt(20, 2, 2), "one target coordinate per component"),
        (
            GaussianPosterior(weights=(1.0, 2.0)),
            Prompt(20, 2, 3),
            "2 components, one for each of its weights",
        ),
    ],
)
def test_unsuitable_prompts_raise(construction: GaussianMixture, prompt: Prompt, condition: str):
    with pytest.raises(ValueError, match=f"construction {construction.kind} requires .*{condition}"):
        construction.net(prompt)
