"""Settings of a task that have no effect, given its other settings.

This is a table beside the tasks, because readers of records need it without torch.
"""

from collections.abc import Mapping
from typing import Any


def idle_settings(task: Mapping[str, Any]) -> frozenset[str]:
    """Names of the settings without effect. `task` holds the task's settings, with its kind.

    Two tasks that differ only in these settings are the same task.
    """
    if task.get("kind") == "pca" and task.get("data", "gaussian") != "gaussian":
        return frozenset({"gap", "spectrum_of"})  # rows of tables have the spectrum of the tables
    return frozenset()
