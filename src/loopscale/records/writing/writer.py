"""Notes, translated into MLflow's runs: the only thing that writes metrics, settings, tags and artifacts."""

import contextlib
import getpass
import math
import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

from loopscale.records.model.note import EVALUATE, NOT_FINITE, STUDY, Note, decode, encode
from loopscale.records.stores.store import Store
from loopscale.records.writing.claim import Claim, Taken
from loopscale.records.writing.delivery import Delivery, Fenced, Refused
from loopscale.records.writing.ended_runs import FEW, FILE, Ended
from loopscale.records.writing.refusals import refusals

METRICS, TEXTS = 900, 90
"""Metrics, and params or tags, in one request; MLflow takes 1,000 and 100."""


class Writer:
    """Writes a study's notes in the background; `write` never waits.

    `runs` are the runs that the study has already, by key (`read.load`); others are looked for by their tag
    and then created, as children of the study's one parent run if `parent`. A note for the key "study" is for
    that one. A metric has one point a step: what is not beyond the last step written here is dropped, but for
    `evaluate/...`, which a later evaluation may say again. Values that are nan or infinite become a tag
    `not_finite/<metric>`, since MLflow would store 0 or 1.8e308. Once a `claim` is lost nothing is written. `shut` is
    called where we may not write any more (see `Delivery`). What has `ended`, if given, is kept up to date, and its
    file renewed now and then.
    """

    def __init__(
        self,
        store: Store,
        study: str,
        runs: dict[str, str],
        parent: bool = True,
        claim: Claim | None = None,
        shut: Callable[[str], None] = lambda _: None,
        ended: Ended | None = None,
    ) -> None:
        self.client, self.study, self.parent, self.claim = store.client, study, parent, claim
        self.ended, self._latest = ended, ended.latest if ended else 0
        self.experiment = store.experiment(study)
        self._runs = dict(runs)
        self._unsure, self._made, self._settled = {STUDY}, set[str](), set[str]()
        self._last: dict[tuple[str, str], int] = {}
        self._begun = 0
        self._delivery = Delivery(self._send, shut)
        self.flush, self.close = self._delivery.flush, self._delivery.close

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close(timeout=60)

    @property
    def runs(self) -> dict[str, str]:
        """The id of every run by its key, as far as they are known."""
        return dict(self._runs)

    @property
    def backlog(self) -> int:
        """How many notes wait."""
        return self._delivery.backlog

    @property
    def refused(self) -> list[tuple[Note, Exception]]:
        """Notes that the store did not want, with its reason: bugs, to be said at the end."""
        return self._delivery.refused

    @property
    def away_since(self) -> float | None:
        """Since when (seconds since 1970) the store has not answered; `None` while it does."""
        return self._delivery.away_since

    @property
    def denied(self) -> str:
        """Why the store takes nothing more from us: we may not write. Empty while it does."""
        return self._delivery.denied

    def write(self, note: Note) -> None:
        """Take a note; it is written when the store can be reached, after all earlier ones of its key."""
        self._delivery.write(note)

    def remember(self) -> None:
        """Have the file of what has `ended` renewed, if that is worth its while."""
        if self.ended and len(self.ended.runs) >= FEW:
            self.write(Note(STUDY, artifacts=((FILE, self.ended.pack()),)))

    def _send(self, notes: list[Note]) -> None:
        with refusals():
            try:
                if self.claim:
                    self.claim.hold()
            except Taken:
                raise Fenced from None
            run = self._run(notes[0])
            params = {name: value for note in notes for name, value in note.params.items()}
            numbers: dict[str, float] = {}
            if params and run not in self._settled:
                params, numbers = self._settings(run, params)
            for path, content in {
                path: content for note in notes for path, content in note.artifacts
            }.items():
                self._upload(run, path, content)
            points = {(name, 0): (value, notes[0].at) for name, value in numbers.items()} | self._points(
                run, notes
            )
            self._log(run, points, {} if run in self._settled else params, _tags(notes))
            if self.ended:
                last = {name: value for (name, _), (value, _) in sorted(points.items())}
                self.ended.write(run, last, _tags(notes))
            self._last |= {(run, name): step for name, step in sorted(points)}
            self._settled |= {run} if params else set()
            if status := next((note for note in reversed(notes) if note.status), None):
                self._set_status(run, status)
            self._made.discard(run)
            if self.ended and self.ended.due:
                self.remember()

    def _points(self, run: str, notes: list[Note]) -> dict[tuple[str, int], tuple[float, int]]:
        """Value and time by metric and step; the first that was said of a step holds."""
        points: dict[tuple[str, int], tuple[float, int]] = {}
        for note in notes:
            for name, value in sorted(note.metrics.items()):
                said = note.step <= self._last.get((run, name), -1) or (name, note.step) in points
                if math.isfinite(value) and (name.startswith(EVALUATE) or not said):
                    points[name, note.step] = (float(value), note.at)
        return points

    def _settings(self, run: str, params: dict[str, Any]) -> tuple[dict[str, Any], dict[str, float]]:
        """The settings that the run has not got, and the numbers among them that are not there as metrics.

        A setting is never changed: where it does not say what is trained (how often to report), the first one
        stays.
        """
        numbers = {name: number for name, value in params.items() if (number := _number(value)) is not None}
        if run in self._made:
            return params, numbers
        data = self.client.get_run(run).data
        return (
            {name: value for name, value in params.items() if name not in data.params},
            {name: number for name, number in numbers.items() if name not in data.metrics},
        )

    def _log(
        self,
        run: str,
        points: dict[tuple[str, int], tuple[float, int]],
        params: dict[str, Any],
        tags: dict[str, str],
    ) -> None:
        """One request as a rule. Settings come first and tags last: no outcome without what led to it."""
        from mlflow.entities import Metric, Param, RunTag

        settings = [Param(name, encode(value)) for name, value in params.items()]
        metrics = [Metric(name, value, at, step) for (name, step), (value, at) in points.items()]
        texts = [RunTag(name, text) for name, text in tags.items()]
        while len(settings) > TEXTS or len(metrics) > METRICS:
            self.client.log_batch(run, metrics=metrics[:METRICS], params=settings[:TEXTS])
            metrics, settings = metrics[METRICS:], settings[TEXTS:]
        if settings or metrics or texts:
            self.client.log_batch(run, metrics=metrics, params=settings, tags=texts[:TEXTS])
        for first in range(TEXTS, len(texts), TEXTS):
            self.client.log_batch(run, tags=texts[first : first + TEXTS])

    def _upload(self, run: str, path: str, content: bytes | Path) -> None:
        folder, name = os.path.split(path)
        with tempfile.TemporaryDirectory(prefix="loopscale-") as temporary:
            local = Path(temporary, name)
            if isinstance(content, bytes):
                local.write_bytes(content)
            elif content.is_file():
                local.symlink_to(content.absolute())
            else:
                raise Refused(f"there is no file {content} to attach as {path}")
            self.client.log_artifact(run, str(local), folder or None)

    def _set_status(self, run: str, note: Note) -> None:
        # Not before what was there already: this clock may be behind that of a machine that drove the study before.
        at = max(note.at, self._latest)
        if note.status != "RUNNING":
            self.client.set_terminated(run, note.status, end_time=at)
        elif run not in self._made:
            self.client.update_run(run, "RUNNING")
        if self.ended:
            self.ended.turn(run, note.status, at)

    def _run(self, note: Note) -> str:
        """The note's run, created if it is not there. After a doubtful answer it is looked for first."""
        key = note.key
        if key not in self._runs and key in self._unsure:
            found = self.client.search_runs([self.experiment], f"tags.trial = '{key}'", max_results=1)
            self._runs |= {run.data.tags["trial"]: run.info.run_id for run in found}
            for run in found:
                self._known(run)
        if key not in self._runs:
            tags = self._identity(note)
            self._unsure.add(key)
            # A millisecond apart, so that the order in which runs were begun can be read off their times.
            self._begun = max(note.at, self._begun + 1)
            run = self.client.create_run(self.experiment, self._begun, tags, _run_name(note))
            self._runs[key] = run.info.run_id
            self._made.add(run.info.run_id)
            self._known(run)
        self._unsure.discard(key)
        return self._runs[key]

    def _known(self, run: Any) -> None:
        """Begin to account for a run that MLflow has just told us of."""
        if self.ended:
            self.ended.begin(run.info.run_id, run.info.start_time, run.data.tags)

    def _identity(self, note: Note) -> dict[str, str]:
        tags = {"trial": note.key, "study": self.study, "mlflow.source.name": "loopscale"}
        with contextlib.suppress(KeyError, OSError):  # a user without a name, as containers have
            tags["mlflow.user"] = getpass.getuser()
        if note.key == STUDY:
            tags["role"] = STUDY
        elif self.parent:
            tags["mlflow.parentRunId"] = self._run(Note(STUDY, at=note.at))
        return tags | _tags([note])


def _run_name(note: Note) -> str:
    """What a person sees in a list of runs: the cell, and which of its trials this is."""
    label, role = note.tags.get("label") or note.key, note.tags.get("role")
    if role == "tuning":
        return f"{label} #{note.tags.get('number')}"
    return f"{label} seed {note.tags['seed']}" if role == "replicate" and "seed" in note.tags else label


def _tags(notes: list[Note]) -> dict[str, str]:
    tags: dict[str, str] = {}
    for note in notes:
        tags |= {name: str(text) for name, text in note.tags.items()}
        for name, value in note.metrics.items():
            if not math.isfinite(value):
                tags[NOT_FINITE + name] = f"{value} at step {note.step}"
    return tags


def _number(setting: Any) -> float | None:
    value = decode(encode(setting))
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None
