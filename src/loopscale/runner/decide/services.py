"""What the conductor asks of the process that drives the study: curves, checkpoints, callbacks, and the cluster."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Protocol

from loopscale.runner.decide.job import Job, Report
from loopscale.runner.decide.shares import Share


class Observer(Protocol):
    """Sees every report, and every end of a job. Raises nothing."""

    def reported(self, job: Job, report: Report) -> None: ...

    def ended(self, job: Job, report: Report) -> None: ...


def _no_curve(_: str) -> bytes | None:
    return None


def _no_checkpoint(_: str) -> int:
    return 0


@dataclass
class DriverServices:
    """The driver's side of a running study. The defaults suit a study without records, on one machine."""

    read_curve: Callable[[str], bytes | None] = _no_curve
    """Returns the recorded curve of a trial by its key."""
    checkpoint_step: Callable[[str], int] = _no_checkpoint
    """Returns the step of a trial's checkpoint, 0 without a checkpoint."""
    commit_tags: Mapping[str, str] = field(default_factory=dict[str, str])
    """Tags of the git commit, for each trial that starts."""
    observer: Observer | None = None
    """Sees the reports."""
    share: Share = field(default_factory=Share)
    """The study's share of a cluster. The connection to the cluster updates the share while the study runs."""
    live_hosts: Callable[[], Collection[str]] = tuple
    """Returns the hosts of the cluster that can hold a trial. The connection to the cluster sets this function."""
