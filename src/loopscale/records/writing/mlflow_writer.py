"""Write notes into MLflow's runs, in the background. All metrics, settings, tags and artifacts reach MLflow here."""

import contextlib
import getpass
import json
import math
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Self

import requests

from loopscale.records.deferred_imports import mlflow, sqlalchemy
from loopscale.records.model import (
    EVALUATE,
    NOT_FINITE,
    STUDY,
    Note,
    decode,
    encode,
    explain_denial,
    safe_tags,
)
from loopscale.records.stores.base import Store
from loopscale.records.writing.driver_lease import DriverLease, LeaseTaken
from loopscale.records.writing.run_account import RunAccount

FIRST_PAUSE, LONGEST_PAUSE = 0.5, 10.0
"""Seconds between tries while the store is away. The pause doubles with each try."""
TOLERANCE = 20.0
"""Seconds of denial before the driver is told. A proxy that restarts denies for a moment."""
DESCRIPTION = "mlflow.note.content"
"""The tag of an experiment that MLflow's UI shows as its description."""
METRICS, TEXTS = 900, 90
"""Metrics, and params or tags, per request. MLflow takes 1,000 and 100."""

WRONG_DATA = (TypeError, ValueError, KeyError, AttributeError, OverflowError)
"""Exceptions for data of another kind than a record has. A retry would raise the same exception."""
DAMAGED_DATABASE = ("no such table", "no such column", "malformed", "not a database")
"""Parts of SQLite's messages for a database that no retry mends."""
MISPLACED = (FileExistsError, NotADirectoryError, IsADirectoryError)
"""Exceptions for a file in the place of a folder of the store, or a folder in that of a file."""
Points = dict[tuple[str, int], tuple[float, int]]
"""Value and time, in ms since 1970, by metric and step."""
LastSteps = dict[str, int]
"""The last written step of each metric. `evaluate/...` is left out, because it may always be written again."""


class Refused(Exception):
    """The store has understood the notes and rejects them. A retry would change nothing."""


class Denied(Exception):
    """The store does not let this user write any more. The notes are correct, and a retry alone does not help."""


