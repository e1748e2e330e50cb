"""Which driver writes a study's records on a server or database, which locks of an operating system do not reach.

The driver writes a claim into a tag of the study's experiment, and renews the claim every few seconds. No clock is
trusted: a second driver watches whether the claim changes. A driver that was cut off finds the claim of the second
driver when it comes back, and writes no more. This is a fencing token [@kleppmann2016].
"""

import contextlib
import json
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from typing import Any

from loopscale.records.deferred_imports import mlflow
from loopscale.records.model import DAMAGE, StoreError, explain_denial, user_name
from loopscale.records.stores.base import FORMAT_TAG, Store

TAG = "loopscale.driver"
BEAT = 10.0
"""Seconds between two renewals."""
SILENCE = 35.0
"""Seconds without a renewal after which a driver counts as dead."""
SETTLE = 1.5
"""Seconds in which two drivers that claim at once see each other. The later claim holds."""


class LeaseTaken(Exception):
    """Another driver holds the study. The text names the driver."""


class DriverLease:
    """One driver's lease on the records of a study.

    `on_lost` is called once, from a thread, when another driver has taken the study over.
    """

    def __init__(self, store: Store, study: str, on_lost: Callable[[str], None]) -> None:
        self.client, self.experiment = store.client, store.make_experiment(study)
        self.storage, self.study, self.on_lost = str(store.storage.absolute()), study, on_lost
        self.token, self.count = uuid.uuid4().hex, 0
        self.overtaken = ""
        self._confirmed = 0.0
        self._confirming = threading.Lock()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._repeat, name="lease", daemon=True)

    def take(self, notice: Callable[[str], None]) -> None:
        """Hold the study from now on. Wait if the last driver may be dead; `notice` is told so.

        Raises LeaseTaken if another driver holds the study, and StoreError if this user may not write.
        """
        self._check_permission()
        if (claim := self._read()) and not self._left_by_dead_driver(claim):
            notice(
                f"{claim['who']} was the last to run {self.study}; {SILENCE:.0f} s will show whether it still does"
            )
            self._watch(claim)
        try:
            self._write()
        except Exception:
            # The database lets only one of two drivers insert the tag; then its claim can be read.
            if not self._read():
                raise
        time.sleep(SETTLE)
        if (now := self._read()) and now["token"] != self.token:
            raise LeaseTaken(now["who"])
        self._thread.start()

    def ensure_held(self) -> None:
        """Return if this driver still holds the study, as far as can be known; ask if the last answer is old.

        Raises LeaseTaken, and the store's exceptions while the store is away.
        """
        if self.overtaken or time.monotonic() - self._confirmed > 2 * BEAT:
            self._confirm()

    def release(self) -> None:
        self._over.set()
        if self._thread.is_alive():
            self._thread.join(2 * BEAT)
        with contextlib.suppress(Exception):  # otherwise the next driver waits until the claim counts as dead
            if (claim := self._read()) and claim["token"] == self.token:
                self.client.set_experiment_tag(self.experiment, TAG, "")

    def _check_permission(self) -> None:
        """Write a tag's present value again, because only the server knows who may write.

        A user who may not write need not wait for another driver.
        """
        tags = self.client.get_experiment(self.experiment).tags
        try:
            self.client.set_experiment_tag(self.experiment, FORMAT_TAG, tags[FORMAT_TAG])
        except mlflow.exceptions.MlflowException as problem:
            if not explain_denial(problem.message):
                raise
            what = f"the tracking server does not let {user_name()} write the records of {self.study}"
            remedy = "ask whoever runs it for EDIT permission on its experiment, or give another --store"
            raise StoreError(what, remedy) from problem

    def _watch(self, claim: dict[str, Any]) -> None:
        until = time.monotonic() + SILENCE
        while time.monotonic() < until:
            time.sleep(1.0)
            now = self._read()
            if now is None:
                return
            if now != claim:
                raise LeaseTaken(now["who"])

    def _repeat(self) -> None:
        while not self._over.wait(BEAT):
            with contextlib.suppress(Exception):  # a store that is away is away for every other driver too
                self._confirm()

    def _confirm(self) -> None:
        with self._confirming:
            claim = self._read()
            if claim and claim["token"] != self.token:
                first, self.overtaken = not self.overtaken, claim["who"]
                if first:
                    self.on_lost(self.overtaken)
                raise LeaseTaken(self.overtaken)
            self._write()

    def _write(self) -> None:
        self.count += 1
        claim = {
            "who": f"process {os.getpid()} on {socket.gethostname()}",
            "storage": self.storage,
            "token": self.token,
            "beat": self.count,
            "at": time.strftime("%Y-%m-%d %H:%M:%S %z"),
        }
        asked = time.monotonic()
        self.client.set_experiment_tag(self.experiment, TAG, json.dumps(claim))
        self._confirmed = asked

    def _read(self) -> dict[str, Any] | None:
        """The claim in the tag; None for an empty or malformed tag."""
        return _claim(self.client.get_experiment(self.experiment).tags)

    def _left_by_dead_driver(self, claim: dict[str, Any]) -> bool:
        """True for a driver on this host with this storage: it held the file lock that this driver holds now."""
        same_host = claim["who"].endswith(f" on {socket.gethostname()}")
        return same_host and claim["storage"] == self.storage


def recorded_driver(store: Store, study: str) -> str | None:
    """The driver that claims the study in the records, and the time of the claim. A killed driver leaves its claim."""
    claim = _claim(store.client.get_experiment(store.require_experiment(study)).tags)
    return f"{claim['who']}, seen at {claim.get('at', 'an unknown time')}" if claim else None


def _claim(tags: Mapping[str, str]) -> dict[str, Any] | None:
    """The claim in the tags of an experiment; None for an empty or malformed tag."""
    text = tags.get(TAG, "")
    try:
        claim = json.loads(text) if text else None
        return claim if claim and {"who", "storage", "token", "beat"} <= claim.keys() else None
    except DAMAGE:
        return None
