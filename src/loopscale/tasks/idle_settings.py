"""Settings of a task that have no effect, given its other settings.

This is a table beside the tasks, because readers of records need it without torch.
"""

from collections.abc import Mapping
from typing import Any


def idle_settings(task: Mapping[str, Any]) -> dict[str, str]:
    """The settings without effect, each with its reason. `task` holds the task's settings, with its kind.

    Settings that are absent have their defaults. Two tasks that differ only in these settings are the same task.
    """
    match task.get("kind"):
        case "pca" if task.get("data", "gaussian") != "gaussian":
            return dict.fromkeys(("gap", "spectrum_of"), "rows of tables have the spectrum of the tables")
        case "bandit" if task.get("rewards", "bernoulli") == "bernoulli":
            return {"reward_noise": "a Bernoulli reward has no noise"}
        case "mdp" if task.get("environment", "random") == "random":
            return {"slip": "a random MDP does not slip"}
        case "network_regression" if task.get("activation", "relu") == "relu":
            return {"gain": "the gain of a ReLU network has no effect"}
        case "linear_regression" if task.get("condition", 1) == 1:
            return {"spectrum_levels": "isotropic inputs have one eigenvalue"}
        case _:
            return {}
