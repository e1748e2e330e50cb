"""Callbacks see the course of a run: its stages, every report of a worker, and every end of a trial."""

from collections.abc import Callable, Sequence
from typing import Protocol

from loopscale.errors import CallbackError
from loopscale.runner.decide.conductor import Conductor
from loopscale.runner.decide.job import Job, Report


class Callback(Protocol):
    """Sees the course of a run. Inherit from this class, and override the methods that you need.

    The driver calls the methods between two decisions, so a slow method delays the study. An exception ends the run as
    Ctrl-C does: no record is lost, and `run` raises CallbackError. Baselines are jobs with the role `baseline`.
    """

    def on_stage(self, stage: str) -> None:
        """The run waits for `stage`, such as `the start of Ray`. The text is empty after the first report."""

    def on_start(self, conductor: Conductor) -> None:
        """The records are read. The conductor knows all cells and trials of the study."""

    def on_report(self, job: Job, report: Report) -> None:
        """A worker has reported. `report.progress` has the step and the metrics of each new validation."""

    def on_trial_end(self, job: Job, report: Report) -> None:
        """A trial has ended. `job.outcome` says how, `job.reported_error` is its error, `report.detail` the reason."""

    def on_end(self) -> None:
        """The run has ended, in any way."""


class Callbacks:
    """Calls several callbacks. After the first exception no callback is called, except for `on_end`."""

    def __init__(self, callbacks: Sequence[Callback]) -> None:
        self._callbacks, self._conductor = tuple(callbacks), None
        self._stage = ""
        self.failure: tuple[str, Exception] | None = None
        """The method that raised the first exception, and the exception."""

    def stage(self, stage: str) -> None:
        if stage != self._stage:
            self._stage = stage
            self._call("on_stage", lambda callback: callback.on_stage(stage))

    def start(self, conductor: Conductor) -> None:
        self._conductor = conductor
        self._call("on_start", lambda callback: callback.on_start(conductor))

    def reported(self, job: Job, report: Report) -> None:
        self.stage("")
        self._call("on_report", lambda callback: callback.on_report(job, report))

    def ended(self, job: Job, report: Report) -> None:
        self._call("on_trial_end", lambda callback: callback.on_trial_end(job, report))

    def end(self) -> None:
        """Call `on_end` of every callback, also after a failure: a display restores its terminal there."""
        for callback in self._callbacks:
            try:
                callback.on_end()
            except Exception as problem:
                self._fail(callback, "on_end", problem)

    def raise_failure(self) -> None:
        """Raises CallbackError if a callback has raised an exception."""
        if self.failure:
            where, problem = self.failure
            text = " ".join(str(problem).split())
            raise CallbackError(f"{where} raised {type(problem).__name__}: {text}") from problem

    def _call(self, method: str, call: Callable[[Callback], None]) -> None:
        for callback in self._callbacks if self.failure is None else ():
            try:
                call(callback)
            except Exception as problem:
                # Tune would catch the exception and go on. The conductor stops the study instead.
                self._fail(callback, method, problem)
                return

    def _fail(self, callback: Callback, method: str, problem: Exception) -> None:
        self.failure = self.failure or (f"the callback {type(callback).__name__}.{method}", problem)
        if self._conductor:
            self._conductor.stopping = True
