"""A trial's share of memory, made a wall: who needs more ends as out_of_memory, instead of starving its neighbours.

Ray's `memory` only decides who is put where, and a share of a GPU is nothing that CUDA knows of.
"""

import resource
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import torch

CONTEXT = 0.5
"""GiB of a GPU that a process takes besides its tensors, and that torch's limit does not count."""
FULL = ("can't allocate memory", "not enough memory", "bad_alloc", "Cannot allocate memory")
"""What torch and its libraries say, none with a type of its own, of a machine that is full."""


def full(problem: Exception) -> bool:
    """Whether memory was refused, of the machine or of a GPU."""
    return isinstance(problem, MemoryError | torch.OutOfMemoryError) or any(
        words in str(problem) for words in FULL
    )


@contextmanager
def confined(memory: float | None, gpu: float) -> Iterator[None]:
    """Within: at most `memory` GiB of main memory for this process, and its share of the GPU that it was given.

    Of main memory, what the process takes before counts too; it is Linux that refuses the rest (RLIMIT_DATA). The
    share of a GPU is torch's to keep, and holds until it is set anew. Raises MemoryError where the process alone is
    too large.
    """
    if 0 < gpu < 1 and torch.cuda.is_available():
        whole = torch.cuda.get_device_properties(0).total_memory / 2**30
        torch.cuda.set_per_process_memory_fraction(max(0.01, gpu - CONTEXT / whole), 0)
    elif gpu and torch.cuda.is_available():
        torch.cuda.set_per_process_memory_fraction(1.0, 0)
    if memory is None or not (began := _began()):
        yield
        return
    data, resident = began
    left = memory * 2**30 - resident
    if left <= 0:
        raise MemoryError(
            f"the process alone takes {resident / 2**30:.2g} GiB of the {memory:g} that a trial may have"
        )
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    most = int(data + left)
    resource.setrlimit(
        resource.RLIMIT_DATA, (most if hard == resource.RLIM_INFINITY else min(most, hard), hard)
    )
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


@cache
def _began() -> tuple[int, int] | None:
    """What this process had mapped for data, and held, before its first trial: bytes. None where nobody knows.

    Asked once, so that every trial of a reused actor gets the same.
    """
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return None
    sizes = {line.split(":")[0]: line.split()[1] for line in lines if line.startswith(("VmData", "VmRSS"))}
    return 1024 * int(sizes["VmData"]), 1024 * int(sizes["VmRSS"])


def kills() -> int:
    """How many processes the kernel of this machine has killed for want of memory since it started."""
    try:
        lines = Path("/proc/vmstat").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), 0)
