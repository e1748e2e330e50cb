"""Regret of simulated bandit players, compared with the bounds."""

import math
from collections.abc import Callable
from fractions import Fraction
from functools import cache

import numpy as np
import pytest
from scipy.integrate import quad
from scipy.stats import beta

from tests.theory.checks import assert_agrees, assert_refused, slope, value

Player = Callable[[np.ndarray, np.ndarray, int, np.random.Generator], np.ndarray]
"""Scores of the arms [runs, arms] from successes and failures [runs, arms], round and generator; the player takes the
largest score."""


def thompson(won: np.ndarray, lost: np.ndarray, t: int, rng: np.random.Generator) -> np.ndarray:
    return rng.beta(won + 1, lost + 1)


def greedy(won: np.ndarray, lost: np.ndarray, t: int, rng: np.random.Generator) -> np.ndarray:
    return (won + 1) / (won + lost + 2) + 1e-9 * rng.random(won.shape)


def ucb1(won: np.ndarray, lost: np.ndarray, t: int, rng: np.random.Generator) -> np.ndarray:
    plays = won + lost
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(plays > 0, won / plays + np.sqrt(2 * math.log(t) / plays), np.inf)


def regret(player: Player, means: np.ndarray, horizon: int) -> np.ndarray:
    """Regret of each run [runs], from the means of the arms [runs, arms]."""
    rng, (runs, arms) = np.random.default_rng(0), means.shape
    won, lost, row = np.zeros((runs, arms)), np.zeros((runs, arms)), np.arange(runs)
    regrets = np.zeros(runs)
    for t in range(1, horizon + 1):
        played = player(won, lost, t, rng).argmax(1)
        success = rng.random(runs) < means[row, played]
        won[row, played] += success
        lost[row, played] += ~success
        regrets += means.max(1) - means[row, played]
    return regrets


def uniform_means(runs: int, arms: int) -> np.ndarray:
    return np.random.default_rng(1).random((runs, arms))


def test_uniform_play_loses_the_best_mean_minus_the_average_mean():
    means = uniform_means(20_000, 4)
    regrets = 30 * (means.max(1) - means.mean(1))
    assert_agrees(regrets, value("random_regret", arms=4, horizon=30))


def test_the_best_reward_equals_an_exact_recursion_in_fractions():
    @cache
    def reward(left: int, won: tuple[int, int], lost: tuple[int, int]) -> Fraction:
        def after(arm: int) -> Fraction:
            chance = Fraction(won[arm] + 1, won[arm] + lost[arm] + 2)
            more = [tuple(n + (i == arm) for i, n in enumerate(each)) for each in (won, lost)]
            success, failure = reward(left - 1, more[0], lost), reward(left - 1, won, more[1])
            return chance * (1 + success) + (1 - chance) * failure

        return max(after(0), after(1)) if left else Fraction(0)

    assert reward(6, (0, 0), (0, 0)) == Fraction(421, 120)
    for horizon in (1, 2, 3, 6, 11):
        exact = horizon * Fraction(2, 3) - reward(horizon, (0, 0), (0, 0))
        assert value("bayes_optimal_2arm", horizon=horizon) == pytest.approx(float(exact), abs=1e-12)
    assert value("bayes_optimal_2arm", horizon=15) == pytest.approx(10 - 9.21154, abs=5e-6)


@pytest.mark.parametrize(("player", "mean"), [(thompson, 2.14), (ucb1, 3.52), (greedy, 1.67)])
def test_no_simulated_player_of_two_arms_beats_the_optimal_player(player: Player, mean: float):
    """The expected means are the catalogued means of 20,000 runs."""
    regrets = regret(player, uniform_means(8000, 2), 50)
    sem = regrets.std() / math.sqrt(len(regrets))
    assert regrets.mean() == pytest.approx(mean, abs=4 * sem + 0.02)
    assert value("bayes_optimal_2arm", horizon=50) < regrets.mean() - 4 * sem


def test_thompson_sampling_stays_within_its_bound():
    regrets = regret(thompson, uniform_means(1000, 5), 200)
    limit = value("ts_bayes")
    assert limit / 4 < regrets.mean() < limit