class Delivery:
    """A queue and a thread that call `send` with all waiting notes of one run. They know nothing of MLflow.

    The notes of one run arrive in order. Runs are created in the order of their first notes, so that a driver that dies
    leaves no gaps. Notes that cannot be delivered wait in memory and are retried. Refused notes are kept for a message
    at the end. If the store denies writing for a while, `flush` waits no longer.

    `send` raises Refused for wrong notes, and LeaseTaken to end the delivery. After any other exception `send` is
    called again. If `send` raises Denied for longer than `TOLERANCE`, `on_denied` is called once with the reason, from
    the thread of the delivery. The notes are kept and retried all the same.
    """

    def __init__(
        self,
        send: Callable[[list[Note]], None],
        on_denied: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.send, self.on_denied = send, on_denied
        self.fenced = False
        self.denied = ""  # why the store does not let this user write any more
        self.refused: list[tuple[Note, Exception]] = []  # bugs, to be reported at the end
        self.away_since: float | None = None  # seconds since 1970, while the store does not answer
        self.fault = ""
        """What the store answered last, while it takes no notes."""
        self._waiting: dict[str, list[Note]] = {}
        self._singly: set[str] = set()
        self._whole: set[str] = set()
        self._begun: set[str] = set()
        self._changed = threading.Condition()
        self._stop = threading.Event()
        self._sending = 0
        self._thread = threading.Thread(target=self._work, name="records", daemon=True)
        self._thread.start()

    def write(self, note: Note) -> None:
        with self._changed:
            if self.fenced:
                return
            self._waiting.setdefault(note.key, []).append(note)
            self._changed.notify_all()

    def write_whole(self, notes: Sequence[Note]) -> None:
        """Write all notes of one run together. If the store refuses one of them, none is delivered again."""
        with self._changed:
            if self.fenced or not notes:
                return
            self._whole.add(notes[0].key)
            self._waiting.setdefault(notes[0].key, []).extend(notes)
            self._changed.notify_all()

    def flush(self, timeout: float) -> bool:
        """Wait for all notes to be delivered, at most `timeout` seconds; True if they are."""
        with self._changed:
            self._changed.wait_for(lambda: self.denied or not self.backlog, timeout)
            return not self.backlog

    def close(self, timeout: float) -> bool:
        """Deliver the notes within `timeout` seconds, and end. A second call only says whether all were delivered."""
        if self._stop.is_set():
            return not self.backlog
        done = self.flush(timeout)
        self._stop.set()
        with self._changed:
            self._changed.notify_all()
        self._thread.join(5)
        return done

    @property
    def backlog(self) -> int:
        with self._changed:
            return self._sending + sum(map(len, self._waiting.values()))

    def _work(self) -> None:
        pause, denied_since = FIRST_PAUSE, None
        while notes := self._take():
            away = False
            try:
                self.send(notes)
                self._begun.add(notes[0].key)
                self.away_since, self.fault, self.denied, denied_since = None, "", "", None
            except Refused as problem:
                self._refuse(notes, problem)
            except LeaseTaken:
                self._fence()
                return
            except Exception as problem:  # the driver must survive every error of the store
                away = True
                self.away_since, self.fault = self.away_since or time.time(), str(problem)[:200]
                self._put_back(notes)
                denied_since = (denied_since or time.monotonic()) if isinstance(problem, Denied) else None
                if denied_since and time.monotonic() - denied_since >= TOLERANCE:
                    self._deny(str(problem))
            with self._changed:
                self._sending = 0
                self._changed.notify_all()
            if away:
                self._stop.wait(pause)
            pause = min(2 * pause, LONGEST_PAUSE) if away else FIRST_PAUSE

    def _deny(self, reason: str) -> None:
        first, self.denied = not self.denied, reason
        if first:
            self.on_denied(reason)

    def _fence(self) -> None:
        """Drop the waiting notes: the driver that writes the records now reads the checkpoints."""
        with self._changed:
            self.fenced, self._sending = True, 0
            self._waiting.clear()
            self._changed.notify_all()

    def _refuse(self, notes: list[Note], problem: Refused) -> None:
        """From now on send the run's notes one by one, so that one wrong note does not take correct notes with it."""
        if len(notes) == 1 or notes[0].key in self._whole:
            self.refused.append((notes[0], problem))
        else:
            self._singly.add(notes[0].key)
            self._put_back(notes)

    def _take(self) -> list[Note]:
        """All notes of the run that has waited longest; none after `close`."""
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._stop.is_set())
            if self._stop.is_set():
                return []
            key = next(iter(self._waiting))
            notes = self._waiting.pop(key)
            if key in self._singly and notes[1:]:
                self._waiting = {key: notes[1:]} | self._waiting
                notes = notes[:1]
            self._sending = len(notes)
            return notes

    def _put_back(self, notes: list[Note]) -> None:
        """Put notes at the end of the queue, before newer notes of the same run.

        A run without a first delivered note stays before the other such runs: runs are created in order.
        """
        key = notes[0].key
        with self._changed:
            self._sending = 0
            returned = {key: notes + self._waiting.pop(key, [])}
            if key in self._begun:
                self._waiting |= returned
            else:
                begun = {other: waiting for other, waiting in self._waiting.items() if other in self._begun}
                self._waiting = begun | returned | self._waiting


