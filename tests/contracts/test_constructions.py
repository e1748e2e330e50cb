"""The contract of the constructions of the package (`loopscale.contracts.constructions`)."""

import pytest

from loopscale.contracts.constructions import *  # noqa: F403
from loopscale.contracts.constructions import (
    test_a_slightly_different_algorithm_is_detected,
    test_the_theorem_holds_on_random_problems,
)

pytest.mark.quick_cases(8)(test_a_slightly_different_algorithm_is_detected)
pytest.mark.quick_cases(12)(test_the_theorem_holds_on_random_problems)
