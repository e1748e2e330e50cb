"""Which of two groups of nets learns more often: Fisher's test, its looks, its family and its forecast."""

import math

import numpy as np
import pytest
from scipy import stats

from loopscale.stats.contrasts import ALPHA, Array
from loopscale.stats.learning_chances import LearningLooks, fisher_p, judge_learning, looks_at_learning
from loopscale.stats.looks import LookSchedule
from tests.stats.simulations import judge_learning_claims, learning_courses

SCHEDULE = LookSchedule()


def counted(first: str, second: str) -> tuple[Array, Array]:
    """Tables [1, seeds] of learnt (1) and other (0) runs; `-` is a missing run."""

    def row(text: str) -> Array:
        return np.array([[math.nan if sign == "-" else float(sign) for sign in text]])

    return row(first), row(second)


def looks(*pairs: tuple[int, int]) -> LearningLooks:
    first, second = zip(*pairs, strict=True)
    return LearningLooks(SCHEDULE, first, second, SCHEDULE.seeds[: len(pairs)])


def test_the_p_value_is_that_of_scipys_exact_test():
    for runs in (2, 3, 6, 27):
        for first in range(runs + 1):
            for second in range(runs + 1):
                table = [[first, runs - first], [second, runs - second]]
                assert fisher_p(first, second, runs) == pytest.approx(stats.fisher_exact(table)[1])


def test_a_study_without_looks_has_the_exact_test_of_all_its_seeds():
    data = looks_at_learning(*counted("111111", "000000"), None)
    assert data is not None
    assert data.p() == pytest.approx(stats.fisher_exact([[6, 0], [0, 6]])[1], rel=0.02)
    assert data.judge() == "more"
    assert looks_at_learning(*counted("11111", "11000"), None).judge() == "undecided"


def test_only_seeds_with_a_run_on_both_sides_count():
    data = looks_at_learning(*counted("1-1011", "10-100"), LookSchedule((2, 4)))
    assert data is not None
    assert (data.first, data.second, data.runs) == ((1, 3), (2, 2), (2, 4))


def test_there_is_no_question_before_the_first_look_and_if_all_have_learnt():
    assert looks_at_learning(*counted("10", "11"), SCHEDULE) is None
    assert looks_at_learning(*counted("1", "0"), None) is None
    assert looks_at_learning(*counted("111", "111"), SCHEDULE) is None
    assert looks_at_learning(*counted("111", "110"), SCHEDULE) is not None


def test_a_later_look_does_not_withdraw_a_verdict():
    early = looks((3, 0), (5, 0), (8, 0))
    assert early.judge() == "more"
    assert looks((3, 0), (5, 0), (8, 0), (8, 7)).judge() == "more"
    assert looks((1, 2), (3, 3), (6, 5), (8, 7)).judge() == "undecided"


def test_the_questions_of_a_study_are_one_family():
    clear, weak = looks((0, 3), (0, 5), (0, 8)), looks((1, 3), (1, 5), (2, 8))
    assert weak.judge() == "less"
    assert judge_learning([weak]) == ("less",)
    assert judge_learning([weak, *[None] * 9]) == ("undecided", *["undecided"] * 9)
    assert judge_learning([clear, *[None] * 2])[0] == "less"
    assert judge_learning([]) == ()


@pytest.mark.parametrize("counts", [(2, 5), (4, 5), (0, 3), (5, 5)])
def test_the_forecast_is_the_share_of_drawn_futures(counts: tuple[int, int]):
    data = looks((min(3, counts[0]), min(3, counts[1])), counts)
    rng, draws, most = np.random.default_rng(3), 20_000, SCHEDULE.seeds[-1]
    finals = [
        learnt + rng.binomial(most - 5, rng.beta(learnt + 0.5, 5 - learnt + 0.5, draws)) for learnt in counts
    ]
    level = float(SCHEDULE.alphas()[-1])
    share = np.mean([fisher_p(int(a), int(b), most) <= level for a, b in zip(*finals, strict=True)])
    # Yates' correction approximates the exact test.
    assert data.chance() == pytest.approx(share, abs=0.03)


def test_a_forecast_over_thousands_of_runs_uses_quantiles_of_the_counts():
    long, short = LookSchedule((5, 4_000)), LookSchedule((5, 100))
    chances = [LearningLooks(each, (2,), (5,), (5,)).chance() for each in (short, long)]
    assert chances[0] < chances[1] < 1


def test_the_question_is_futile_if_no_run_learns_or_the_counts_stay_alike():
    assert looks((0, 0)).is_futile()
    assert not looks((0, 3)).is_futile()
    assert looks((3, 3), (5, 5), (8, 8), (12, 12), (17, 17)).is_futile()
    decided = looks((3, 0), (5, 0), (8, 0))
    assert decided.judge() != "undecided"
    assert not decided.is_futile()


def test_more_runs_decide_a_smaller_difference():
    small, large = looks((2, 3), (4, 5)), looks((1, 3), (1, 5))
    assert small.deciding_runs() > large.deciding_runs() >= 5
    assert looks((2, 2)).deciding_runs() == math.inf


@pytest.mark.slow
def test_equal_chances_give_a_verdict_in_at_most_five_of_a_hundred_claims():
    for chance in (0.9, 0.5, 0.2):
        judged = judge_learning_claims((chance, chance), 0.0, 2_000)
        tolerance = 3.1 * math.sqrt(ALPHA * (1 - ALPHA) / 2_000)
        assert judged.false_learning <= ALPHA + tolerance
        assert judged.false_ratio <= ALPHA + tolerance
        assert judged.covered >= 1 - ALPHA - tolerance


def test_the_simulation_judges_each_claim_as_a_study_does():
    from loopscale.stats.looks import looks_at

    rng = np.random.default_rng(5)
    logs = 0.3 * rng.standard_normal((25, 4, 27)) - np.array([0.4, 0, 0, 0])[:, None]
    learnt = rng.random(logs.shape) < np.array([0.8, 0.6, 0.9, 0.9])[:, None]
    courses = learning_courses(logs, learnt, -0.4)
    for draw in range(25):
        for look, seeds in enumerate(SCHEDULE.seeds):
            mask = learnt[draw, :, :seeds]
            ratio = looks_at(logs[draw, :, :seeds], 0, 1, SCHEDULE, mask)
            assert courses.ratio[draw, look] == bool(ratio and ratio.verdict() != "undecided")
            if ratio:
                low, high = ratio.interval()
                assert courses.covered[draw, look] == (low <= -0.4 <= high)
                assert courses.futile_ratio[draw, look] == ratio.is_futile()
            learning = looks_at_learning(mask[:1].astype(float), mask[1:2].astype(float), SCHEDULE)
            assert courses.learning[draw, look] == bool(learning and learning.judge() != "undecided")
            assert courses.futile_learning[draw, look] == (not learning or learning.is_futile())
