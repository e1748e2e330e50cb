"""A run as MLflow knows it."""

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field

from loopscale.records.model.note import EVALUATE, RUNG, STUDY


@dataclass
class Run:
    """A run of MLflow with the last value of every metric. Times are milliseconds since 1970, 0 for none."""

    id: str
    status: str
    start: int
    end: int
    tags: dict[str, str] = field(default_factory=dict)
    params: dict[str, str] = field(default_factory=dict)
    metrics: dict[str, float] = field(default_factory=dict)
    experiment: str = ""

    @property
    def is_trial(self) -> bool:
        """True for a trial or a baseline; False for the parent run and for runs without a key."""
        return self.tags.get("trial", STUDY) != STUDY

    @property
    def fingerprint(self) -> str:
        """A hash that changes with every note, because a note changes a metric, a tag or the status."""
        text = repr((self.status, self.end, sorted(self.tags.items()), sorted(self.metrics.items())))
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @property
    def curves(self) -> list[str]:
        """Names of the metrics with a history: no settings, no rungs, no values that are logged once."""
        once = (*self.params, "step", "flops")
        return [name for name in self.metrics if name not in once and not name.startswith((RUNG, EVALUATE))]


def parent_among(runs: Iterable[Run]) -> Run | None:
    """The parent run of a study, if it is among the runs."""
    return next((run for run in runs if run.tags.get("role") == STUDY), None)
