"""Looks at laws: verdicts that no later look withdraws, forecasts, and the false verdicts of a family."""

import math

import numpy as np
import pytest

from loopscale.stats.law_looks import LawLooks, law_looks
from loopscale.stats.looks import LookSchedule
from tests.stats.simulations import LAW_VALUES, stop_laws

SCHEDULE = LookSchedule((3, 5, 8, 27))


def looks(rate: float, noise: float, seeds: int, seed: int = 0, shift: float = 0.0) -> LawLooks | None:
    """A power law against the rate 1. `shift` moves the second value off the law."""
    logs = -rate * np.log(LAW_VALUES)[:, None] + noise * np.random.default_rng(seed).standard_normal(
        (4, seeds)
    )
    logs[1] += shift
    cells = list(zip(LAW_VALUES.tolist(), np.exp(logs).tolist(), strict=True))
    return law_looks(["power"], cells, SCHEDULE, lambda _: 1.0)


def test_there_is_no_look_before_the_first_replicates():
    assert looks(1, 0.1, 2) is None


def test_a_look_uses_exactly_its_replicates():
    part, whole = looks(0.97, 0.1, 5), looks(0.97, 0.1, 5)
    more = looks(0.97, 0.1, 7)
    assert part
    assert whole
    assert more
    assert part.interval() == whole.interval()
    assert [len(one.fits) for one in (part, more)] == [2, 2]


def test_a_run_without_an_error_is_skipped():
    cells = [
        (place, [math.nan, 0.0, *(1 / place * np.exp([0.01, -0.01, 0.02]))]) for place in LAW_VALUES.tolist()
    ]
    found = law_looks(["power"], cells, SCHEDULE, lambda _: 1.0)
    assert found
    assert (found.seeds, found.verdict()) == (3, "agrees")


def test_the_interval_of_a_look_is_wider_than_that_of_a_single_look_and_grows_with_the_family():
    found = looks(0.97, 0.1, 3)
    assert found
    ends = [found.fits[-1].interval(), found.interval(), found.interval(0.01)]
    widths = [high - low for low, high in ends if low is not None and high is not None]
    assert widths[0] < widths[1] < widths[2]


def test_a_verdict_stands_at_later_looks():
    clear = np.tile(np.exp(-0.5 * np.log(LAW_VALUES))[:, None], 27) * np.exp(
        0.01 * np.random.default_rng(1).standard_normal((4, 27))
    )
    clear[:, 3:] *= LAW_VALUES[:, None] ** -0.5 * np.exp(np.random.default_rng(2).standard_normal((4, 24)))
    found = law_looks(
        ["power"], list(zip(LAW_VALUES.tolist(), clear.tolist(), strict=True)), SCHEDULE, lambda _: 1.0
    )
    assert found
    assert found.verdict() == "slower"


def test_a_forecast_knows_that_more_replicates_leave_a_scatter():
    noisy, scattered = looks(0.93, 0.3, 3), looks(0.93, 0.05, 3, shift=1.0)
    assert noisy
    assert scattered
    assert noisy.deciding_replicates(0.05, 10**6)
    assert scattered.deciding_replicates(0.05, 10**6) is None
    assert scattered.is_futile()


@pytest.mark.parametrize("laws", [1, 8])
def test_the_laws_of_a_study_give_a_false_verdict_in_five_of_a_hundred_studies(laws: int):
    """The standard error of a share of .05 is .3 %. Laws with their own runs are independent."""
    stopped = stop_laws(laws, 5_000, LAW_VALUES, 0.3, 1.0, LookSchedule(), laws)
    false = float(np.isin(stopped.words, ["faster", "slower"]).mean())
    assert 1 - (1 - false) ** laws <= 0.06
    assert stopped.covered.mean() >= 0.94
