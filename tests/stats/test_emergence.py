"""The interval of emergence, by hand."""

import math

import numpy as np
import pytest

from loopscale.stats.learning import Emergence, EmergenceRule, emergence, reducible_share

STEPS = np.array([100.0, 200.0, 300.0, 400.0, 500.0])


def interval(*shares: float, rule: EmergenceRule | None = None) -> tuple[float, float]:
    found = emergence(STEPS[: len(shares)], np.array(shares), rule)
    assert found is not None
    return found.after, found.by


def test_a_training_emerges_at_the_first_of_two_consecutive_reports_below_a_half():
    assert interval(0.9, 0.8, 0.4, 0.3, 0.2) == (200, 300)


def test_a_single_report_below_a_half_is_no_emergence():
    assert interval(0.9, 0.4, 0.6, 0.4, 0.3) == (300, 400)


def test_at_the_end_of_the_training_one_report_suffices():
    assert interval(0.9, 0.8, 0.7, 0.6, 0.4) == (400, 500)


def test_a_training_on_the_plateau_is_censored_at_its_last_report():
    censored = emergence(STEPS, np.array([1.0, 1.0, 0.9, 0.5, 0.5]))
    assert censored == Emergence(500.0, math.inf)
    assert censored is not None
    assert not censored.emerged


def test_a_training_that_emerges_before_the_first_report_has_no_lower_end():
    assert interval(0.4, 0.3, 0.2) == (0, 100)


def test_level_and_number_of_reports_are_settings():
    shares = 0.9, 0.6, 0.25, 0.6, 0.2
    assert interval(*shares, rule=EmergenceRule(consecutive=1)) == (200, 300)
    assert interval(*shares, rule=EmergenceRule(below=0.7)) == (100, 200)
    assert interval(*shares, rule=EmergenceRule(below=0.3, consecutive=3)) == (400, 500)


def test_without_reports_or_room_there_is_no_answer():
    assert emergence(np.empty(0), np.empty(0)) is None
    assert emergence(STEPS, reducible_share(STEPS, 0.95, 1.0)) is None


def test_the_reducible_share_is_one_at_ignorance_and_zero_at_the_floor():
    assert reducible_share(np.array([0.8, 0.5, 0.2]), 0.2, 0.8) == pytest.approx([1, 0.5, 0])


def test_a_task_without_room_has_no_reducible_share():
    assert np.isnan(reducible_share(0.5, 0.91, 1.0))
    assert np.isnan(reducible_share(0.5, math.nan, 1.0))
    assert np.isnan(reducible_share(0.5, 0.8, 0.6))
    assert not np.isnan(reducible_share(0.95, 0.89, 1.0))
