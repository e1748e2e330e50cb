"""Posteriors, EM and Lloyd's algorithm by attention, iteration by iteration, held against the algorithms themselves."""

import numpy as np
import pytest
import torch
from scipy.special import softmax
from sklearn.cluster import KMeans
from torch import Tensor

from loopscale.core.prompt import Prompt
from loopscale.theory.constructions.base import blocks
from loopscale.theory.constructions.example import approach, distances, order
from loopscale.theory.constructions.gaussian_mixtures import (
    ExpectationMaximisation,
    Iterated,
    Lloyd,
    SoftmaxEM,
    em,
)
from loopscale.theory.constructions.posteriors import Mixture, Posterior

SIZES = pytest.mark.parametrize(
    ("dim", "count", "components"), [(2, 120, 3), (1, 20, 2), (5, 60, 4), (3, 9, 1)]
)


def off(made: Iterated, dim: int = 2, count: int = 60, steps: int = 8) -> float:
    """The largest distance from the algorithm."""
    rng = torch.Generator().manual_seed(100 * dim + count)
    return distances(made, made.example(rng, dim, count, prompts=2, steps=steps)).max().item()


def centres(made: Iterated, x: Tensor, mu: Tensor, steps: int) -> Tensor:
    """After every iteration on these points."""
    tokens = torch.cat([mu, x])[None]
    return made.net(Prompt(tokens.shape[1], x.shape[1], x.shape[1]))(tokens, steps)[:, 0, : len(mu)]


@SIZES
@pytest.mark.parametrize("starts", ["tokens", "points"])
def test_softmax_attention_is_the_posterior(dim: int, count: int, components: int, starts):
    weights = np.arange(1.0, components + 1)
    made = Posterior(components=components, starts=starts, weights=tuple(weights), variance=0.7)
    tokens = made.example(torch.Generator().manual_seed(count), dim, count).tokens
    x, mu = tokens[:, -count:].numpy(), tokens[:, :components].numpy()
    squares = ((x[:, :, None] - mu[:, None]) ** 2).sum(3)
    found = made.net(Prompt(tokens.shape[1], dim, components))(tokens, 2)[-1, :, -count:].numpy()
    assert np.abs(found - softmax(np.log(weights) - squares / (2 * 0.7), axis=2)).max() < 1e-13


@SIZES
def test_loops_are_iterations_of_em(dim: int, count: int, components: int):
    assert off(ExpectationMaximisation(components=components, pieces=128), dim, count) < 1e-11


def test_a_loop_of_em_has_four_layers_and_those_that_polish():
    for polish in (0, 2):
        made = ExpectationMaximisation(polish=polish)
        assert len(blocks(made.net(Prompt(20, 2, 2)))) == 1 + 4 + polish


@pytest.mark.parametrize("reads", ["centres", "posteriors"])
def test_em_may_start_from_points_and_have_unequal_shares(reads):
    weights = (0.6, 0.3, 0.1)
    made = ExpectationMaximisation(
        reads=reads, starts="points", weights=weights, variance=0.5, pieces=128, fewest=0.1
    )
    assert off(made) < 1e-11


@pytest.mark.parametrize(
    "made",
    [
        ExpectationMaximisation(polish=0),
        ExpectationMaximisation(polish=1),
        ExpectationMaximisation(polish=3),
        ExpectationMaximisation(shares="estimated"),
        SoftmaxEM(variance=4.0, radius=6.0),
    ],
    ids=["plain", "polished", "polished thrice", "shares", "softmax"],
)
def test_em_is_neared_with_its_order_in_the_pieces(made: Iterated):
    assert made.limit is not None
    assert order(made.limit, approach(made, made.limit)) == pytest.approx(made.limit.order, rel=0.15)


@SIZES
@pytest.mark.parametrize("starts", ["tokens", "points"])
def test_loops_of_softmax_alone_are_iterations_of_em(dim: int, count: int, components: int, starts):
    made = SoftmaxEM(components=components, starts=starts, pieces=2048, radius=6.0)
    assert len(blocks(made.net(Prompt(20, dim, dim)))) == 1 + 2
    assert off(made, dim, count) < 1e-5


@pytest.mark.parametrize("kind", [ExpectationMaximisation, SoftmaxEM])
@pytest.mark.parametrize("reads", ["centres", "posteriors"])
def test_one_component_has_all_points_and_costs_nothing(kind: type[Iterated], reads):
    made = kind(components=1, reads=reads, pieces=8)
    assert made.limit is None
    assert off(made) < 1e-13


@SIZES
def test_loops_are_iterations_of_lloyds_algorithm(dim: int, count: int, components: int):
    assert off(Lloyd(components=components), dim, count) < 1e-10


def test_lloyd_ends_where_scikit_learn_does():
    tokens = Lloyd(components=4).example(torch.Generator().manual_seed(0), count=150).tokens[0]
    mu, x = tokens[:4], tokens[4:]
    known = KMeans(4, init=mu.numpy(), n_init=1, algorithm="lloyd", tol=0.0).fit(x.numpy()).cluster_centers_
    assert np.abs(centres(Lloyd(components=4), x, mu, 25)[-1].numpy() - known).max() < 1e-10


def test_a_centre_without_points_stays_where_it_is():
    made = Lloyd()
    tokens = made.example(torch.Generator().manual_seed(0), count=30).tokens[0]
    mu, x = tokens[:3], tokens[3:] / 2
    mu[1] = torch.tensor([9.0, 0.0])
    wanted, _ = em(x[None], mu[None], made.priors, made.assigned, steps=5)
    assert (wanted[-1, 0, 1] == mu[1]).all(), "the centre is to be empty"
    assert (centres(made, x, mu, 5) - wanted[:, 0]).abs().max() < 1e-10


def test_what_is_left_of_soft_assignment_falls_exponentially():
    """Two points at distances 1 and 2 of the centres: the gap is (4 - 1) / 2."""
    x, mu = torch.tensor([[0.0], [3.0]]).double(), torch.tensor([[1.0], [2.0]]).double()
    sharpness = np.array([4.0, 6.0, 8.0, 10.0])
    left = [(centres(Lloyd(components=2, sharpness=s), x, mu, 1)[0] - x).abs().max() for s in sharpness]
    assert np.polyfit(sharpness, np.log(left), 1)[0] == pytest.approx(-1.5, abs=0.05)


@pytest.mark.parametrize(
    ("made", "prompt", "condition"),
    [
        (ExpectationMaximisation(), Prompt(3, 2, 2), "more tokens than components"),
        (ExpectationMaximisation(fewest=5), Prompt(8, 2, 2), "more than 5 points"),
        (ExpectationMaximisation(), Prompt(20, 2, 3), "targets of 2 coordinates where centres are read"),
        (Lloyd(reads="posteriors"), Prompt(20, 2, 2), "targets of 3 coordinates where posteriors"),
        (Posterior(), Prompt(20, 2, 2), "targets of a coordinate for each component"),
        (Posterior(weights=(1.0, 2.0)), Prompt(20, 2, 3), "2 components, one for each of its weights"),
    ],
)
def test_prompts_that_do_not_fit_are_refused(made: Mixture, prompt: Prompt, condition: str):
    with pytest.raises(ValueError, match=f"construction {made.kind} is for .*{condition}"):
        made.net(prompt)
