"""Posteriors, EM and Lloyd's algorithm by attention, iteration by iteration, held against the same in numpy."""

import numpy as np
import pytest
import torch
from scipy.special import softmax
from sklearn.cluster import KMeans

from loopscale.core.prompt import Prompt
from loopscale.theory.constructions.base import blocks
from loopscale.theory.constructions.gaussian_mixtures import ExpectationMaximisation, Lloyd, SoftmaxEM
from loopscale.theory.constructions.posteriors import Mixture, Posterior

SIZES = pytest.mark.parametrize(
    ("dim", "count", "components"), [(2, 120, 3), (1, 20, 2), (5, 60, 4), (3, 9, 1)]
)


def problem(
    dim: int, count: int, components: int, spread: float = 1.0, seed: int = 0
) -> tuple[np.ndarray, np.ndarray]:
    """Points around centres, and centres to start from."""
    rng = np.random.default_rng(10000 * seed + 100 * dim + count)
    centres = 2 * rng.standard_normal((components, dim))
    x = centres[rng.integers(components, size=count)] + spread * rng.standard_normal((count, dim))
    return np.clip(x, -5, 5), centres + rng.standard_normal(centres.shape)


def posterior(x: np.ndarray, mu: np.ndarray, variance: float, weights: np.ndarray) -> np.ndarray:
    distances = ((x[:, None] - mu) ** 2).sum(2)
    return softmax(np.log(weights) - distances / (2 * variance), axis=1)


def em(x, mu, steps, variance=1.0, weights=None, estimated=False) -> np.ndarray:
    """The centres after every iteration."""
    weights, found = np.ones(len(mu)) / len(mu) if weights is None else weights, []
    for _ in range(steps):
        r = posterior(x, mu, variance, weights)
        mu = r.T @ x / r.sum(0)[:, None]
        weights = r.mean(0) if estimated else weights
        found.append(mu)
    return np.stack(found)


def lloyd(x: np.ndarray, mu: np.ndarray, steps: int) -> np.ndarray:
    found = []
    for _ in range(steps):
        nearest = ((x[:, None] - mu) ** 2).sum(2).argmin(1)
        mu = np.stack([x[nearest == c].mean(0) if (nearest == c).any() else mu[c] for c in range(len(mu))])
        found.append(mu)
    return np.stack(found)


def run(made: Mixture, x: np.ndarray, mu: np.ndarray, dim_out: int, steps: int) -> np.ndarray:
    """What every token puts out after every step; the starts are given as the construction wants them."""
    return runs(made, [(x, mu)], dim_out, steps)[:, 0]


def runs(
    made: Mixture, problems: list[tuple[np.ndarray, np.ndarray]], dim_out: int, steps: int
) -> np.ndarray:
    """The same of several problems by one net, [steps, problems, tokens, dim_out]."""
    tokens = np.stack([np.concatenate([mu, x]) if made.starts == "tokens" else x for x, mu in problems])
    net = made.net(Prompt(tokens.shape[1], tokens.shape[2], dim_out))
    return net(torch.tensor(tokens), steps).numpy()


def typical_distance(made: Mixture, steps: int = 3, variance: float = 1.0, estimated: bool = False) -> float:
    """The mean over problems of the logarithm, since how far a number is from the next knot is chance."""
    problems = [problem(2, 100, 3, seed=seed) for seed in range(12)]
    found = runs(made, problems, 2, steps)[:, :, :3]
    wanted = np.stack([em(*each, steps, variance=variance, estimated=estimated) for each in problems], 1)
    return np.log(np.abs(found - wanted).max((0, 2, 3))).mean()


def centres(made: Mixture, x: np.ndarray, mu: np.ndarray, steps: int) -> np.ndarray:
    return run(made, x, mu, x.shape[1], steps)[:, : len(mu)]


@SIZES
@pytest.mark.parametrize("starts", ["tokens", "points"])
def test_softmax_attention_is_the_posterior(dim: int, count: int, components: int, starts):
    x, mu = problem(dim, count, components)
    mu = mu if starts == "tokens" else x[:components]
    weights = np.arange(1.0, components + 1)
    made = Posterior(components=components, starts=starts, weights=tuple(weights), variance=0.7)
    found = run(made, x, mu, components, 2)[-1, -count:]
    assert np.abs(found - posterior(x, mu, 0.7, weights)).max() < 1e-13


@SIZES
def test_loops_are_iterations_of_em(dim: int, count: int, components: int):
    x, mu = problem(dim, count, components)
    made = ExpectationMaximisation(components=components, pieces=128)
    assert np.abs(centres(made, x, mu, 8) - em(x, mu, 8)).max() < 1e-11


