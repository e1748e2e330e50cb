"""How many trials fit a machine, and the sizes that machines are described by."""

import math
from collections.abc import Mapping


def fitting(trial: Mapping[str, float], cpus: float, gpus: float, memory: float | None) -> int:
    """How many trials a machine has room for at once; `memory` in GiB, None where nobody counts it."""
    has = {"cpu": cpus, "gpu": gpus, "memory": math.inf if memory is None else memory}
    # A GPU that is shared is shared whole: 0.4 of one leaves room for two, on each of them.
    shared = trial.get("gpu", 0.0)
    if 0 < shared < 1:
        has["gpu"], trial = math.floor(1 / shared + 1e-9) * math.floor(gpus), {**trial, "gpu": 1.0}
    rooms = [has[name] / amount for name, amount in trial.items() if name in has and amount > 0]
    return math.floor(min(rooms, default=cpus) + 1e-9)
