"""The contract of the solvers of the package (`loopscale.contracts.solvers`)."""

import pytest

from loopscale.contracts.solvers import *  # noqa: F403
from loopscale.contracts.solvers import (
    test_no_other_solver_beats_a_bayes_predictor_by_more_than_its_bound,
)

pytest.mark.quick_cases(2)(test_no_other_solver_beats_a_bayes_predictor_by_more_than_its_bound)
