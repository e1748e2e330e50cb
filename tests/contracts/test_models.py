"""The contract of the models of the package (`loopscale.contracts.models`)."""

import pytest

from loopscale.contracts.models import *  # noqa: F403
from loopscale.contracts.models import (
    test_a_model_can_be_built_and_run_on_the_meta_device,
)

pytest.mark.quick_cases(12)(test_a_model_can_be_built_and_run_on_the_meta_device)
