"""The contract of the schedulers of the package (`loopscale.contracts.schedulers`)."""

import math

from loopscale.contracts.schedulers import *  # noqa: F403
from loopscale.studies.schedulers.base import RungErrors


def test_errors_of_a_rung_keep_the_last_error_of_each_trial_and_rank_nan_first():
    rung = RungErrors()
    for number, error in ((0, 0.3), (1, 0.1), (2, math.nan), (0, 0.2), (2, math.nan)):
        rung.add(number, error)
    assert rung.ordered == [0.1, 0.2]
    assert [rung.rank(number) for number in range(3)] == [1, 0, 0]
