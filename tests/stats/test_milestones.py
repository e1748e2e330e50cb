"""Milestones as measures: their names, and the reports between which a training passes."""

import math

import numpy as np
import pytest

from loopscale.stats.learning import Emergence, History
from loopscale.stats.milestones import Milestone, is_milestone, measure_of

STEPS = np.arange(100.0, 600, 100)


def history(*error: float, floor: float = 0.1) -> History:
    return History(STEPS[: len(error)], np.array(error), floor, ignorance=1.0)


@pytest.mark.parametrize(
    ("milestone", "name", "words"),
    [
        (Milestone(), "emerged_at", "steps until emergence"),
        (Milestone(None, "flops"), "emerged_at in flops", "FLOPs until emergence"),
        (Milestone(0.05), "reached 0.05", "steps until a regret of 0.05"),
        (Milestone(1e-4, "seconds"), "reached 0.0001 in seconds", "seconds until a regret of 0.0001"),
    ],
)
def test_a_milestone_is_a_measure_and_the_name_says_all_of_it(milestone: Milestone, name: str, words: str):
    assert (milestone.measure, milestone.words) == (name, words)
    assert Milestone.parse(name) == milestone
    assert is_milestone(name)


@pytest.mark.parametrize(
    "name", ["error", "regret_last", "reached", "reached 0.1 in hours", "emerged_at_last"]
)
def test_other_measures_are_no_milestones(name: str):
    assert Milestone.parse(name) is None


def test_a_law_or_claim_names_its_measure():
    assert measure_of({"along": "loop"}) == "error"
    assert measure_of({"of": "regret", "regret": None, "basis": "flops"}) == "regret"
    assert measure_of({"of": "emerged_at"}) == "emerged_at"
    assert measure_of({"of": "reached", "regret": 0.05, "basis": "seconds"}) == "reached 0.05 in seconds"


def test_a_level_is_reached_at_the_first_of_two_reports_below():
    below = Milestone(0.2)  # of the regret, so .3 of the error
    assert below.passed(history(0.9, 0.9, 0.9)) == Emergence(300, math.inf)
    assert below.passed(history(0.9, 0.29, 0.5, 0.25, 0.2)) == Emergence(300, 400)
    assert below.passed(history(0.2, 0.2)) == Emergence(0, 100)
    assert below.passed(history(0.9, 0.9, 0.29)) == Emergence(200, 300)  # the last report has no successor
    assert below.passed(history(0.9, 0.31, 0.29, 0.31)) == Emergence(400, math.inf)


def test_a_level_needs_a_floor_but_no_room():
    assert Milestone(0.2).passed(history(0.9, 0.2, floor=math.nan)) is None
    tight = History(STEPS[:2], np.array([0.99, 0.96]), 0.95, 1.0)
    assert Milestone().passed(tight) is None
    assert Milestone(0.05).passed(tight) == Emergence(0, 100)
