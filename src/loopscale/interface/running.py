"""Run a study, and read the answer back from its records."""

import shlex
import signal
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from loopscale.core.visible import last_line, tell, visible
from loopscale.errors import BudgetError, RunError, StorageError
from loopscale.interface import types
from loopscale.interface.foreign_errors import with_loopscale_errors
from loopscale.interface.notices import Notice, send_notice
from loopscale.records.stores.base import Store
from loopscale.records.stores.opening import open_store
from loopscale.redaction import redacted_command

WITHOUT_ANSWER = ("failed", "lost", "diverged", "out_of_memory")


@dataclass(frozen=True)
class Problem:
    """Trials that ended the same way for the same reason."""

    outcome: str
    reason: str
    trials: tuple[str, ...]


@dataclass(frozen=True)
class RunSummary:
    """The end of a run: trials by outcome, the answer of the study, and the use of its budget."""

    outcomes: Mapping[str, int]
    """Number of trials by outcome: tuning trials and replicates."""
    baselines: Mapping[str, int]
    """Number of baselines by outcome."""
    problems: Sequence[Problem]
    findings: "types.Findings"
    spent: "types.Spending"
    ended_early: Sequence[str]
    """What the rules of `stop` have ended, one line each."""

    @cached_property
    def results(self) -> "types.StudyResults":
        """The results of the study, with tables and figures."""
        from loopscale.analysis.notebook import StudyResults

        return StudyResults.of(self.findings.results)

    @property
    def failed(self) -> bool:
        """Whether a trial or a baseline has failed or is lost."""
        return any(
            counts.get(name) for counts in (self.outcomes, self.baselines) for name in ("failed", "lost")
        )

    def __repr__(self) -> str:
        counts = ", ".join(f"{count:,} {name.replace('_', ' ')}" for name, count in self.outcomes.items())
        return visible(f"{self.findings.results.name}: {counts}. {self.findings.sentences[0]}")


@with_loopscale_errors
def run(
    study: "types.Study | str | Path",
    store: Store | str | Path | None = None,
    callbacks: "Sequence[types.Callback] | None" = None,
    *,
    storage: str | Path | None = None,
    workers: int | None = None,
    address: str | None = None,
    weight: float = 1.0,
    rate: float | None = None,
    notice: Callable[[str], None] = tell,
    signals: Sequence[signal.Signals] = (signal.SIGINT,),
) -> RunSummary:
    """Complete a study: start it, resume it, or train the trials that were added to it.

    A finished trial is never trained again. An interrupt raises KeyboardInterrupt within seconds, and loses nothing:
    the next call goes on. At the end, `notify` of the user's configuration gets a notice (see `interface.notices`).

    Parameters
    ----------
    study
        A study, the file of a study, or the name of a study.
    store
        The records: an open store, a folder, or an address. By default $LOOPSCALE_STORE, else $MLFLOW_TRACKING_URI,
        else `.loopscale`.
    callbacks
        See the course of the run. None shows the progress as `progress_display()` does.
    storage
        The folder or bucket for checkpoints. By default the store if it is a folder, else `.loopscale`.
    workers
        Trials at a time. None fills the machine or the cluster.
    address
        A running Ray cluster. None starts Ray on this machine.
    weight
        The study's share of a cluster, relative to the weights of the other studies there.
    rate
        FLOP/s of one trial, for `training.seconds`. None measures the speed at the first run.
    notice
        Receives warnings. By default they go to standard error.
    signals
        Signals of which the first stops the study cleanly while workers run, and raises KeyboardInterrupt. The next one
        has its previous effect. Outside of a program's main thread no signal is caught.

    Raises
    ------
    StudyError, StoreError, ResourcesError, HeldError
        Nothing has run.
    RunError
        The run has ended early: BudgetError, CallbackError, or a fault of the workers or the store.
    KeyboardInterrupt
        A person has stopped the run.
    """
    from loopscale.runner import run as runner
    from loopscale.runner.machine import require_resources
    from loopscale.runner.progress import progress_display
    from loopscale.studies.spec import Study

    loaded = study if isinstance(study, Study) else Study.load(study)
    require_resources(loaded.resources, address)
    _require_sound_nets(loaded)
    place = store if isinstance(store, Store) else open_store(store, storage, create=True)
    seen = [progress_display()] if callbacks is None else callbacks
    caught = partial(_stop_on, signals)
    try:
        conductor = _run(
            loaded, lambda: runner.run(loaded, place, workers, address, seen, weight, notice, rate, caught)
        )
    except RunError as problem:
        event = "budget spent" if isinstance(problem, BudgetError) else "failed"
        send_notice(Notice(event, loaded.name, str(problem)), notice)
        raise
    summary = _summary(place, conductor)
    send_notice(Notice("failed" if summary.failed else "done", loaded.name, repr(summary)), notice)
    return summary


