"""`loopscale logs STUDY --trial KEY`: the validations of one trial, and what the trial has printed.

Both come from the records and the store of checkpoints, so they outlive the trial's host.
"""

import math
import sys
import time
from dataclasses import replace

from loopscale.cli.output import format_duration, say, tell
from loopscale.core.visible import visible
from loopscale.interface import types

RUNNING = "running"
"""The outcome of a trial that has begun and not ended."""
POLL_SECONDS = 3.0
"""Time between two looks at a trial that is followed."""


def show_trial_log(store: "types.Store", study: str, beginning: str, follow: bool) -> None:
    """Print the log of the study's trial whose key begins so. With `follow`, print news until the trial is over.

    Raises NoRecords, and StoreError without exactly one such trial.
    """
    from loopscale.notation.files import recorded_name
    from loopscale.records.study_records import trial_named

    name = recorded_name(study)
    record = trial_named(store, name, beginning)
    where = f", cell {visible(record.tags['label'])}" if record.tags.get("label") else ""
    say(f"trial {record.key} of {name}: {record.role} {record.number}{where}")
    log = TrialLog(store, store.require_experiment(name), record.key)
    while not log.show_news() and follow:
        time.sleep(POLL_SECONDS)
    log.show_end()


class TrialLog:
    """The log of one trial, printed piece by piece."""

    def __init__(self, store: "types.Store", experiment: str, key: str) -> None:
        self.store, self.experiment, self.key = store, experiment, key
        self.run = self._read_run()
        self._step = -1
        """The step of the last validation that was printed."""
        self._printed = ""

    def show_news(self) -> bool:
        """Print the validations and the output since the last call. Returns whether the trial is over."""
        self.run = self._read_run()
        self._show_validations()
        self._show_output()
        return self.run.tags.get("outcome", RUNNING) != RUNNING

    def show_end(self) -> None:
        """Print where the trial runs, or how the trial ended."""
        tags = self.run.tags
        host = f" on {visible(tags['host'])}" if tags.get("host") else ""
        if not self._printed:
            say("it has printed nothing")
        if (outcome := tags.get("outcome", RUNNING)) != RUNNING:
            detail = f": {visible(tags['detail']).strip()}" if tags.get("detail") else ""
            say(f"{outcome.replace('_', ' ')}{host}{detail}")
        elif reason := tags.get("lost_reason"):
            say(f"not over{host}; an earlier worker died: {visible(reason).strip()}")
        else:
            say(f"not over{host}")

    def _read_run(self) -> "types.Run":
        """Raises NoRecords if somebody has deleted the study meanwhile."""
        from loopscale.records.model import NoRecords

        if self.store.read_only:
            runs = self.store.runs(self.experiment, params=False)
        else:
            runs = self.store.search([self.experiment], f"tags.trial = '{self.key}'")
        if (run := next((run for run in runs if run.tags.get("trial") == self.key), None)) is None:
            what = f"{self.store.name} has no records of the trial {self.key} any more"
            raise NoRecords(
                what, "`loopscale delete` or `rename` has moved the study, or the store is another one"
            )
        return run

    def _show_validations(self) -> None:
        asked = [replace(self.run, params={}, metrics={"error": 0.0, "seconds": 0.0})]
        found: dict[int, dict[str, float]] = {}
        for _, step, metric, value in self.store.histories(asked):
            if step > self._step:
                found.setdefault(step, {})[metric] = value
        for step in sorted(found):
            error, seconds = (found[step].get(name, math.nan) for name in ("error", "seconds"))
            took = f" after {format_duration(seconds)}" if math.isfinite(seconds) else ""
            say(f"step {step:,}: error {error:.4g}{took}")
            self._step = step

    def _show_output(self) -> None:
        from loopscale.training.output import read_output
        from loopscale.training.storage import StorageUnavailable

        try:
            text = read_output(self.store.checkpoints, self.key)
        except StorageUnavailable as problem:
            tell(f"note: this machine cannot read what the trial has printed: {problem}")
            return
        news = text.removeprefix(self._printed)
        if news:
            sys.stdout.write("".join(f"{visible(line)}\n" for line in news.splitlines()))
            sys.stdout.flush()
        self._printed = text
