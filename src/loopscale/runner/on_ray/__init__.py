"""Studies on Ray. Only the modules of this folder import Ray.

Ray reads the environment variables below when it is imported, so this file sets them before any module imports Ray.
"""

import logging
import os

from loopscale.core.garbage import search_rarely

RAY_ENVIRONMENT = {
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
"""Environment variables that make Ray and Tune quiet. Variables that are already set keep their values."""
for name, value in RAY_ENVIRONMENT.items():
    os.environ.setdefault(name, value)

# In a notebook Ray's modules ask for ipywidgets while they are imported. Studies show no widgets.
logging.getLogger("ray.widgets").setLevel(logging.ERROR)

search_rarely()  # a worker imports this file before torch
