"""What a study has used, and the end of it before its budget is exceeded.

Charged is what the study holds, not what it makes of it: the CPUs and GPUs of every worker from the moment they are
given to it until they are let go, whatever becomes of the trial; so retries, lost workers and idle ones count. The sum
lies on the parent run (tag `spent`), **ahead of time**: it holds what will have been used by the next note. A driver
that is killed has therefore charged at most `INTERVAL + LINGER` seconds too much, and nothing too little; but for
what a store that was away has not been told.
"""

import json
import time
from collections.abc import Callable, Mapping

from loopscale.records.model.note import STUDY, Note
from loopscale.records.study_run import SPENT, Spending
from loopscale.studies.parts import Budget, Resources

MARGIN = 15.0
"""Seconds that a clean stop may take, with all workers held (3 to 10 were seen)."""
STARTUP = 15.0
"""Seconds that a worker must have left beside, to be worth starting: it needs 5 to import."""
INTERVAL = 10.0
"""Seconds between two notes of what was used."""
LINGER = 5.0
"""Seconds that workers may outlive a driver that was killed (2.3 were seen)."""
HOUR = 3600.0


class Spent(BaseException):
    """So little of the budget is left that the study stops. Not an `Exception`, which Tune would catch."""


class Meter:
    """Told ten times a second how many workers are held, it says when to stop.

    `spent` is what earlier drivers have used, in hours, as `records.study_run` has it; `clock` tells seconds.
    """

    def __init__(
        self,
        budget: Budget,
        resources: Resources,
        write: Callable[[Note], None],
        spent: Mapping[str, float] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.limits: dict[str, float] = budget.model_dump(exclude_none=True)
        self.resources, self._write, self._clock = resources, write, clock
        self._used = {name: (spent or {}).get(name, 0.0) for name in Budget.model_fields}
        self._at, self._held, self._given = clock(), 0, 0
        self._due, self._promised = self._at, 0

    @property
    def used(self) -> dict[str, float]:
        """Hours until now, by the names of the budget."""
        return self._after(self._clock() - self._at, self._held)

    @property
    def spending(self) -> Spending:
        """What was used and what is left. GPU-hours only where there are any to speak of."""
        used = {name: hours for name, hours in self.used.items() if hours or name != "gpu_hours"}
        return Spending(used, self.limits)

    @property
    def over(self) -> bool:
        """Whether to stop now: a clean stop of everything that was given out fits just so."""
        return self._given > 0 and self._exceeds(MARGIN, self._given)

    def room(self, given: int) -> bool:
        """Whether one more worker, beside `given`, could do something worth its start."""
        return not self._exceeds(MARGIN + STARTUP, given + 1)

    def turn(self, held: int, given: int | None = None) -> None:
        """Now `held` workers have their resources; `given` trials have been handed out, waiting ones too."""
        now = self._clock()
        # Of a change since the last turn it is not known when: what is dearer is charged.
        self._used = self._after(now - self._at, max(self._held, held))
        self._at, self._held, self._given = now, held, max(held, given or 0)
        if now >= self._due or self._given > self._promised:
            self._record(INTERVAL + LINGER)

    def close(self) -> None:
        """Everything has been let go: charge until now, and say what was really used."""
        self.turn(0)
        self._record(0.0)

    def _record(self, ahead: float) -> None:
        self._due, self._promised = self._at + INTERVAL, self._given if ahead else 0
        used = self._after(ahead, self._given)
        self._write(Note(STUDY, tags={SPENT: json.dumps({"used": used, "budget": self.limits})}))

    def _after(self, seconds: float, workers: int) -> dict[str, float]:
        hours = max(0.0, seconds) / HOUR
        more = {
            "core_hours": workers * self.resources.cpu,
            "gpu_hours": workers * self.resources.gpu,
            "hours": 1,
        }
        return {name: used + hours * more[name] for name, used in self._used.items()}

    def _exceeds(self, seconds: float, workers: int) -> bool:
        if not self.limits:
            return False
        used = self._after(self._clock() - self._at + seconds, max(workers, self._held))
        return any(used[name] >= limit for name, limit in self.limits.items())
