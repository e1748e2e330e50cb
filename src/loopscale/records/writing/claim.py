"""Which driver writes a study's records, where no lock of an operating system reaches: on a server that hosts share.

The holder says so in a tag of the study's experiment, and says it again every few seconds. Nobody's clock is trusted:
whoever finds another's word watches whether it changes. A holder that was cut off finds the other's word when it comes
back, and writes no more (a fencing token, as in Kleppmann's "How to do distributed locking", 2016).
"""

import contextlib
import json
import os
import socket
import threading
import time
import uuid
from collections.abc import Callable
from typing import Any

from loopscale.records.model.errors import StoreError, forbidden, who
from loopscale.records.stores.store import FORMAT_TAG, Store

TAG = "loopscale.driver"
BEAT = 10.0
"""Seconds from one word to the next."""
SILENCE = 35.0
"""Seconds without a new word after which a holder is taken for dead."""
SETTLE = 1.5
"""Seconds in which two that claim at once see each other: the later word holds."""


class Taken(Exception):
    """Another driver holds the study; its text says who."""


class Claim:
    """One driver's word. `lost` is called once, from a thread, when another driver has taken the study over."""

    def __init__(self, store: Store, study: str, lost: Callable[[str], None]) -> None:
        self.client, self.experiment = store.client, store.experiment(study)
        self.storage, self.study, self.lost = str(store.storage.absolute()), study, lost
        self.token, self.count = uuid.uuid4().hex, 0
        self.overtaken = ""
        self._confirmed = 0.0
        self._saying = threading.Lock()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._repeat, name="claim", daemon=True)

    def take(self, notice: Callable[[str], None]) -> None:
        """Hold the study from now on. Waits where a holder died without letting go.

        Raises Taken, and StoreError where the server does not let us write.
        """
        self._check()
        if (found := self._read()) and not self._dead(found):
            notice(
                f"{found['who']} was the last to run {self.study}; {SILENCE:.0f} s will show whether it still does"
            )
            self._watch(found)
        try:
            self._say()
        except Exception:  # the database lets one of two insert the tag: then there is another's word to read
            if not self._read():
                raise
        time.sleep(SETTLE)
        if (now := self._read()) and now["token"] != self.token:
            raise Taken(now["who"])
        self._thread.start()

    def hold(self) -> None:
        """Return if the study is still ours, as far as anybody can know; ask if we have not for a while.

        Raises Taken, and whatever the store raises while it is away.
        """
        if self.overtaken or time.monotonic() - self._confirmed > 2 * BEAT:
            self._confirm()

    def release(self) -> None:
        self._over.set()
        if self._thread.is_alive():
            self._thread.join(2 * BEAT)
        with contextlib.suppress(Exception):  # whoever comes next will wait to see that we are gone
            if (found := self._read()) and found["token"] == self.token:
                self.client.set_experiment_tag(self.experiment, TAG, "")

    def _check(self) -> None:
        """Say what is said already: only a server knows who may write. Whoever may not need not wait for another."""
        from mlflow.exceptions import MlflowException

        tags = self.client.get_experiment(self.experiment).tags
        try:
            self.client.set_experiment_tag(self.experiment, FORMAT_TAG, tags[FORMAT_TAG])
        except MlflowException as problem:
            if not forbidden(problem.message):
                raise
            what = f"the tracking server does not let {who()} write the records of {self.study}"
            remedy = "ask whoever runs it for EDIT permission on its experiment, or give another --store"
            raise StoreError(what, remedy) from problem

    def _watch(self, found: dict[str, Any]) -> None:
        until = time.monotonic() + SILENCE
        while time.monotonic() < until:
            time.sleep(1.0)
            now = self._read()
            if now is None:
                return
            if now != found:
                raise Taken(now["who"])

    def _repeat(self) -> None:
        while not self._over.wait(BEAT):
            with contextlib.suppress(
                Exception
            ):  # the store is away: so it is for everybody who could take over
                self._confirm()

    def _confirm(self) -> None:
        with self._saying:
            found = self._read()
            if found and found["token"] != self.token:
                first, self.overtaken = not self.overtaken, found["who"]
                if first:
                    self.lost(self.overtaken)
                raise Taken(self.overtaken)
            self._say()

    def _say(self) -> None:
        self.count += 1
        word = {
            "who": f"process {os.getpid()} on {socket.gethostname()}",
            "storage": self.storage,
            "token": self.token,
            "beat": self.count,
            "at": time.strftime("%Y-%m-%d %H:%M:%S %z"),
        }
        asked = time.monotonic()
        self.client.set_experiment_tag(self.experiment, TAG, json.dumps(word))
        self._confirmed = asked

    def _read(self) -> dict[str, Any] | None:
        return _word(self.client.get_experiment(self.experiment).tags.get(TAG, ""))

    def _dead(self, found: dict[str, Any]) -> bool:
        """A holder on this host with this storage held the very lock that we have now: it is gone."""
        here = found["who"].endswith(f" on {socket.gethostname()}")
        return here and found["storage"] == self.storage


def holder(store: Store, study: str) -> str | None:
    """Who said last that it runs the study, and when; it may have died since."""
    experiment = store.client.get_experiment_by_name(study)
    found = experiment and _word(experiment.tags.get(TAG, ""))
    return f"{found['who']} ({found['at']})" if found else None


def _word(text: str) -> dict[str, Any] | None:
    """What a tag says; None for an empty one, and for one that is not of ours."""
    try:
        found = json.loads(text) if text else None
        return found if found and {"who", "storage", "token", "beat"} <= found.keys() else None
    except (ValueError, AttributeError):
        return None
