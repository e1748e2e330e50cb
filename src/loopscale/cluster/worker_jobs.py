"""The worker jobs of an elastic study on Slurm: how many to start, and which of them leave.

    python -m loopscale.cluster.worker_jobs --address ADDRESS --queue FILE --most 8 --slots 2 --idle 300

The program runs beside the driver, perhaps in a container without Slurm's commands. So the program prints one line for
each action, and a shell does the action. The line `look N` asks for the queue: the shell writes the file, with `look N`
in the first line. Trials that wait for a host are Ray's pending placement groups.
"""

import argparse
import logging
import math
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from pathlib import Path

HOST_PREFIX = "w-"
"""The name of a worker job's host in Ray is this prefix and the number of the job."""
FAILED_STARTS = 5
"""The study stops after this number of worker jobs in a row that end before they join Ray."""
PAUSE_SECONDS = 5.0
ENDED_STATES = frozenset(
    {"COMPLETING", "COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "PREEMPTED"}
)
"""States of a job that has ended, or is about to end."""


@dataclass(frozen=True)
class WorkerJob:
    """A line of squeue."""

    id: str
    """The name for scancel, such as 12_3."""
    number: str
    """The number of the job, in the name of its host in Ray."""
    state: str
    host: str


@dataclass(frozen=True)
class Queue:
    """The worker jobs that have not ended, and the hosts that an administrator drains."""

    jobs: tuple[WorkerJob, ...]
    drained: frozenset[str] = frozenset()

    @classmethod
    def parse(cls, lines: Sequence[str]) -> "Queue":
        jobs, drained = list[WorkerJob](), set[str]()
        for kind, *words in (line.split("|") for line in lines):
            if kind == "job" and len(words) == 4 and words[2] not in ENDED_STATES:
                jobs.append(WorkerJob(*words))
            elif kind == "drained":
                drained.add(words[0])
        return cls(tuple(jobs), frozenset(drained))


@dataclass(frozen=True)
class RayState:
    """Ray's view: the trials on each live worker host by the number of its job, and the trials that wait."""

    hosts: Mapping[str, int]
    waiting: int


class WorkerJobs:
    """Decides about worker jobs. `most` limits their number, and each host runs `slots` trials."""

    def __init__(self, most: int, slots: int, idle_seconds: float) -> None:
        self.most, self.slots, self.idle_seconds = most, max(1, slots), idle_seconds
        self.joined, self.ending = set[str](), set[str]()
        """Numbers of jobs whose host has joined Ray; ids of jobs that were told to end."""
        self.known = dict[str, WorkerJob]()
        self.idle_since = dict[str, float]()
        self.failed_starts = 0

    def decide(self, queue: Queue, ray: RayState, now: float) -> list[str]:
        """The actions, each a line: `start COUNT`, `leave ID`, `cancel ID`, `problem TEXT`."""
        self._count_failed_starts(queue, ray.hosts.keys())
        if self.failed_starts >= FAILED_STARTS:
            return [
                f"problem {FAILED_STARTS} worker jobs ended before they joined Ray; see their logs worker-*.log"
            ]
        actions = [*self._lost_and_drained(queue, ray), *self._idle(queue, ray, now)]
        staying = [job for job in queue.jobs if job.id not in self.ending]
        free = sum(
            self.slots if job.number not in self.joined else max(0, self.slots - ray.hosts.get(job.number, 0))
            for job in staying
        )
        count = min(self.most - len(staying), math.ceil((ray.waiting - free) / self.slots))
        return actions + ([f"start {count}"] if count > 0 else [])

    def _count_failed_starts(self, queue: Queue, alive: Set[str]) -> None:
        if alive - self.joined:
            self.failed_starts = 0
        self.joined |= alive
        present = {job.id for job in queue.jobs}
        for id in self.known.keys() - present:
            job = self.known.pop(id)
            began = job.state == "RUNNING"
            self.failed_starts += began and job.number not in self.joined and id not in self.ending
        self.known |= {job.id: job for job in queue.jobs}

    def _lost_and_drained(self, queue: Queue, ray: RayState) -> Iterator[str]:
        """End the jobs whose host has died, and let the jobs on drained hosts leave."""
        for job in queue.jobs:
            if job.id in self.ending or job.state != "RUNNING":
                continue
            if job.number in self.joined and job.number not in ray.hosts:
                self.ending.add(job.id)
                yield f"cancel {job.id}"
            elif job.host in queue.drained:
                self.ending.add(job.id)
                yield f"leave {job.id}"

    def _idle(self, queue: Queue, ray: RayState, now: float) -> Iterator[str]:
        """Let hosts leave that have had no trial for a while, and remove jobs that wait for nothing."""
        for job in queue.jobs:
            needed = ray.waiting > 0 or ray.hosts.get(job.number, 0) > 0
            if needed or job.id in self.ending:
                self.idle_since.pop(job.id, None)
            elif now - self.idle_since.setdefault(job.id, now) >= self.idle_seconds:
                self.ending.add(job.id)
                yield f"leave {job.id}" if job.state == "RUNNING" else f"cancel {job.id}"


def ray_state() -> RayState:
    """The state of the connected Ray."""
    import ray  # here, because a look-up of a cluster's kind imports this module
    from ray.util import placement_group_table

    names = {
        node["NodeID"]: str(node["NodeName"]).removeprefix(HOST_PREFIX)
        for node in ray.nodes()
        if node["Alive"] and str(node["NodeName"]).startswith(HOST_PREFIX)
    }
    trials, waiting = Counter[str](), 0
    for group in placement_group_table().values():
        if group["state"] in ("PENDING", "RESCHEDULING"):
            waiting += 1
        elif group["state"] in ("CREATED", "PREPARED"):
            trials.update(names[node] for node in set(group["bundles_to_node_id"].values()) if node in names)
    return RayState({name: trials[name] for name in names.values()}, waiting)


def read_queue(file: Path, look: int, pause: float = 0.2) -> Queue:
    """The queue of a look. Waits until the shell has written the look."""
    while True:
        lines = file.read_text().splitlines() if file.exists() else []
        if lines and lines[0] == f"look {look}":
            return Queue.parse(lines[1:])
        time.sleep(pause)


def tend(
    jobs: WorkerJobs, file: Path, say: Callable[[str], None], state: Callable[[], RayState] = ray_state
) -> None:
    """Decide again and again, until a problem ends the study."""
    look = 0
    while True:
        actions = jobs.decide(read_queue(file, look), state(), time.monotonic())
        for action in actions:
            say(action)
            if action.startswith("problem"):
                return
        time.sleep(PAUSE_SECONDS)
        look += 1
        say(f"look {look}")


def main(words: Sequence[str]) -> int:
    import ray  # here, because a look-up of a cluster's kind imports this module

    parser = argparse.ArgumentParser(description=__doc__)
    for option in ("--address", "--queue"):
        parser.add_argument(option, required=True)
    for option in ("--most", "--slots"):
        parser.add_argument(option, type=int, required=True)
    parser.add_argument("--idle", type=float, required=True, help="seconds")
    options = parser.parse_args(words)
    ray.init(options.address, logging_level=logging.ERROR, log_to_driver=False)
    jobs = WorkerJobs(options.most, options.slots, options.idle)
    tend(jobs, Path(options.queue), lambda line: print(line, flush=True))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
