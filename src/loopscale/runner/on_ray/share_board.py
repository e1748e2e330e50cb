"""Studies that run on one Ray cluster at once share it by weight: what their drivers tell each other.

They meet in one named actor. It only counts: a driver starts no trial beyond its share, and gives back what others wait
for. When the actor cannot be asked, the last answer holds.
"""

import contextlib
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from loopscale.runner.decide.conductor import Conductor
from loopscale.runner.decide.shares import Claim, Room, rooms

NAMESPACE, NAME = "loopscale", "shares-1"
"""The number is of what is said: drivers of another version of it meet elsewhere."""
EVERY = 2.0
"""Seconds between refreshes."""
FORGOTTEN = 30.0
"""Seconds without a word after which a driver counts as dead."""
PATIENCE = 10.0
"""Seconds that somebody must have been waiting before a trial is stopped for it: most waits end by themselves."""


class Board:
    """The claims of all drivers on the cluster. Runs in the actor; plain data goes in and out."""

    def __init__(self) -> None:
        self.claims: dict[str, tuple[float, Claim]] = {}
        self.since: dict[str, float] = {}

    def refresh(self, driver: str, claim: dict[str, Any]) -> tuple[int, bool]:
        """Take a driver's claim; how many trials it may have, and whether others wait for the rest."""
        import ray

        now = time.monotonic()
        self.claims[driver] = now, Claim(**claim)
        self.claims = {name: each for name, each in self.claims.items() if now - each[0] < FORGOTTEN}
        room = rooms({name: each for name, (_, each) in self.claims.items()}, ray.cluster_resources())[driver]
        if not room.wanted:
            self.since.pop(driver, None)
        return room.trials, room.wanted and now - self.since.setdefault(driver, now) >= PATIENCE

    def leave(self, driver: str) -> None:
        self.claims.pop(driver, None)
        self.since.pop(driver, None)


@contextmanager
def sharing(conductor: Conductor, weight: float, workers: int) -> Iterator[None]:
    """Keep `conductor.room` at the study's share of the cluster that Ray is connected to, as long as it lasts."""
    member = _Member(conductor, weight, workers)
    member.refresh()  # before the first trial is started
    thread = threading.Thread(target=member.work, name="shares", daemon=True)
    thread.start()
    try:
        yield
    finally:
        member.over.set()
        thread.join(EVERY)
        member.leave()


class _Member:
    """A driver's side: asks in a thread of its own, so that nothing waits for the answer."""

    def __init__(self, conductor: Conductor, weight: float, workers: int) -> None:
        self.conductor, self.weight, self.workers = conductor, weight, workers
        self.driver, self.over = uuid.uuid4().hex, threading.Event()
        needs = conductor.study.resources
        asked = {"CPU": needs.cpu, "GPU": needs.gpu, "memory": (needs.memory or 0) * 2.0**30}
        self.trial = {name: float(amount) for name, amount in asked.items() if amount}

    def work(self) -> None:
        while not self.over.wait(EVERY):
            self.refresh()

    def refresh(self) -> None:
        running = self.conductor.busy
        demand = self.workers if self.conductor.hungry else min(self.workers, running)
        claim = {"weight": self.weight, "demand": demand, "running": running, "trial": self.trial}
        with contextlib.suppress(Exception):  # whatever Ray raises: the study goes on with what it has
            import ray

            answer = ray.get(_board().refresh.remote(self.driver, claim), timeout=10)
            self.conductor.room = Room(*answer)

    def leave(self) -> None:
        with contextlib.suppress(Exception):
            import ray

            ray.get(_board().leave.remote(self.driver), timeout=2)


def _board() -> Any:
    """The one actor of the cluster, started by whoever comes first; it outlives its driver."""
    import ray

    options = {"name": NAME, "namespace": NAMESPACE, "lifetime": "detached", "get_if_exists": True}
    return ray.remote(Board).options(**options, num_cpus=0, max_restarts=-1).remote()  # pyright: ignore[reportAttributeAccessIssue]
