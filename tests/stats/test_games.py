"""The noise of the games of play in comparisons."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from scipy import stats

from loopscale.questions.measures import game_noise
from loopscale.stats.contrasts import Contrast, deciding_replicates
from loopscale.stats.games import GameNoise, shared_variance
from loopscale.stats.looks import ClaimLooks, LookSchedule
from loopscale.tasks.base import Task
from loopscale.tasks.decisions import DecisionTask, paired_ratio
from tests.stats.simulations import PLAYER_ERROR, PlayedStudies


@pytest.mark.parametrize("beside_reference", [False, True])
@pytest.mark.parametrize("alike", [0.8, 0.2])
def test_intervals_with_the_games_cover_where_replicates_alone_do_not(alike: float, beside_reference: bool):
    shares = PlayedStudies.draw([4], 800, 8, alike, 0.01).coverage(beside_reference)
    assert shares["none"] < 0.8
    assert shares["paired"] > 0.94
    assert shares["unpaired"] >= shares["paired"]


def test_an_interval_with_a_shared_part_is_that_of_a_known_normal_error_beside_students():
    plain = Contrast(0.1, 3 * 0.02**2, 7.0, 3)
    assert plain.beside(0.0) == plain
    joined = plain.beside(0.02**2)
    assert joined.error == pytest.approx(0.02 * math.sqrt(2))
    assert joined.error_freedom == pytest.approx(7.0 * 4)  # Satterthwaite: v² / (v₁² / 7), with v₁ = v / 2
    half = stats.t.ppf(0.975, 28) * joined.error
    assert joined.interval() == pytest.approx((0.1 - half, 0.1 + half))
    known = replace(plain, variance=0.0).beside(0.02**2)
    assert known.half_width() == pytest.approx(1.95996 * 0.02, rel=1e-4)


def test_replicates_decide_nothing_that_the_games_leave_open():
    open_claim = Contrast(0.03, 5 * 0.03**2, 8.0, 5)
    assert deciding_replicates(open_claim)
    assert deciding_replicates(open_claim.beside(0.02**2)) is None
    schedule = LookSchedule((3, 5, 8, 1000))
    looks = ClaimLooks(schedule, (replace(open_claim, variance=0.01),))
    assert looks.chance() > 0.9 > 0.6 > looks.beside(0.02**2).chance()


def test_looks_with_a_shared_part_keep_the_level():
    """The estimates of later looks have the same error of the games, so fewer studies than 5 % have a false verdict."""
    rng, schedule = np.random.default_rng(3), LookSchedule()
    false = 0
    for _ in range(600):
        gaps = 0.05 * rng.standard_normal(27) + 0.02 * rng.standard_normal()
        found = [
            Contrast(gaps[:n].mean(), gaps[:n].var(ddof=1), n - 1, n).beside(0.02**2) for n in schedule.seeds
        ]
        false += ClaimLooks(schedule, tuple(found)).verdict() != "undecided"
    assert false / 600 < 0.06


def test_players_of_other_games_are_not_paired():
    first, second = GameNoise(0.02, 0.01, 4.7), GameNoise(0.03, 0.01, 4.7)
    assert first.beside(second) == pytest.approx(2 * 0.01**2)
    assert first.beside(replace(second, reference=6.5)) == pytest.approx(0.02**2 + 0.03**2)
    assert first.beside(replace(second, paired=0.05)) == pytest.approx(0.02**2 + 0.03**2)
    assert first.beside(GameNoise(math.nan)) == 0
    assert shared_variance([(first, second)] * 4) == pytest.approx(first.beside(second))
    assert shared_variance([]) == 0


def test_replicates_of_a_cell_have_the_noise_of_one_net():
    nets = [GameNoise(0.03, 0.01, 4.7), GameNoise(0.04, 0.02, 4.7)]
    found = GameNoise.of_replicates(nets)
    assert found.own == pytest.approx(math.sqrt((0.03**2 + 0.04**2) / 2))
    assert (found.paired, found.reference) == (pytest.approx(math.sqrt(0.0005 / 2)), 4.7)
    assert math.isnan(GameNoise.of_replicates([]).own)


def test_only_measures_of_play_have_games():
    measures = {
        "error": 0.3,
        "error_sem": 0.01,
        "play_regret": 6.0,
        "play_regret_sem": 0.12,
        "play_regret_ratio": 1.5,
        "play_regret_ratio_sem": 0.015,
        "play_exponent": 0.5,
        "play_exponent_sem": 0.02,
        "target_kl": 0.1,
    }

    def noise(of: str) -> GameNoise | None:
        return game_noise(lambda name: measures.get(name, math.nan), of)

    assert noise("error") is None
    assert noise("target_kl") is None
    assert noise("play_regret") == GameNoise(0.02, 0.01, 4.0)
    assert noise("play_regret_ratio") == GameNoise(0.01, 0.01, 4.0)
    exponent = noise("play_exponent")
    assert exponent is not None
    assert (exponent.own, math.isnan(exponent.paired)) == (0.04, True)


def test_the_recorded_errors_bound_the_noise_of_ratios_of_real_players():
    """Every pair of policies, with the error of the ratio over the 512 games that both have played."""
    task = Task.model_validate({"kind": "bandit", "points": 20})
    assert isinstance(task, DecisionTask)
    thompson, reference = task.policy("thompson"), task.reference_regrets()

    def tempered(power: float):
        def policy(tally: object) -> torch.Tensor:
            probabilities = thompson(tally).clamp_min(1e-9) ** power
            return probabilities / probabilities.sum(-1, keepdim=True)

        return policy

    policies = [task.policy("ucb1"), task.policy("empirical_mean"), *map(tempered, (0.5, 0.8, 1.25))]
    regrets = [task.play(policy) for policy in policies]
    noises = list[GameNoise]()
    for played in regrets:
        ratio = paired_ratio(played, reference)
        assert float(ratio.mean()) == pytest.approx(float(played.mean() / reference.mean()), rel=1e-12)
        own, paired = (float(each.std() / each.mean()) / len(each) ** 0.5 for each in (played, ratio))
        noises.append(GameNoise(own, paired, float(reference.mean())))
    for i, first in enumerate(regrets):
        for j, second in enumerate(regrets[:i]):
            true = float((first / first.mean() - second / second.mean()).var()) / len(first)
            assert true < noises[i].beside(noises[j]) < noises[i].own ** 2 + noises[j].own ** 2 + 1e-12
    assert PLAYER_ERROR / 2 < noises[-1].own < 2 * PLAYER_ERROR
