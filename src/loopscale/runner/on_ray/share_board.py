"""Fair shares of a cluster for studies that run there at the same time.

The drivers meet in one named actor, which computes the shares. A driver starts no trial beyond its share, and gives
back slots that other studies wait for. While the actor does not answer, the last share holds.
"""

import contextlib
import threading
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import ray

from loopscale.runner.decide.conductor import Conductor
from loopscale.runner.decide.shares import Share, StudyDemand, fair_shares

NAMESPACE, NAME = "loopscale", "shares-1"
"""Name of the actor. Its number is the version of the protocol: drivers of two versions use two actors."""
REFRESH_SECONDS = 2.0
"""Time between two refreshes of a driver's share."""
DEAD_AFTER_SECONDS = 30.0
"""Time without a refresh after which a driver counts as dead."""
PATIENCE_SECONDS = 10.0
"""Time that another study waits before a trial is stopped for it. Most waits end without a stop."""


class ShareBoard:
    """Demands of all drivers on the cluster. The board runs in the actor and exchanges plain data."""

    def __init__(self) -> None:
        self.demands: dict[str, tuple[float, StudyDemand]] = {}
        self.contested_since: dict[str, float] = {}

    def refresh(self, driver: str, demand: dict[str, Any]) -> tuple[int, bool]:
        """Store a driver's demand. Returns its number of trials, and whether other studies wait for the rest."""
        now = time.monotonic()
        self.demands[driver] = now, StudyDemand(**demand)
        self.demands = {
            name: entry for name, entry in self.demands.items() if now - entry[0] < DEAD_AFTER_SECONDS
        }
        current = {name: entry[1] for name, entry in self.demands.items()}
        share = fair_shares(current, ray.cluster_resources())[driver]
        if not share.contested:
            self.contested_since.pop(driver, None)
            return share.trials, False
        return share.trials, now - self.contested_since.setdefault(driver, now) >= PATIENCE_SECONDS

    def leave(self, driver: str) -> None:
        self.demands.pop(driver, None)
        self.contested_since.pop(driver, None)


@contextmanager
def share_cluster(
    conductor: Conductor, weight: float, workers: int, trial: Mapping[str, float]
) -> Iterator[None]:
    """Keep `conductor.services.share` at the study's share of the connected cluster, for the length of the context.

    `trial` are the resources of one trial, by Ray's names.
    """
    driver, stopped = uuid.uuid4().hex, threading.Event()

    def refresh() -> None:
        running = conductor.running_count
        demand = workers if conductor.has_startable else min(workers, running)
        message = {"weight": weight, "demand": demand, "running": running, "trial": trial}
        with contextlib.suppress(Exception):  # after any error of Ray, the study keeps its last share
            conductor.services.share = Share(*ray.get(_board().refresh.remote(driver, message), timeout=10))

    def refresh_until_stopped() -> None:
        while not stopped.wait(REFRESH_SECONDS):
            refresh()

    refresh()  # before the first trial starts
    # A thread of its own, so that the study does not wait.
    thread = threading.Thread(target=refresh_until_stopped, name="shares", daemon=True)
    thread.start()
    try:
        yield
    finally:
        stopped.set()
        thread.join(REFRESH_SECONDS)
        with contextlib.suppress(Exception):
            ray.get(_board().leave.remote(driver), timeout=2)


def _board() -> Any:
    """The cluster's only board. The first driver starts the actor, and the actor outlives that driver."""
    options = {"name": NAME, "namespace": NAMESPACE, "lifetime": "detached", "get_if_exists": True}
    return ray.remote(ShareBoard).options(**options, num_cpus=0, max_restarts=-1).remote()  # pyright: ignore[reportAttributeAccessIssue]