def _require_sound_nets(study: "types.Study") -> None:
    """Count a step of every cell whose model is from a plugin. Counting examines the net. Raises PluginError."""
    from loopscale.training.cost import step_flops

    for corners in study.layout.corners.values():
        for trial in corners:
            if trial.model.plugin:
                step_flops(trial)


@contextmanager
def _stop_on(signals: Sequence[signal.Signals], conductor: "types.Conductor") -> Iterator[None]:
    """Let the first of the signals ask the conductor to stop. A second signal has its previous effect, except SIGHUP.

    The run enters the context after `ray.init`, which installs its own handler of SIGTERM and aborts on the signal. The
    handlers raise nothing, because Ray's core replaces or loses exceptions of a handler.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def stop(number: int, frame: Any) -> None:
        conductor.stopping = True
        # A closed terminal may send SIGHUP twice: from the kernel, and from the shell.
        again = signal.SIG_IGN if number == signal.SIGHUP else previous[signal.Signals(number)]
        signal.signal(number, again)

    previous = {number: signal.getsignal(number) for number in signals}
    if previous.get(signal.SIGHUP) is signal.SIG_IGN:
        del previous[signal.SIGHUP]  # as `nohup` asks
    for number in previous:
        signal.signal(number, stop)
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def _run(study: "types.Study", run: "Callable[[], types.Conductor]") -> "types.Conductor":
    """Run the study. The errors of an early end name the remedy. Raises RunError."""
    try:
        return run()
    except BudgetError as problem:
        words = [word for word in study.words if not word.startswith("--set=budget.")]
        raise BudgetError(f"{problem} and {_resume(study, words)}") from None
    except RunError as problem:
        raise type(problem)(f"{problem}; {_resume(study)}") from problem.__cause__
    except StorageError as problem:
        raise RunError(f"{problem}; {_resume(study)}") from problem


def run_command(words: Sequence[str]) -> str:
    """The command that runs a study, as a shell reads it, without passwords."""
    return redacted_command(map(shlex.quote, ("loopscale", "run", *words)))


def _resume(study: "types.Study", words: Sequence[str] = ()) -> str:
    """The remedy after an early end; `words` are those of the command, by default the study's."""
    if study.path is None:
        return f"another run of {study.name} goes on from here"
    return f"`{run_command(words or study.words)}` goes on from here"


def _summary(store: Store, conductor: "types.Conductor") -> RunSummary:
    """Read the answer back from the records.

    The verdicts of the laws come first. The answer, the open questions and the sentences name these verdicts.
    """
    from loopscale.analysis.laws.law import study_laws
    from loopscale.analysis.recorded.load import load_results

    results = load_results(store, conductor.study.name)
    laws = study_laws(results)

    from loopscale.analysis.answers.findings import study_findings
    from loopscale.records.study_records import Spending

    findings = study_findings(results, laws)
    spent = conductor.meter.spending if conductor.meter else Spending()
    baselines = Counter(job.outcome or job.state for job in conductor.baselines.values())
    problems, ended_early = _problems(results, conductor), conductor.ended_early()
    return RunSummary(conductor.counts(), baselines, problems, findings, spent, ended_early)


def _problems(results: "types.Results", conductor: "types.Conductor") -> list[Problem]:
    """Why trials of the present study have no answer, grouped by reason."""
    jobs = {job.key: job for job in conductor.jobs()}
    details = {trial.trial: trial.detail for trial in results.everything}
    grouped = defaultdict[tuple[str, str], list[str]](list)
    for key, job in jobs.items():
        if job.outcome in WITHOUT_ANSWER:
            reason = _reason(details.get(key) or conductor.reasons.get(key))
            grouped[job.outcome, reason].append(key)
    for key, reason in conductor.reasons.items():
        if key in jobs and jobs[key].outcome == "finished" and reason:
            grouped["not evaluated", _reason(reason)].append(key)
    largest_first = sorted(grouped.items(), key=lambda group: -len(group[1]))
    return [Problem(outcome, reason, tuple(trials)) for (outcome, reason), trials in largest_first]


def _reason(detail: str | None) -> str:
    return last_line(detail or "") or "no reason was given"
