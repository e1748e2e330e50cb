"""The states of a study's trainings, on histories of known course."""

import math
from collections.abc import Sequence

import numpy as np

from loopscale.stats.contrasts import Array
from loopscale.stats.learning import (
    Emergence,
    EmergenceRule,
    History,
    LearningState,
    learning_state,
    pooled_scatter,
)

STEPS = np.arange(1.0, 41) * 50


def history(error: Array, seed: int, floor: float = 0.2, ignorance: float = 1.0) -> History:
    """Reports with a noise of 3 % of the regret."""
    noise = np.exp(0.03 * np.random.default_rng(seed).standard_normal(len(error)))
    return History(STEPS[: len(error)], floor + (error - floor) * noise, floor, ignorance)


LEVEL = np.where(STEPS < 300, 0.99, 0.3)
POWER = 0.2 + 20 * STEPS**-1.0
PLATEAU = np.full(40, 0.98)


def learning_states(histories: Sequence[History], rule: EmergenceRule | None = None) -> list[LearningState]:
    scatter = pooled_scatter(histories, rule)
    return [learning_state(each, scatter, rule) for each in histories]


def test_each_course_of_a_training_has_a_state():
    courses = [history(LEVEL, 0), history(POWER, 1), history(PLATEAU, 2), history(LEVEL, 3, floor=0.95)]
    states = learning_states(courses)
    assert [state.stage for state in states] == ["over", "falling", "not learnt", "no room"]
    assert states[0].emergence == Emergence(250.0, 300.0)
    assert states[2].emergence == Emergence(2000.0, math.inf)
    assert states[3].emergence is None
    assert np.isnan(states[3].share)
    assert 0.1 < states[0].share < 0.15


def test_without_a_floor_there_is_no_answer():
    unknown = History(STEPS, LEVEL, math.nan, 1.0)
    assert [state.stage for state in learning_states([unknown])] == ["no floor"]


def test_the_rule_of_emergence_is_a_setting():
    (state,) = learning_states([history(LEVEL, 0)], EmergenceRule(below=0.05))
    assert state.stage == "not learnt"


def test_a_training_without_room_adds_no_scatter():
    courses = [history(LEVEL, 0), history(LEVEL, 1)]
    wild = History(STEPS, 0.99 + 0.05 * np.random.default_rng(0).standard_normal(40), 0.95, 1.0)
    with_wild = learning_states([*courses, wild])
    assert [state.trend for state in with_wild[:2]] == [state.trend for state in learning_states(courses)]


def test_too_few_reports_leave_the_ending_unclear():
    (state,) = learning_states([history(np.array([0.9, 0.3]), 0)])
    assert (state.stage, state.trend) == ("unclear", None)
