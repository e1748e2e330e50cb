"""What a study's own run records: the origin of the results, and the hours that the study has spent."""

import json
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from loopscale.records.model.errors import StoreError
from loopscale.records.model.note import STUDY_FILE
from loopscale.records.model.run import Run, parent_among
from loopscale.records.stores.base import Store

SPENT = "spent"
"""Tag of the parent run: hours used, and the budget in force."""
VERSION = "version."
"""Prefix of the tags with versions of packages."""
NOT_RECORDED = "not recorded"
SHOWN_ELSEWHERE = {SPENT, "question", "source", "trial", "role", "study"}
"""Tags of the parent run that a report shows in other places."""
UNITS = {"gpu_hours": "GPU-hours", "core_hours": "core-hours", "hours": "h of wall clock"}


@dataclass(frozen=True)
class Spending:
    """Hours by `core_hours`, `gpu_hours` and `hours`. Hours are of wall clock, summed over all drivers."""

    used: dict[str, float] = field(default_factory=dict)
    budget: dict[str, float] = field(default_factory=dict)
    """The limits of the study at its last run; empty without limits."""

    @property
    def left(self) -> dict[str, float]:
        return {name: max(0.0, limit - self.used.get(name, 0.0)) for name, limit in self.budget.items()}

    def __str__(self) -> str:
        """`1.2 of 4 core-hours (2.8 left), 0.7 h of wall clock`."""
        return ", ".join(self._part(name, unit) for name, unit in UNITS.items() if name in self.used)

    def _part(self, name: str, unit: str) -> str:
        if name not in self.budget:
            return f"{self.used[name]:.3g} {unit}"
        return f"{self.used[name]:.3g} of {self.budget[name]:g} {unit} ({self.left[name]:.3g} left)"


def spending_of(store: Store, study: str) -> Spending:
    """The spending of all drivers so far; nothing if the study has no records. Raises StoreError.

    A running driver charges up to 15 s in advance.
    """
    parent = store.parent_run(study)
    text = parent.tags.get(SPENT, "{}") if parent else "{}"
    try:
        document = json.loads(text)
        used, budget = (
            {str(name): float(hours) for name, hours in document.get(part, {}).items()}
            for part in ("used", "budget")
        )
    except (ValueError, AttributeError, TypeError) as problem:
        what = f"what {study} has used cannot be read from its tag {SPENT!r} ({text[:80]})"
        remedy = "mend the tag of the parent run, or delete it to count from nothing"
        raise StoreError(what, remedy) from problem
    return Spending(used, budget)


@dataclass(frozen=True)
class Origin:
    """Where a study's results come from. Imported and older studies may lack parts; these are empty."""

    tags: dict[str, str] = field(default_factory=dict)
    """Tags of the parent run: commit, versions, machine and command of the last driver."""
    text: str = ""
    """The study's file."""
    commits: dict[str, int] = field(default_factory=dict)
    """The number of trials begun at each commit, with and without uncommitted changes."""
    hardware: dict[str, int] = field(default_factory=dict)
    """The number of trials and baselines that ended on each kind of hardware."""
    hosts: dict[str, int] = field(default_factory=dict)
    seeds: dict[str, int] = field(default_factory=dict)
    """The number of trials with each seed."""

    @property
    def versions(self) -> dict[str, str]:
        """The versions of Python and of packages, by name."""
        return {
            name.removeprefix(VERSION): text for name, text in sorted(self.tags.items()) if VERSION in name
        }


def origin_of(store: Store, study: str) -> Origin:
    """Read the origin from all runs of the study. Raises StoreError."""
    experiment = store.find_experiment(study)
    runs = store.runs(experiment, params=False) if experiment else []
    parent = parent_among(runs)
    trials = [run for run in runs if run.is_trial]
    trained = [run for run in trials if run.tags.get("role") != "baseline"]
    tags = parent.tags if parent else {}
    file = store.read_artifact(parent.id, STUDY_FILE) if parent else None
    return Origin(
        tags={name: tags[name] for name in tags if name not in SHOWN_ELSEWHERE and "mlflow." not in name},
        text=(file or b"").decode(errors="replace"),
        commits=dict(Counter(map(_commit, trained))),
        hardware=_counts(trials, "hardware"),
        hosts=_counts(trials, "host"),
        seeds=dict(sorted(_counts(trained, "seed").items())),
    )


def _counts(runs: Iterable[Run], tag: str) -> dict[str, int]:
    return dict(Counter(run.tags.get(tag) or NOT_RECORDED for run in runs))


def _commit(run: Run) -> str:
    changed = ", with changes that were not committed" * (run.tags.get("git_changed") == "yes")
    return commit + changed if (commit := run.tags.get("git_commit")) else NOT_RECORDED
