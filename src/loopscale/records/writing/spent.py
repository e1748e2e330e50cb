"""What a study has used of its budget, as its parent run says it."""

import json
from dataclasses import dataclass, field

from loopscale.records.model.errors import StoreError
from loopscale.records.model.run import parents
from loopscale.records.stores.store import Store

SPENT = "spent"
"""Tag of the parent run: hours used, and the budget that was in force."""

WORDS = {"gpu_hours": "GPU-hours", "core_hours": "core-hours", "hours": "h of wall clock"}


@dataclass(frozen=True)
class Spending:
    """Hours, by `core_hours`, `gpu_hours` and `hours` (of wall clock, of all drivers together)."""

    used: dict[str, float] = field(default_factory=dict)
    budget: dict[str, float] = field(default_factory=dict)
    """What limits the study, as it was last run; empty without a limit."""

    @property
    def left(self) -> dict[str, float]:
        return {name: max(0.0, limit - self.used.get(name, 0.0)) for name, limit in self.budget.items()}

    def __str__(self) -> str:
        """In words: `1.2 of 4 core-hours (2.8 left), 0.7 h of wall clock`."""
        return ", ".join(self._part(name, word) for name, word in WORDS.items() if name in self.used)

    def _part(self, name: str, word: str) -> str:
        if name not in self.budget:
            return f"{self.used[name]:.3g} {word}"
        return f"{self.used[name]:.3g} of {self.budget[name]:g} {word} ({self.left[name]:.3g} left)"


def spent(store: Store, study: str) -> Spending:
    """What all drivers of the study have used so far; a running one says it ahead by some 15 s.

    Nothing if the study has no records. Raises StoreError.
    """
    experiment = store.find(study)
    found = parents(store, experiment) if experiment else []
    text = found[0].tags.get(SPENT, "{}") if found else "{}"
    try:
        said = json.loads(text)
        used, budget = (
            {str(name): float(hours) for name, hours in said.get(part, {}).items()}
            for part in ("used", "budget")
        )
    except (ValueError, AttributeError, TypeError) as problem:
        what = f"what {study} has used cannot be read from its tag {SPENT!r} ({text[:80]})"
        raise StoreError(
            what, "mend the tag of the parent run, or delete it to count from nothing"
        ) from problem
    return Spending(used, budget)
