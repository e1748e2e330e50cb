"""Whose fault it is that a worker died: a lost host is not the trial's, which must not use up its retries for it."""

from typing import Literal

Fault = Literal["worker", "host", "memory"]

LOST = "its host is not alive any more"
"""Put to a reason by whoever has looked."""

HOSTS = (
    LOST,
    "node has died",  # ActorDiedError: the head has marked the host dead
    "NodeDiedError",
    "LocalRayletDiedError",
    "ActorUnavailableError",  # nothing comes through to the host, and nobody knows yet whether it lives
    "StorageUnavailable",  # its disk is full, or its way to the bucket is cut
    "StorageDenied",  # its disk is read-only, or it has no key of the bucket's
    "StorageMissing",  # it has not mounted the folder
    "No space left on device",
    "OutOfDiskError",
)
"""What Ray 2.60 and our own storage say when it is the machine, anywhere in the text of the error."""


OUT_OF_MEMORY = "the kernel has killed processes of this machine for want of memory"
"""Added to a reason by who sees it: Ray only knows that a process is gone."""
MEMORY = ("running low on memory", "OutOfMemoryError", OUT_OF_MEMORY)
"""What Ray says whose memory monitor has killed a worker. That some deaths "may" be due to it proves nothing."""


def fault(reason: str) -> Fault:
    """Read off what Ray gives as the reason of an actor's end; when in doubt it is the worker's."""
    if any(words in reason for words in MEMORY):
        return "memory"
    return "host" if any(words in reason for words in HOSTS) else "worker"
