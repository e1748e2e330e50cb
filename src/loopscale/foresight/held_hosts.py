"""The hosts that a study holds on a cluster, and the time that it holds them: trials, waits, the tail, idle hosts.

A batch system or a cloud counts the hours of whole hosts, also while a host has no trial. A gang of hosts is held to
the end of the study. A host that comes and goes is held until it has been idle for a while.
"""

import heapq
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

Span = tuple[float, float]


@dataclass(frozen=True)
class HostGroup:
    """Equal hosts of a cluster."""

    count: int
    """The largest number of hosts."""
    cpus: float
    """CPUs of each host, or the part of them that a study gets."""
    gpus: float
    slots: int
    """Trials that fit each host. 0 for a host that runs no trials, such as the host of the driver."""
    least: int
    """Hosts that are held from start to end, with or without trials."""
    idle_seconds: float = 0.0
    """The time without a trial after which one of the other hosts goes."""
    outlives: bool = False
    """True if idle hosts go after `idle_seconds` also at the end of the study. Otherwise they go at its end."""
    started: bool = True
    """True if a submission starts the hosts. False for hosts that run anyway."""


@dataclass(frozen=True)
class CellWork:
    """The trials of a cell: the replicates begin when all tuning trials have ended."""

    tuning: int
    tuning_seconds: float
    """The expected time of one tuning trial, with pruning."""
    replicates: int
    replicate_seconds: float


@dataclass(frozen=True)
class HeldHosts:
    """What a submission holds on a cluster. Spans are for the cheapest and the dearest points."""

    hosts: int
    """The largest number of hosts at a time."""
    hours: Span
    """Wall clock from start to end, with the tail: the time when fewer trials are left than fit."""
    core_hours: Span
    gpu_hours: Span


def held_hosts(
    groups: Sequence[HostGroup],
    cheap: Sequence[CellWork],
    dear: Sequence[CellWork],
    workers: int,
    start: float,
) -> HeldHosts | None:
    """The hosts that a study holds if it runs `workers` trials at a time. None if a submission starts no host.

    Parameters
    ----------
    cheap, dear
        The trials at the cheapest and at the dearest points of the cells.
    start
        Seconds before the first and after the last trial.
    """
    started = [group for group in groups if group.started]
    if not started:
        return None
    (low, low_cores, low_gpus, hosts), (high, high_cores, high_gpus, most) = (
        _held(started, work, workers, start) for work in (cheap, dear)
    )
    return HeldHosts(max(hosts, most), (low, high), (low_cores, high_cores), (low_gpus, high_gpus))


def _held(
    groups: Sequence[HostGroup], work: Sequence[CellWork], workers: int, start: float
) -> tuple[float, float, float, int]:
    """Hours of wall clock, core-hours, GPU-hours, and the number of hosts."""
    hosts = [(group, number < group.least) for group in groups for number in range(group.count)]
    slots = [number for number, (group, _) in enumerate(hosts) for _ in range(group.slots)][:workers]
    ends = schedule(work, max(1, len(slots)))
    last = start + max(ends, default=0.0)
    used = dict[int, float]()
    for number, end in zip(slots, ends, strict=False):
        if end:
            used[number] = max(used.get(number, 0.0), end)
    cores = gpus = 0.0
    count = 0
    for number, (group, always) in enumerate(hosts):
        seconds = last if always else 0.0
        if number in used:
            idle = start + used[number] + group.idle_seconds
            seconds = max(seconds, idle if group.outlives else min(idle, last))
        count += seconds > 0
        cores, gpus = cores + seconds * group.cpus / 3600, gpus + seconds * group.gpus / 3600
    return last / 3600, cores, gpus, count


def schedule(work: Sequence[CellWork], workers: int) -> list[float]:
    """The time at which each of the workers has ended its last trial, in seconds; 0 for a worker without a trial.

    Each worker takes the next trial as soon as it is free. Replicates that may begin go first.
    """
    waiting = deque(
        (cell, each.tuning_seconds, True) for cell, each in enumerate(work) for _ in range(each.tuning)
    )
    replicates = deque[tuple[int, float, bool]]()
    left = [each.tuning for each in work]

    def open_replicates(cell: int) -> None:
        replicates.extend((cell, work[cell].replicate_seconds, False) for _ in range(work[cell].replicates))

    for cell, each in enumerate(work):
        if not each.tuning:
            open_replicates(cell)
    free, running, ends, now = (
        list(range(workers)),
        list[tuple[float, int, int, bool]](),
        [0.0] * workers,
        0.0,
    )
    while waiting or replicates or running:
        while free and (queue := replicates or waiting):
            cell, seconds, tunes = queue.popleft()
            heapq.heappush(running, (now + seconds, heapq.heappop(free), cell, tunes))
        now, worker, cell, tunes = heapq.heappop(running)
        ends[worker] = now
        heapq.heappush(free, worker)
        if tunes:
            left[cell] -= 1
            if not left[cell]:
                open_replicates(cell)
    return ends
