"""The part of this machine that this process may use: CPUs and memory. And the trials that fit on a machine.

Containers and batch systems limit a process by control groups of Linux. The number of CPUs and the size of the memory
stay those of the whole machine.
"""

import math
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path, PurePosixPath

PROCESS = Path("/proc/self")
UNLIMITED_BYTES = 2**62
"""Version 1 of control groups writes a number near 2^63 where version 2 writes `max`."""


def usable_cpus(process: Path = PROCESS) -> float:
    """CPUs that this process may use: those of its affinity, and at most the quota of its control groups.

    A quota may be a part of a CPU. `process` is the folder of the process in /proc.
    """
    cpus = float(len(os.sched_getaffinity(0)))
    for folder in _groups(process, "cpu"):
        with suppress(OSError, ValueError):  # not a number: no limit
            quota, period = (folder / "cpu.max").read_text().split()
            cpus = min(cpus, int(quota) / int(period))
        with suppress(OSError, ValueError):
            quota, period = ((folder / f"cpu.cfs_{name}_us").read_text() for name in ("quota", "period"))
            if int(quota) > 0:
                cpus = min(cpus, int(quota) / int(period))
    return cpus


def main_memory() -> float:
    """GiB of the whole machine's main memory; 0 if unknown."""
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    except (ValueError, OSError):
        return 0.0


def usable_memory(process: Path = PROCESS) -> float:
    """GiB of main memory that this process may use; 0 if unknown."""
    memory = main_memory() * 2**30 or math.inf
    for folder in _groups(process, "memory"):
        for name in ("memory.max", "memory.limit_in_bytes"):
            with suppress(OSError, ValueError):
                if (limit := int((folder / name).read_text())) < UNLIMITED_BYTES:
                    memory = min(memory, float(limit))
    return memory / 2**30 if math.isfinite(memory) else 0.0


def trials_per_machine(
    trial: Mapping[str, float], cpus: float, gpus: float, memory: float | None = None
) -> int:
    """The number of trials that fit one machine.

    Parameters
    ----------
    trial
        Resources of one trial: cpu, gpu, memory (GiB).
    memory
        GiB of the machine; None if memory is not counted.
    """
    has = {"cpu": cpus, "gpu": gpus, "memory": math.inf if memory is None else memory}
    # Each GPU is shared on its own: with 0.4 of a GPU for a trial, two trials fit each GPU.
    share = trial.get("gpu", 0.0)
    if 0 < share < 1:
        has["gpu"], trial = math.floor(1 / share + 1e-9) * math.floor(gpus), {**trial, "gpu": 1.0}
    counts = [has[name] / amount for name, amount in trial.items() if name in has and amount > 0]
    return math.floor(min(counts, default=cpus) + 1e-9)


def _groups(process: Path, controller: str) -> Iterator[Path]:
    """The folders of the control groups that limit the process: its own group, and every group above.

    /proc/self/cgroup has lines `number:controllers:path`; version 2 has one line `0::path`. /proc/self/mountinfo tells
    where the folders of a hierarchy are mounted, and which path the mount shows.
    """
    try:
        lines = (process / "cgroup").read_text().splitlines()
        mounts = [line.split(" ") for line in (process / "mountinfo").read_text().splitlines()]
    except OSError:
        return
    for line in lines:
        number, controllers, path = line.split(":", 2)
        unified = (number, controllers) == ("0", "")
        if not unified and controller not in controllers.split(","):
            continue
        for mount in mounts:
            kind, options = mount[mount.index("-") + 1], mount[-1].split(",")
            if kind == "cgroup2" if unified else kind == "cgroup" and controller in options:
                yield from _upwards(Path(mount[4]), PurePosixPath(mount[3]), PurePosixPath(path))


def _upwards(mounted: Path, root: PurePosixPath, path: PurePosixPath) -> Iterator[Path]:
    """The folders from the group `path` up to the mount, which shows `root`.

    In a container the path may lie outside of the mount. Then the mount is the container's own group.
    """
    below = (
        path.relative_to(root) if path.is_relative_to(root) and ".." not in path.parts else PurePosixPath()
    )
    folder = mounted / below
    yield folder
    while folder != mounted:
        folder = folder.parent
        yield folder