def test_a_loop_of_em_has_four_layers_and_those_that_polish():
    for polish in (0, 2):
        made = ExpectationMaximisation(polish=polish)
        assert len(blocks(made.net(Prompt(20, 2, 2)))) == 1 + 4 + polish


def test_em_may_start_from_points_and_have_unequal_shares():
    x, _ = problem(2, 80, 3)
    weights = np.array([0.6, 0.3, 0.1])
    made = ExpectationMaximisation(
        starts="points", weights=tuple(weights), variance=0.5, pieces=128, fewest=0.1
    )
    found = centres(made, x, x[:3], 6)
    assert np.abs(found - em(x, x[:3], 6, variance=0.5, weights=weights)).max() < 1e-11


def test_posteriors_are_read_after_the_loop():
    x, mu = problem(2, 50, 3)
    found = run(ExpectationMaximisation(reads="posteriors"), x, mu, 3, 5)[:, 3:]
    for after, estimate in zip(found, em(x, mu, 5), strict=True):
        assert np.abs(after - posterior(x, estimate, 1.0, np.ones(3) / 3)).max() < 1e-10


@pytest.mark.parametrize(
    ("settings", "pieces"),
    [
        ({"polish": 0}, (32, 64, 128)),
        ({"polish": 1}, (16, 32, 64)),
        ({"shares": "estimated"}, (64, 128, 256)),
    ],
    ids=["plain", "polished", "shares"],
)
def test_em_is_neared_with_its_order_in_the_pieces(settings: dict, pieces: tuple[int, ...]):
    errors, estimated = [], settings.get("shares") == "estimated"
    for number in pieces:
        made = ExpectationMaximisation.model_validate(settings | {"pieces": number})
        errors.append(typical_distance(made, estimated=estimated))
    assert made.order is not None
    assert -np.polyfit(np.log(pieces), errors, 1)[0] == pytest.approx(made.order, rel=0.15)


@SIZES
@pytest.mark.parametrize("starts", ["tokens", "points"])
def test_loops_of_softmax_alone_are_iterations_of_em(dim: int, count: int, components: int, starts):
    x, mu = problem(dim, count, components)
    mu = mu if starts == "tokens" else x[:components]
    made = SoftmaxEM(components=components, starts=starts, pieces=2048, radius=6.0)
    assert len(blocks(made.net(Prompt(20, dim, dim)))) == 1 + 2
    assert np.abs(centres(made, x, mu, 8) - em(x, mu, 8)).max() < 1e-5


def test_softmax_alone_nears_em_with_the_square_of_the_pieces():
    pieces = (64, 256, 1024)
    made = [SoftmaxEM(pieces=number, variance=4.0, radius=6.0) for number in pieces]
    errors = [typical_distance(each, variance=4.0) for each in made]
    assert np.polyfit(np.log(pieces), errors, 1)[0] == pytest.approx(-2, abs=0.3)


@SIZES
def test_loops_are_iterations_of_lloyds_algorithm(dim: int, count: int, components: int):
    x, mu = problem(dim, count, components)
    made = Lloyd(components=components, sharpness=3e4)
    assert np.abs(centres(made, x, mu, 8) - lloyd(x, mu, 8)).max() < 1e-10


def test_lloyd_ends_where_scikit_learn_does():
    x, mu = problem(2, 150, 4, spread=0.3)
    known = KMeans(4, init=mu, n_init=1, algorithm="lloyd", tol=0.0).fit(x).cluster_centers_
    found = centres(Lloyd(components=4, sharpness=3e4), x, mu, 25)[-1]
    assert np.abs(found - known).max() < 1e-10


def test_a_centre_without_points_stays_where_it_is():
    x, mu = problem(2, 30, 3)
    mu[1] = (9.0, 0.0)
    wanted = lloyd(x, mu, 5)
    assert (wanted[-1, 1] == mu[1]).all(), "the centre is to be empty"
    assert np.abs(centres(Lloyd(sharpness=3e4), x, mu, 5) - wanted).max() < 1e-10


def test_what_is_left_of_soft_assignment_falls_exponentially():
    """Two points at distances 1 and 2 of the centres: the gap is (4 - 1) / 2."""
    x, mu = np.array([[0.0], [3.0]]), np.array([[1.0], [2.0]])
    sharpness = np.array([4.0, 6.0, 8.0, 10.0])
    off = [np.abs(centres(Lloyd(components=2, sharpness=s), x, mu, 1)[0] - x).max() for s in sharpness]
    assert np.polyfit(sharpness, np.log(off), 1)[0] == pytest.approx(-1.5, abs=0.05)


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
