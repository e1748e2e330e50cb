"""What machine this is, in words: a record says on what its seconds were taken."""

import os
import platform
from functools import cache
from pathlib import Path


@cache
def machine() -> str:
    """The processor, how many threads it runs, and the main memory; what is not to be had is left out."""
    parts = [_processor(), f"{os.cpu_count() or 1} threads", _memory()]
    return ", ".join(part for part in parts if part)


@cache
def gpus() -> str:
    """The GPUs that torch sees, equal ones counted; empty without any."""
    import torch

    if not torch.cuda.is_available():
        return ""
    names = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
    return ", ".join(f"{names.count(name)} x {name}" for name in dict.fromkeys(names))


def used(gpu: bool) -> str:
    """What a trial is trained on: the GPU that its worker was given, else the processor."""
    import torch

    if gpu and torch.cuda.is_available():
        return torch.cuda.get_device_name(torch.cuda.current_device())
    return machine()


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    named = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(named, platform.machine())


def _memory() -> str:
    try:
        size = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError):
        return ""
    return f"{size / 2**30:.0f} GiB"