class MlflowWriter(Delivery):
    """Write a study's notes in the background. `write` never waits.

    A metric has one point per step. A step that is not beyond the metric's last step is dropped; only `evaluate/...`
    may be written again, by a later evaluation. MLflow would store nan and infinite values as 0 or 1.8e308, so they
    become tags `not_finite/<metric>`.

    `runs` are the ids of known runs by key. For any other key the run is looked up by its tag. An absent run is
    created as a child of the study's parent run. Once the `lease` is lost, nothing is written. The `account` of the
    runs of a shared store is updated, and its file is renewed now and then. `on_denied` is that of `Delivery`.
    """

    def __init__(
        self,
        store: Store,
        study: str,
        runs: dict[str, str],
        lease: DriverLease | None = None,
        on_denied: Callable[[str], None] = lambda _: None,
        account: RunAccount | None = None,
    ) -> None:
        self.store, self.client, self.study, self.lease = store, store.client, study, lease
        self.account = account
        self._latest = account.latest if account else 0
        self.experiment = store.make_experiment(study)
        self.runs = dict(runs)
        self._unsure, self._settled, self._added = {STUDY}, set[str](), list[str]()
        self._made: dict[str, dict[str, str]] = {}
        """Tags of the runs that this writer has created, by run, until the first notes are written."""
        self._last: dict[str, LastSteps] = {}
        """The last step of each metric, by run."""
        self._equal_ends: dict[frozenset[tuple[str, int]], LastSteps] = {}
        """The last steps of ended runs. Runs with equal last steps share one object, because a driver may have many."""
        self._last_start = 0
        super().__init__(self._send, on_denied)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close(timeout=60)

    def renew_run_file(self) -> None:
        """Renew the file of ended runs, if the store has an account and the runs are many."""
        if self.account and (note := self.account.file_note()):
            self.write(note)

    def _send(self, notes: list[Note]) -> None:
        """Write the notes of one run. After an error, the next call looks up a new run, and writes all notes again."""
        self._added.clear()
        refusal: Refused | None = None
        points: Points = {}
        try:
            with delivery_errors():
                if self.lease:
                    self.lease.ensure_held()
                with self.store.transaction():
                    try:
                        with delivery_errors():
                            points = self._write_notes(notes)
                    except Refused as problem:
                        if notes[0].key in self._whole:
                            raise
                        refusal = problem  # everything before the refusal stays
        except BaseException:
            for key in self._added:  # the end of the transaction may have removed the run
                self._made.pop(self.runs.pop(key), None)
                self._unsure.add(key)
            raise
        if refusal:
            raise refusal
        run = self.runs[notes[0].key]
        self._remember(run, points, ended=any(note.status not in ("", "RUNNING") for note in notes))
        self._settled |= {run} if any(note.params for note in notes) else set()
        self._made.pop(run, None)
        if self.account and self.account.file_is_due:
            self.renew_run_file()

    def _write_notes(self, notes: list[Note]) -> Points:
        """Write artifacts and settings before metrics, then tags, then the status. Returns the new points."""
        run = self._run(notes[0])
        params = {name: value for note in notes for name, value in note.params.items()}
        numbers: dict[str, float] = {}
        if params and run not in self._settled:
            params, numbers = self._new_settings(run, params)
        for path, content in {path: content for note in notes for path, content in note.artifacts}.items():
            if isinstance(content, Path) and not content.is_file():
                raise Refused(f"there is no file {content} to attach as {path}")
            self.store.write_artifact(run, path, content)
        points = {(name, 0): (value, notes[0].at) for name, value in numbers.items()}
        points |= self._new_points(run, notes)
        given, tags = self._made.get(run, {}), _tags(notes)
        new_tags = {name: text for name, text in tags.items() if given.get(name) != text}
        self._log(run, points, {} if run in self._settled else params, new_tags)
        if self.account:
            self.account.update(run, {name: value for (name, _), (value, _) in sorted(points.items())}, tags)
        if notes[0].key == STUDY and (question := tags.get("question")):
            self.client.set_experiment_tag(self.experiment, DESCRIPTION, question)
        if status := next((note for note in reversed(notes) if note.status), None):
            self._set_status(run, status)
        return points

    def _new_points(self, run: str, notes: list[Note]) -> Points:
        """The points that the run lacks. The first value of a step remains."""
        points: Points = {}
        last = self._last.get(run, {})
        for note in notes:
            for name, value in sorted(note.metrics.items()):
                written = note.step <= last.get(name, -1) or (name, note.step) in points
                if math.isfinite(value) and (name.startswith(EVALUATE) or not written):
                    points[name, note.step] = (float(value), note.at)
        return points

    def _remember(self, run: str, points: Points, ended: bool) -> None:
        """Remember the last step of each metric of a run."""
        last = dict(self._last.get(run, {}))
        last |= {name: step for name, step in sorted(points) if not name.startswith(EVALUATE)}
        self._last[run] = self._equal_ends.setdefault(frozenset(last.items()), last) if ended else last

    def _new_settings(self, run: str, params: dict[str, Any]) -> tuple[dict[str, Any], dict[str, float]]:
        """The settings that the run lacks, and the numeric settings that the run lacks as metrics.

        A setting never changes: settings that do not define the trial (how often to report) keep their first value.
        """
        numbers = {name: number for name, value in params.items() if (number := _number(value)) is not None}
        if run in self._made:
            return params, numbers
        data = self.client.get_run(run).data
        return (
            {name: value for name, value in params.items() if name not in data.params},
            {name: number for name, number in numbers.items() if name not in data.metrics},
        )

    def _log(self, run: str, points: Points, params: dict[str, Any], tags: dict[str, str]) -> None:
        """Usually one request. Settings come first and tags last: no outcome is there before its metrics."""
        entities = mlflow.entities
        settings = [entities.Param(name, encode(value)) for name, value in params.items()]
        metrics = [entities.Metric(name, value, at, step) for (name, step), (value, at) in points.items()]
        texts = [entities.RunTag(name, text) for name, text in tags.items()]
        while len(settings) > TEXTS or len(metrics) > METRICS:
            self._log_batch(run, metrics[:METRICS], settings[:TEXTS])
            metrics, settings = metrics[METRICS:], settings[TEXTS:]
        if settings or metrics or texts:
            self._log_batch(run, metrics, settings, texts[:TEXTS])
        for first in range(TEXTS, len(texts), TEXTS):
            self._log_batch(run, tags=texts[first : first + TEXTS])

    def _log_batch(
        self, run: str, metrics: Sequence[Any] = (), params: Sequence[Any] = (), tags: Sequence[Any] = ()
    ) -> None:
        # By default $MLFLOW_ENABLE_ASYNC_LOGGING decides. MLflow then drops errors, and a lost note counts as written.
        self.client.log_batch(run, metrics=metrics, params=params, tags=tags, synchronous=True)

    def _set_status(self, run: str, note: Note) -> None:
        # Not before the latest recorded end: the clock of an earlier driver's machine may have been ahead.
        end = max(note.at, self._latest)
        if note.status != "RUNNING":
            self.client.set_terminated(run, note.status, end_time=end)
        elif run not in self._made:
            self.client.update_run(run, "RUNNING")
        if self.account:
            self.account.set_status(run, note.status, end)

    def _run(self, note: Note) -> str:
        """The note's run, created if it is absent. After a request without an answer the run is looked up first."""
        key = note.key
        if key not in self.runs and key in self._unsure:
            for run in self.client.search_runs([self.experiment], f"tags.trial = '{key}'", max_results=1):
                self._add(key, run)
        if key not in self.runs:
            tags = self._identity(note)
            self._unsure.add(key)
            # Start times are a millisecond apart, so that they give the order of the runs.
            self._last_start = max(note.at, self._last_start + 1)
            run = self.client.create_run(self.experiment, self._last_start, tags, _run_name(note))
            self._add(key, run)
            self._made[run.info.run_id] = tags
        self._unsure.discard(key)
        return self.runs[key]

    def _add(self, key: str, run: "mlflow.entities.Run") -> None:
        self.runs[key] = run.info.run_id
        self._added.append(key)
        if self.account:
            self.account.begin(run.info.run_id, run.info.start_time, run.data.tags)

    def _identity(self, note: Note) -> dict[str, str]:
        """The tags of a new run."""
        tags = {"trial": note.key, "study": self.study, "mlflow.source.name": "loopscale"}
        with contextlib.suppress(KeyError, OSError):  # in containers the user may have no name
            tags["mlflow.user"] = getpass.getuser()
        if note.key == STUDY:
            tags["role"] = STUDY
        else:
            tags["mlflow.parentRunId"] = self._run(Note(STUDY, at=note.at))
        return tags | _tags([note])


