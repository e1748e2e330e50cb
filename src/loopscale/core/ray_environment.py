"""The environment variables of Ray and Tune: those that loopscale sets, and those that a private Ray inherits.

A variable of another tool, or of another Ray on the same machine, must not change the private Ray of a study.
"""

import os
from collections.abc import Generator
from contextlib import contextmanager

QUIET = {
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    "TUNE_GLOBAL_CHECKPOINT_S": "1000000000",
    "TUNE_DISABLE_SIGINT_HANDLER": "1",
    # A stopped trial that takes longer to let go hangs the study. Tune's default of 2 s is too short (seen).
    "TUNE_FUNCTION_THREAD_TIMEOUT_S": "600",
    "TUNE_PRINT_ALL_TRIAL_ERRORS": "0",
    "TUNE_WARN_THRESHOLD_S": "5",
    "RAY_AIR_NEW_OUTPUT": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_TRAIN_ENABLE_V2_MIGRATION_WARNINGS": "0",
    "RAY_CHDIR_TO_TRIAL_DIR": "0",
}
"""Variables that make Ray and Tune quiet."""
INHERITED = ("RAY_memory_", "RAY_health_check_", "RAY_raylet_start_wait_time_s")
"""Starts of the names that a private Ray takes from the caller: limits of memory, and patience on a slow machine."""
PREFIXES = ("RAY_", "TUNE_")


def be_quiet() -> None:
    """Set the variables of QUIET. Variables that are already set keep their values."""
    for name, value in QUIET.items():
        os.environ.setdefault(name, value)


@contextmanager
def private_variables() -> Generator[None]:
    """In the context, Ray and Tune see the variables of QUIET, and of the caller's only those of INHERITED."""
    before = _of_ray()
    _replace({name: value for name, value in before.items() if name.startswith(INHERITED)} | QUIET)
    try:
        yield
    finally:
        _replace(before)


def _of_ray() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name.startswith(PREFIXES)}


def _replace(variables: dict[str, str]) -> None:
    for name in _of_ray():
        del os.environ[name]
    os.environ.update(variables)
