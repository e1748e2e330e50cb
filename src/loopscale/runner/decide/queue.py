"""What may be started next, found without looking at everything: a study has up to 10,000 trials and more.

Three heaps, in the order in which a study's jobs are listed. Nothing is ever taken out but at the top: what has
changed meanwhile is passed over when it gets there.
"""

import heapq
from collections.abc import Callable, Iterable, Sequence

from loopscale.runner.decide.cell_run import CellRun
from loopscale.runner.decide.job import Job

Entry = tuple[int, int, Job]
"""The number of the job's cell (-1 for baselines), its place there, and the job."""


class Queue:
    """Must hear of every change of a job's state, by `turned`."""

    def __init__(
        self, baselines: Iterable[Job], benches: Sequence[CellRun], outdated: Callable[[Job], bool]
    ) -> None:
        """`outdated` says of a job whether it is to be evaluated again; a job that is not will never be."""
        self.benches, self._outdated = benches, outdated
        self._number = {bench.cell.key: number for number, bench in enumerate(benches)}
        self._waiting: list[Entry] = []
        self._old: list[Entry] = []
        self._open = [(len(bench.jobs), number) for number, bench in enumerate(benches)]
        """Cells that may have something fresh, those that have begun the fewest trials first."""
        heapq.heapify(self._open)
        self._awake = set(range(len(benches)))
        for job in [*baselines, *(job for bench in benches for job in bench.jobs.values())]:
            self.turned(job)

    def turned(self, job: Job) -> None:
        """Take notice of the job's state."""
        number = self._number.get(job.cell, -1)
        if job.state == "waiting":
            heapq.heappush(self._waiting, (number, job.place, job))
        elif job.state == "over" and self._outdated(job):
            heapq.heappush(self._old, (number, job.place, job))
        if number < 0:
            return
        bench = self.benches[number]
        bench.turned(job)
        if job.state == "over" and number not in self._awake:
            self._awake.add(number)
            heapq.heappush(self._open, (len(bench.jobs), number))

    def next(self) -> Job | None:
        """A job that waits, else a fresh one of the cell that has begun the fewest, else one that is outdated.

        Whoever takes it changes its state, and says so.
        """
        return (
            self._first(self._waiting, lambda job: job.state == "waiting") or self._fresh() or self._stale()
        )

    def _fresh(self) -> Job | None:
        """A cell that has nothing fresh has nothing until one of its trials ends: until then it is not asked."""
        while self._open:
            number = self._open[0][1]
            if job := self.benches[number].fresh():
                self.turned(job)
                heapq.heapreplace(self._open, (len(self.benches[number].jobs), number))
                return job
            heapq.heappop(self._open)
            self._awake.discard(number)
        return None

    def _stale(self) -> Job | None:
        return self._first(self._old, self._outdated)

    def _first(self, heap: list[Entry], still: Callable[[Job], bool]) -> Job | None:
        """The first of which it is still true. It stays in the heap, and is passed over once it is taken."""
        while heap:
            if still(heap[0][2]):
                return heap[0][2]
            heapq.heappop(heap)
        return None
