"""Which trials answer for a cell."""

import pytest

from loopscale.records.study_records import answering_runs, geometric_mean

Run = tuple[str, float]


def answer(tuned: list[Run], replicates: tuple[Run, ...] = ()) -> tuple[Run, ...]:
    return answering_runs(replicates, tuned, lambda run: run[0], lambda run: run[1])


def test_without_replicates_the_best_tuning_trial_answers():
    assert answer([("a", 0.3), ("b", 0.1), ("c", 0.2)]) == (("b", 0.1),)
    assert answer([]) == ()


def test_with_several_seeds_the_first_trial_of_the_best_point_answers():
    tuned = [("a", 0.3), ("a", 0.3), ("b", 0.1), ("b", 2.0), ("c", 0.01)]
    assert answer(tuned) == (("a", 0.3),), (
        "c has not finished its seeds, and the mean log error of b is larger"
    )


def test_replicates_answer_before_tuning_trials():
    assert answer([("a", 0.1)], (("b", 0.5), ("b", 0.6))) == (("b", 0.5), ("b", 0.6))


def test_the_value_of_a_point_is_the_mean_of_its_log_errors():
    assert geometric_mean([0.1]) == 0.1
    assert geometric_mean([0.1, 0.4]) == pytest.approx(0.2)
    assert geometric_mean([0.0, 0.4]) == pytest.approx(0.2), "0 has no logarithm"
    assert geometric_mean([0.1, float("inf")]) == float("inf")
