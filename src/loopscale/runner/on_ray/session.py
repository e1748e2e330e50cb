"""A quiet Ray for the length of a study, and the signals that end it early."""

import logging
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from loopscale.runner.decide.conductor import Conductor
from loopscale.studies.parts import Resources

QUIET = {
    "TUNE_DISABLE_AUTO_CALLBACK_LOGGERS": "1",
    "TUNE_GLOBAL_CHECKPOINT_S": "1000000000",
    "TUNE_DISABLE_SIGINT_HANDLER": "1",
    # A stopped trial that takes longer than this to let go hangs the study: Tune's default of 2 s does (seen).
    "TUNE_FUNCTION_THREAD_TIMEOUT_S": "600",
    "TUNE_PRINT_ALL_TRIAL_ERRORS": "0",
    "TUNE_WARN_THRESHOLD_S": "5",
    "RAY_AIR_NEW_OUTPUT": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_TRAIN_ENABLE_V2_MIGRATION_WARNINGS": "0",
    "RAY_CHDIR_TO_TRIAL_DIR": "0",
}


@contextmanager
def ray_session(cpus: int, address: str | None) -> Iterator[None]:
    """Ray: started here with so many CPUs and the GPUs that there are, or joined at `address`; left at the end."""
    os.environ |= {variable: os.environ.get(variable, value) for variable, value in QUIET.items()}
    import ray

    here: dict[str, Any] = {"num_cpus": cpus, "include_dashboard": False}
    where: dict[str, Any] = {"address": address} if address else here
    try:
        ray.init(**where, logging_level=logging.ERROR, log_to_driver=False)
        yield
    finally:
        ray.shutdown()


def room(resources: Resources) -> int:
    """How many trials the cluster that was joined could hold at once, were it empty; at least one, which may wait."""
    return max(1, _places(resources))


def unheld(resources: Resources) -> str:
    """What to say where no machine of the cluster that was joined could ever hold a trial; else nothing.

    Ray does not tell whether machines may be added: pending trials are announced to its autoscaler, if there is one.
    """
    if _places(resources):
        return ""
    amounts = {"CPUs": resources.cpu, "GPUs": resources.gpu, "GiB of memory": resources.memory}
    wanted = ", ".join(f"{amount:g} {what}" for what, amount in amounts.items() if amount)
    return (
        f"no machine of the cluster has what a trial asks for ({wanted}); it waits until one is added: "
        "stop it with Ctrl-C if none will be, and ask for less under resources"
    )


def _places(resources: Resources) -> int:
    import ray

    wanted = {"CPU": resources.cpu, "GPU": resources.gpu, "memory": (resources.memory or 0) * 2**30}
    nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    fits = [
        [int(node.get(name, 0) / amount + 1e-9) for name, amount in wanted.items() if amount]
        for node in nodes
    ]
    return sum(min(each) for each in fits)


@contextmanager
def stoppable(conductor: Conductor) -> Iterator[None]:
    """Let SIGINT and SIGTERM ask the conductor to stop; a second SIGINT does what it always did.

    After `ray.init`, which takes SIGTERM for itself and aborts on it. And only ask: what a handler raises inside
    Ray's core comes out as something else.
    """

    def stop(number: int, frame: Any) -> None:
        conductor.stopping = True
        signal.signal(number, before[signal.Signals(number)])

    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    for number in before:
        signal.signal(number, stop)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