def test_thompson_sampling_with_linear_arms_stays_within_its_bound():
    """For the player, a reward has the variance of the noise plus at most the prior variance of the mean."""
    rng, runs, dim, arms, horizon, noise = np.random.default_rng(2), 100, 5, 10, 200, 1.5
    actions = rng.standard_normal((runs, arms, dim))
    actions /= np.linalg.norm(actions, axis=2, keepdims=True)
    theta = rng.standard_normal((runs, dim, 1))
    means, regrets = (actions @ theta)[..., 0], np.zeros(runs)
    precision, total = np.tile(np.eye(dim), (runs, 1, 1)), np.zeros((runs, dim, 1))
    for _ in range(horizon):
        root = np.linalg.cholesky(np.linalg.inv(precision))
        guess = root @ root.mT @ total + root @ rng.standard_normal((runs, dim, 1))
        played = (actions @ guess)[..., 0].argmax(1)
        x = actions[np.arange(runs), played][..., None]
        mean = means[np.arange(runs), played]
        precision += x @ x.mT / noise**2
        total += x * (mean + noise * rng.standard_normal(runs))[:, None, None] / noise**2
        regrets += means.max(1) - mean
    limit = value("ts_linear_bayes", dim=dim, arms=arms, horizon=horizon, scale=math.sqrt(noise**2 + 1))
    assert limit / 4 < regrets.mean() < limit


@pytest.mark.parametrize("means", [(0.5, 0.6), (0.2, 0.5, 0.9)])
def test_ucb1_stays_within_its_bound(means: tuple[float, ...]):
    regrets = regret(ucb1, np.tile(means, (200, 1)), 1000).mean()
    assert value("ucb1", means=means) / 40 < regrets < value("ucb1", means=means)


def test_a_player_can_be_below_the_lai_robbins_limit_at_a_finite_horizon():
    regrets = regret(ucb1, np.tile((0.5, 0.6), (200, 1)), 1000)
    assert regrets.mean() + 4 * regrets.std() / math.sqrt(200) < value("lai_robbins")


def test_the_lai_robbins_limit_is_the_sum_of_gap_over_divergence():
    """The divergence is the integral of its derivative, (best - p)/(p (1 - p)), from the mean to the best mean."""
    means, total = (0.2, 0.55, 0.7), 0.0
    for mean in means[:2]:
        divergence, _ = quad(lambda q, mean=mean: (q - mean) / (q * (1 - q)), mean, 0.7)
        total += (0.7 - mean) / divergence
    assert value("lai_robbins", means=means, horizon=50) == pytest.approx(total * math.log(50))
    assert value("lai_robbins") / math.log(1000) == pytest.approx(4.8993, abs=5e-5)


@pytest.mark.parametrize("means", [(0.5, 0.6), (0.1, 0.9, 0.85)])
def test_the_lai_robbins_limit_is_far_below_the_ucb1_bound_by_pinsker(means: tuple[float, ...]):
    assert value("lai_robbins", means=means) < value("ucb1", means=means) / 16


def test_a_second_best_arm_adds_no_regret():
    for kind in ("lai_robbins", "ucb1"):
        assert value(kind, means=(0.6, 0.5, 0.6)) == value(kind)


def linucb_regrets(runs: int, dim: int, arms: int, horizon: int, failure: float) -> np.ndarray:
    """Regret of LinUCB on the unit ball with noise N(0, 1) and penalty 1."""
    rng, row = np.random.default_rng(3), np.arange(runs)
    actions, theta = rng.standard_normal((runs, arms, dim)), rng.standard_normal((runs, dim))
    actions /= np.linalg.norm(actions, axis=2, keepdims=True)
    theta /= np.linalg.norm(theta, axis=1, keepdims=True)
    means, regrets = (actions @ theta[..., None])[..., 0], np.zeros(runs)
    gram, total = np.tile(np.eye(dim), (runs, 1, 1)), np.zeros((runs, dim, 1))
    for _ in range(horizon):
        inverse = np.linalg.inv(gram)
        width = 1 + np.sqrt(np.linalg.slogdet(gram)[1] - 2 * math.log(failure))
        spread = np.sqrt(((actions @ inverse) * actions).sum(2))
        played = ((actions @ inverse @ total)[..., 0] + width[:, None] * spread).argmax(1)
        x, mean = actions[row, played][..., None], means[row, played]
        gram += x @ x.mT
        total += x * (mean + rng.standard_normal(runs))[:, None, None]
        regrets += means.max(1) - mean
    return regrets


