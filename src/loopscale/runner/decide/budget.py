"""The budget of a running study.

A study is charged for the CPUs and GPUs of all workers that it holds, from start to end of each worker. Retries, lost
workers and idle workers count. The sum is a tag of the parent run (`spent`), written **ahead of time**: it holds the
use until the next note. A killed driver has therefore charged at most `NOTE_SECONDS + LINGER_SECONDS` too much, and
nothing too little, unless the store was away.
"""

import json
from collections.abc import Callable, Mapping

from loopscale.records.model import STUDY, Note
from loopscale.records.study_records import SPENT, Spending
from loopscale.studies.schema import Budget, Resources

STOP_SECONDS = 15.0
"""Longest clean stop, with all workers held (3 to 10 s were seen)."""
MIN_WORK_SECONDS = 15.0
"""A worker starts only if the budget covers this time besides the stop. Its imports alone take 5 s."""
NOTE_SECONDS = 10.0
"""Time between two notes of the use."""
LINGER_SECONDS = 5.0
"""Time that workers may outlive a killed driver (2.3 s were seen)."""
HOUR = 3600.0


class BudgetSpent(BaseException):
    """The budget is spent and the study stops. Not an `Exception`, which Tune would catch."""


class Meter:
    """Measures the use of a study, and says when the study must stop. Call `update` about ten times a second.

    `resources` are those of one trial. `clock` returns seconds. `spent` are the hours that earlier drivers have used,
    by the names of the budget.
    """

    def __init__(
        self,
        budget: Budget,
        resources: Resources,
        write: Callable[[Note], None],
        clock: Callable[[], float],
        spent: Mapping[str, float] | None = None,
    ) -> None:
        self.limits: dict[str, float] = budget.model_dump(exclude_none=True)
        self.resources, self._write, self._clock = resources, write, clock
        self._used = {name: (spent or {}).get(name, 0.0) for name in Budget.model_fields}
        self._updated_at, self._held, self._assigned = clock(), 0, 0
        self._note_due, self._charged_ahead = self._updated_at, 0

    @property
    def used(self) -> dict[str, float]:
        """Hours used until now, by the names of the budget."""
        return self._used_after(self._clock() - self._updated_at, self._held)

    @property
    def spending(self) -> Spending:
        """Hours used and hours left. GPU-hours are left out while they are 0."""
        used = {name: hours for name, hours in self.used.items() if hours or name != "gpu_hours"}
        return Spending(used, self.limits)

    @property
    def must_stop(self) -> bool:
        """Whether the budget that is left only suffices for a clean stop of all assigned workers."""
        return self._assigned > 0 and self._would_exceed(STOP_SECONDS, self._assigned)

    def affords_another(self, assigned: int) -> bool:
        """Whether one more worker, besides `assigned` workers, could do useful work."""
        return not self._would_exceed(STOP_SECONDS + MIN_WORK_SECONDS, assigned + 1)

    def update(self, held: int, assigned: int | None = None) -> None:
        """Charge the time since the last update.

        `held` workers hold resources now. `assigned` trials have been handed out, including trials that wait.
        """
        now = self._clock()
        # The moment of a change since the last update is unknown. The higher number is charged.
        self._used = self._used_after(now - self._updated_at, max(self._held, held))
        self._updated_at, self._held, self._assigned = now, held, max(held, assigned or 0)
        if now >= self._note_due or self._assigned > self._charged_ahead:
            self._note(NOTE_SECONDS + LINGER_SECONDS)

    def close(self) -> None:
        """All workers have been released: charge the time until now, and record the true use."""
        self.update(0)
        self._note(0.0)

    def _note(self, ahead: float) -> None:
        self._note_due, self._charged_ahead = self._updated_at + NOTE_SECONDS, self._assigned if ahead else 0
        used = self._used_after(ahead, self._assigned)
        self._write(Note(STUDY, tags={SPENT: json.dumps({"used": used, "budget": self.limits})}))

    def _used_after(self, seconds: float, workers: int) -> dict[str, float]:
        hours = max(0.0, seconds) / HOUR
        rates = {
            "core_hours": workers * self.resources.cpu,
            "gpu_hours": workers * self.resources.gpu,
            "hours": 1,
        }
        return {name: used + hours * rates[name] for name, used in self._used.items()}

    def _would_exceed(self, seconds: float, workers: int) -> bool:
        if not self.limits:
            return False
        elapsed = self._clock() - self._updated_at
        used = self._used_after(elapsed + seconds, max(workers, self._held))
        return any(used[name] >= limit for name, limit in self.limits.items())
