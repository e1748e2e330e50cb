"""Where a study's results come from, as its records say: what its runs are tagged with, and its file."""

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from loopscale.records.model.note import STUDY, STUDY_FILE
from loopscale.records.model.run import Run
from loopscale.records.model.tables import is_trial
from loopscale.records.stores.sources import source
from loopscale.records.stores.store import Store
from loopscale.records.writing.spent import SPENT

VERSION = "version."
UNSAID = "not recorded"
ELSEWHERE = {SPENT, "question", "source", "trial", "role", "study"}
"""Tags of the parent run that a report has in a place of their own."""


@dataclass(frozen=True)
class Origin:
    """Empty where nothing was recorded, as of imported or older studies."""

    tags: dict[str, str] = field(default_factory=dict)
    """Of the parent run: commit, versions, machine and command of the driver that ran last."""
    text: str = ""
    """The study's file."""
    commits: dict[str, int] = field(default_factory=dict)
    """How many trials were begun at each commit, and whether with changes that were not committed."""
    hardware: dict[str, int] = field(default_factory=dict)
    """How many trials and baselines ended on what."""
    hosts: dict[str, int] = field(default_factory=dict)
    seeds: dict[str, int] = field(default_factory=dict)
    """How many trials had each seed."""

    @property
    def versions(self) -> dict[str, str]:
        """By package, python among them."""
        return {
            name.removeprefix(VERSION): said for name, said in sorted(self.tags.items()) if VERSION in name
        }


def origin(store: Store, study: str) -> Origin:
    """One look at all runs of the study; nothing if it has no records. Raises StoreError."""
    experiment = store.find(study)
    runs = source(store).runs(experiment, params=False) if experiment else []
    parent = next((run for run in runs if run.tags.get("role") == STUDY), None)
    trials = [run for run in runs if is_trial(run)]
    trained = [run for run in trials if run.tags.get("role") != "baseline"]
    tags = parent.tags if parent else {}
    return Origin(
        tags={name: said for name, said in tags.items() if name not in ELSEWHERE and "mlflow." not in name},
        text=_text(store, parent.id) if parent else "",
        commits=dict(Counter(map(_commit, trained))),
        hardware=_counted(trials, "hardware"),
        hosts=_counted(trials, "host"),
        seeds=dict(sorted(_counted(trained, "seed").items())),
    )


def _counted(runs: list[Run], tag: str) -> dict[str, int]:
    return dict(Counter(run.tags.get(tag) or UNSAID for run in runs))


def _commit(run: Run) -> str:
    changed = ", with changes that were not committed" * (run.tags.get("git_changed") == "yes")
    return commit + changed if (commit := run.tags.get("git_commit")) else UNSAID


def _text(store: Store, run: str) -> str:
    with TemporaryDirectory(prefix="loopscale-") as folder:
        file = store.artifact(run, STUDY_FILE, Path(folder))
        return file.read_text(encoding="utf-8", errors="replace") if file else ""
