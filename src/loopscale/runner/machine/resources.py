"""Resources of a trial on this machine: whether they exist, how many trials fit, and a limit on memory.

Ray waits without a message for resources that never come, so the resources are checked before Ray starts. Ray's
`memory` only decides where a trial runs, and CUDA does not know shares of a GPU. `memory_limit` enforces both limits:
a larger trial ends as out_of_memory and does not disturb its neighbours.
"""

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import torch

from loopscale.studies.schema import Resources

CUDA_CONTEXT_GIB = 0.5
"""GPU memory of a process besides its tensors. torch's limit does not count this memory."""
OUT_OF_MEMORY_TEXTS = ("can't allocate memory", "not enough memory", "bad_alloc", "Cannot allocate memory")
"""Texts of out-of-memory errors of torch and its libraries that have no exception type of their own."""


class InsufficientResources(RuntimeError):
    """This machine lacks the resources of one trial."""


def require_resources(resources: Resources, address: str | None) -> None:
    """Raises InsufficientResources if this machine lacks the resources of one trial. A cluster may grow and passes."""
    if address:
        return
    cpus, gpus = len(os.sched_getaffinity(0)), torch.cuda.device_count()
    if resources.gpu > gpus:
        raise InsufficientResources(
            f"a trial needs {resources.gpu:g} GPU and this machine has {gpus or 'none'}; "
            "give the --address of a cluster with GPUs, or train on the CPU with --set resources.gpu=0"
        )
    if resources.cpu > cpus:
        raise InsufficientResources(
            f"a trial needs {resources.cpu:g} CPUs and this machine has {cpus}; "
            f"give the --address of a larger cluster, or --set resources.cpu={cpus}"
        )
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    if resources.memory and resources.memory > memory:
        raise InsufficientResources(
            f"a trial needs {resources.memory:g} GiB of memory and this machine has {memory:.3g}; "
            f"give the --address of a larger cluster, or a smaller resources.memory"
        )


def local_workers(resources: Resources) -> int:
    """Number of trials that fit on the CPUs of this process; at least 1."""
    return max(1, int(len(os.sched_getaffinity(0)) / resources.cpu))


def is_out_of_memory(error: Exception) -> bool:
    """Whether the error says that main memory or GPU memory is full."""
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or any(
        text in str(error) for text in OUT_OF_MEMORY_TEXTS
    )


@contextmanager
def memory_limit(memory: float | None, gpu: float) -> Iterator[None]:
    """Limit the memory of this process inside the context.

    Parameters
    ----------
    memory
        GiB of main memory, enforced by Linux (RLIMIT_DATA). Memory that the process holds at its start counts.
        None for no limit.
    gpu
        Share of the worker's GPU, enforced by torch until the next call. 0 without a GPU.

    Raises
    ------
    MemoryError
        If the process itself needs more than `memory`.
    """
    if 0 < gpu < 1 and torch.cuda.is_available():
        total = torch.cuda.get_device_properties(0).total_memory / 2**30
        torch.cuda.set_per_process_memory_fraction(max(0.01, gpu - CUDA_CONTEXT_GIB / total), 0)
    elif gpu and torch.cuda.is_available():
        torch.cuda.set_per_process_memory_fraction(1.0, 0)
    if memory is None or not (initial := _initial_memory()):
        yield
        return
    data, resident = initial
    left = memory * 2**30 - resident
    if left <= 0:
        raise MemoryError(
            f"the process alone needs {resident / 2**30:.2g} GiB of the {memory:g} GiB of a trial's memory"
        )
    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    limit = int(data + left)
    limit = limit if hard == resource.RLIM_INFINITY else min(limit, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (limit, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


@cache
def _initial_memory() -> tuple[int, int] | None:
    """Bytes that this process had mapped for data, and held, before its first trial. None if unknown.

    The value is cached, so every trial of a reused actor has the same limit.
    """
    try:
        lines = Path("/proc/self/status").read_text().splitlines()
    except OSError:
        return None
    sizes = {line.split(":")[0]: line.split()[1] for line in lines if line.startswith(("VmData", "VmRSS"))}
    return 1024 * int(sizes["VmData"]), 1024 * int(sizes["VmRSS"])


def count_memory_kills() -> int:
    """Number of processes that this machine's kernel has killed for lack of memory since it started."""
    try:
        lines = Path("/proc/vmstat").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), 0)
