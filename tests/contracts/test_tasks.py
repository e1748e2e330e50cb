"""The contract of the tasks of the package (`loopscale.contracts.tasks`)."""

import pytest

from loopscale.contracts.tasks import *  # noqa: F403
from loopscale.contracts.tasks import (
    test_outcomes_have_their_names_and_one_number_per_game,
    test_predicting_zero_costs_one_at_every_query,
    test_predicting_zero_costs_one_in_an_easier_task,
)

pytest.mark.quick_cases(5)(test_predicting_zero_costs_one_in_an_easier_task)
pytest.mark.quick_cases(1)(test_outcomes_have_their_names_and_one_number_per_game)
pytest.mark.quick_cases(6)(test_predicting_zero_costs_one_at_every_query)
