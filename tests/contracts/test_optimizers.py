"""The contract of the optimizers of the package (`loopscale.contracts.optimizers`)."""

import pytest

from loopscale.contracts.optimizers import *  # noqa: F403
from loopscale.contracts.optimizers import (
    test_a_quadratic_falls_to_its_minimum,
    test_a_training_resumed_from_its_checkpoint_ends_bitwise_equal,
)

pytest.mark.quick_cases(4)(test_a_quadratic_falls_to_its_minimum)
pytest.mark.quick_cases(4)(test_a_training_resumed_from_its_checkpoint_ends_bitwise_equal)
