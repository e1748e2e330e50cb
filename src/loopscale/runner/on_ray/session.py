"""A Ray session for the length of a study, the size of its cluster, and the signals that stop the study."""

import logging
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from loopscale.runner.decide.conductor import Conductor
from loopscale.studies.schema import Resources

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


@contextmanager
def ray_session(cpus: int, address: str | None) -> Iterator[None]:
    """Connect to the cluster at `address`, or start a local Ray with `cpus` CPUs and all GPUs of this machine."""
    os.environ |= {name: os.environ.get(name, value) for name, value in RAY_ENVIRONMENT.items()}
    import ray  # reads the variables above when it is imported

    local = {"num_cpus": cpus, "include_dashboard": False}
    options: dict[str, Any] = {"address": address} if address else local
    try:
        ray.init(**options, logging_level=logging.ERROR, log_to_driver=False)
        yield
    finally:
        ray.shutdown()


def cluster_slots(resources: Resources) -> int:
    """Number of trials that the connected cluster holds when it is empty; at least 1, because a trial may wait."""
    return max(1, _count_slots(resources))


def placement_notice(resources: Resources) -> str:
    """Message for a cluster without any machine that can hold a trial; empty if a trial fits.

    Ray does not say whether the cluster can grow. An autoscaler sees pending trials, if the cluster has one.
    """
    if _count_slots(resources):
        return ""
    amounts = {"CPUs": resources.cpu, "GPUs": resources.gpu, "GiB of memory": resources.memory}
    request = ", ".join(f"{amount:g} {name}" for name, amount in amounts.items() if amount)
    return (
        f"no machine of the cluster has the resources of a trial ({request}); the study waits for such a machine: "
        "if none will be added, stop the study with Ctrl-C and reduce its resources"
    )


def _count_slots(resources: Resources) -> int:
    import ray

    request = {"CPU": resources.cpu, "GPU": resources.gpu, "memory": (resources.memory or 0) * 2**30}
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    return sum(
        min(int(node.get(name, 0) / amount + 1e-9) for name, amount in request.items() if amount)
        for node in nodes
    )


@contextmanager
def stop_on_signals(conductor: Conductor) -> Iterator[None]:
    """Let SIGINT and SIGTERM ask the conductor to stop. A second signal has its previous effect.

    Enter the context after `ray.init`, which installs its own handler of SIGTERM and aborts on the signal. The
    handlers raise nothing, because Ray's core replaces exceptions of a handler by its own.
    """

    def stop(number: int, frame: Any) -> None:
        conductor.stopping = True
        signal.signal(number, previous[signal.Signals(number)])

    previous = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    for number in previous:
        signal.signal(number, stop)
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