@contextlib.contextmanager
def delivery_errors() -> Iterator[None]:
    """Raise Refused or Denied where the store has answered so. Other errors pass, and the notes are sent again."""
    refused, denied = (400, 404, 409, 413, 422), (401, 403)
    try:
        yield
    except mlflow.exceptions.MlflowException as problem:
        # MLflow reports every error of its database as a bad request, even a lost connection.
        cause, errors = problem.__cause__, sqlalchemy.exc
        wrong_data = isinstance(cause, errors.DataError | errors.IntegrityError)
        transient = isinstance(cause, errors.SQLAlchemyError) and not wrong_data
        if any(text in problem.message for text in DAMAGED_DATABASE):
            raise Refused(problem.message.partition("\n")[0]) from problem
        if denial := explain_denial(problem.message, "record"):
            raise Denied(denial) from problem
        if transient or problem.get_http_status_code() not in refused:
            raise
        raise Refused(problem.message) from problem
    except WRONG_DATA as problem:
        if isinstance(problem, requests.RequestException | json.JSONDecodeError):
            raise  # an answer of a proxy, which no client can read
        raise Refused(f"{type(problem).__name__}: {problem}") from problem
    except MISPLACED as problem:
        raise Refused(f"{problem.filename} is in the way ({problem.strerror})") from problem
    except requests.HTTPError as problem:
        status = problem.response.status_code if problem.response is not None else None
        if status in denied:
            raise Denied(explain_denial(f"error code {status}", "record") or str(problem)) from problem
        if status not in refused:
            raise
        raise Refused(str(problem)) from problem


def _run_name(note: Note) -> str:
    """The name in MLflow's list of runs: the cell, and the number or seed of the trial."""
    label, role = note.tags.get("label") or note.key, note.tags.get("role")
    if role == "tuning":
        first = note.tags.get("seed", "0") == "0"
        return f"{label} #{note.tags.get('number')}" + ("" if first else f" seed {note.tags['seed']}")
    return f"{label} seed {note.tags['seed']}" if role == "replicate" and "seed" in note.tags else label


def _tags(notes: list[Note]) -> dict[str, str]:
    tags: dict[str, str] = {}
    for note in notes:
        tags |= {name: str(text) for name, text in note.tags.items()}
        for name, value in note.metrics.items():
            if not math.isfinite(value):
                tags[NOT_FINITE + name] = f"{value} at step {note.step}"
    return safe_tags(tags)


def _number(setting: Any) -> float | None:
    value = decode(encode(setting))
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