def test_linucb_stays_within_its_bound():
    assert linucb_regrets(50, 3, 8, 200, 0.1).max() < value("linucb", dim=3, horizon=200)


def test_the_linucb_bound_scales_with_the_action_norm_and_the_penalty():
    """Actions times L, parameters over L and penalty times L² are the same bandit, so the bound depends on L²."""
    assert slope("linucb", "x_norm", (1.0, 1.0001), penalty=2.0) > 0
    wide = value("linucb", x_norm=3.0, penalty=9.0, w_norm=1 / 3)
    # The bounds differ only in a logarithm: the source has ln(λ + TL²/d) instead of the ratio to λ.
    ratio = math.sqrt(math.log(9 * 41) / math.log(41))
    assert wide == pytest.approx(value("linucb") * ratio)


@pytest.mark.parametrize("arm", [0, 1, 2])
def test_the_dpt_target_is_the_posterior_share_of_draws_in_which_the_arm_is_best(arm: int):
    successes, failures = (3, 1, 0), (2, 4, 0)
    draws = np.random.default_rng(4).beta(np.array(successes) + 1, np.array(failures) + 1, (200_000, 3))
    assert_agrees(
        draws.argmax(1) == arm, value("dpt_target", successes=successes, failures=failures, arm=arm)
    )


def test_the_dpt_target_is_exact_after_long_histories():
    successes, failures = (100, 40, 3), (60, 30, 9)
    shares = [value("dpt_target", successes=successes, failures=failures, arm=arm) for arm in range(3)]
    assert sum(shares) == pytest.approx(1, abs=1e-12)
    two = quad(lambda x: beta.pdf(x, 101, 61) * beta.cdf(x, 41, 31), 0, 1, epsabs=1e-13)[0]
    assert value("dpt_target", successes=(100, 40), failures=(60, 30)) == pytest.approx(two, abs=1e-12)


@pytest.mark.parametrize(
    ("kind", "setting", "over", "expected"),
    [
        ("ts_bayes", "horizon", (100, 1000), 0.5),
        ("ts_linear_bayes", "dim", (5, 50), 0.5),
        ("minimax", "horizon", (100, 1000), 0.5),
        ("linucb", "horizon", (200, 2000), 0.677),
        ("linucb", "horizon", (10**6, 10**7), 0.569),
    ],
)
def test_the_slope_matches_the_catalogue(kind: str, setting: str, over: tuple[int, int], expected: float):
    assert slope(kind, setting, over) == pytest.approx(expected, abs=6e-4)


@pytest.mark.parametrize(
    ("kind", "settings", "condition"),
    [
        ("ts_bayes", {"arms": 1}, "arms >= 2"),
        ("ts_linear_bayes", {"arms": 1}, "arms >= 2"),
        ("lai_robbins", {"means": (0.5, 1.0)}, "means within"),
        ("lai_robbins", {"means": ()}, "means within"),
        ("ucb1", {"means": (0.5, 0.5)}, "means that differ"),
        ("minimax", {"arms": 6, "horizon": 4}, "arms <= horizon"),
        ("linucb", {"x_norm": 2.0}, "penalty >= x_norm"),
        ("dpt_target", {"arm": 2}, "as many successes"),
        ("dpt_target", {"successes": (1, 2, 3)}, "as many successes"),
    ],
)
def test_an_error_names_the_violated_condition(kind: str, settings: dict, condition: str):
    assert_refused(kind, settings, condition)


def test_the_dynamic_programme_refuses_long_horizons():
    with pytest.raises(ValueError, match="less than or equal to 200"):
        value("bayes_optimal_2arm", horizon=201)
