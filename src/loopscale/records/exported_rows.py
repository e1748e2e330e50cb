"""Checks of exported rows before an import writes anything. Anybody may have made the rows.

The limits are those of MLflow 3.17, so that no store refuses a part of a trial.
"""

import json
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any
from urllib.parse import quote

from loopscale.core.files import LONGEST_STUDY_NAME
from loopscale.records.deferred_imports import dataset, pa
from loopscale.records.model import (
    DAMAGE,
    OVER,
    RUNG,
    STEPS_FACTOR,
    STUDY_FILE,
    STUDY_JSON,
    StoreError,
    parse_description,
)

LONGEST_KEY, LONGEST_SETTING, LONGEST_TAG = 250, 6000, 8000
"""Characters of the name of a tag, setting or metric, of a setting, and of a tag."""
TRIAL_KEY = re.compile(r"[\w-]{1,100}", re.ASCII)
COLUMN_NAME = re.compile(rf"[/\w.\- :]{{1,{LONGEST_KEY}}}")
"""Names of tags, settings and metrics."""
STATUSES = ("FINISHED", "FAILED", "KILLED", "RUNNING", None)
"""MLflow's statuses of a trial with an outcome. A driver may have died between the outcome and the status."""
LARGEST_METRIC = 2**1023
"""The largest integer that becomes a number of a database."""
NO_DATABASE_TEXT = re.compile(r"[\x00\ud800-\udfff]")
"""The null character, which PostgreSQL refuses, and halves of characters, which no encoding has."""
LATEST = 2**53
"""Steps and times are below: larger numbers are not exact in JSON."""
WHOLE = re.compile(r"[0-9]{1,18}", re.ASCII)
"""The text of a count, which fits in a column."""
LARGEST_NUMBER = 2**31
"""Loops and points of a curve are below."""
FIRST = {"loop": 1, "point": 0}
"""The first loop and the first point of a curve."""
Row = Mapping[str, Any]


def gather_history(rows: Iterable[Row], trials: Iterable[Row]) -> dict[str, dict[int, dict[str, float]]]:
    """The metrics of the histories by run and step. StoreError for a wrong step, or a metric that a step has twice."""
    keys = {row["run"]: row["trial"] for row in trials}
    histories = defaultdict[str, dict[int, dict[str, float]]](dict)
    for row in rows:
        place = _place(keys.get(row["run"], row["run"]))
        _check_number(row["step"], "a step of its history", place)
        metrics = histories[row["run"]].setdefault(row["step"], {})
        if row["metric"] in metrics:
            raise _fault(place, f"has the metric {str(row['metric'])[:40]!r} of step {row['step']} twice")
        metrics[row["metric"]] = row["value"]
    return histories


def check_study(study: Row, trials: Sequence[Row], histories: Mapping[str, Mapping[int, Row]]) -> None:
    """StoreError for the first fault of a study or of its trials. `histories` has metrics by run and step."""
    name = study["study"]
    check_name(name)
    _check_run(study, f"the exported study {name}")
    _check_files(study, f"the exported study {name}")
    seen = set[str]()
    for row in trials:
        key = row["trial"]
        if not isinstance(key, str) or not TRIAL_KEY.fullmatch(key):
            raise _fault(f"a trial of {name}", f"has the key {str(key)[:40]!r}, and a key is a hash")
        place = f"the exported trial {key}"
        if key in seen:
            raise _fault(place, f"stands twice in {name}")
        seen.add(key)
        _check_run(row, place)
        if not isinstance(row["run"], str):
            raise _fault(place, "has no run")
        if row["end"] is None:
            raise _fault(place, "has no end")
        if row["status"] not in STATUSES:
            raise _fault(place, f"has the status {str(row['status'])[:40]!r}")
        tags = json.loads(row["tags"])
        outcome = tags.get("outcome")
        if outcome not in OVER:
            raise _fault(place, f"has the outcome {str(outcome)[:40]!r}, and an exported trial has ended")
        _check_identity(tags, place)
        metrics = _object(row, "metrics", place)
        _check_numbers(metrics, place)
        _check_progress(metrics, place)
        for values in histories.get(row["run"], {}).values():
            _check_numbers(values, place)


def check_owners(
    studies: Sequence[Row], trials: Sequence[Row], histories: Mapping[str, Mapping[int, Row]]
) -> None:
    """StoreError for rows that an import would leave out, or would count twice."""
    counts = Counter(row["study"] for row in studies)
    if twice := next((name for name, count in counts.items() if count > 1), None):
        raise _fault(f"the exported study {twice}", "stands twice")
    owners = dict[str, str]()
    for row in trials:
        place, study = _place(row["trial"]), row["study"]
        if study not in counts:
            what = f"belongs to the study {str(study)[:40]!r}, which is not in studies.parquet"
            raise _fault(place, what)
        if (owner := owners.setdefault(row["run"], row["trial"])) != row["trial"]:
            raise _fault(place, f"has the run of the trial {owner}")
    if strays := histories.keys() - owners.keys():
        what = f"is of the run {str(min(strays, key=str))[:40]!r}, which no exported trial has"
        raise _fault("a row of the exported history", what)


def check_curves(curves: "pa.Table", trials: Iterable[Row]) -> None:
    """StoreError for rows of curves that no reader could use, that no trial owns, or that stand twice."""
    keys = {row["run"]: row["trial"] for row in trials}
    for row in curves.group_by(["run", "trial"]).aggregate([]).to_pylist():
        if row["run"] not in keys or keys[row["run"]] != row["trial"]:
            trial, run = (repr(str(row[name])[:40]) for name in ("trial", "run"))
            what = f"is of the trial {trial} and the run {run}, which no exported trial has"
            raise _fault("a row of the exported curves", what)
    for column, first in FIRST.items():
        for value in curves[column].unique().to_pylist():
            if not isinstance(value, int) or not first <= value < LARGEST_NUMBER:
                raise _fault("a row of the exported curves", f"has {value} as its {column}")
    rows = curves.group_by(["trial", "run", *FIRST]).aggregate([([], "count_all")])
    twice = rows.filter(dataset.field("count_all") > 1).sort_by(
        [(name, "ascending") for name in ("trial", *FIRST)]
    )
    for row in twice.slice(0, 1).to_pylist():
        what = f"has the error of loop {row['loop']} and point {row['point']} twice"
        raise _fault(_place(row["trial"]), what)


def check_name(name: Any) -> None:
    """StoreError for the name of a study that no store takes: the name is also the name of folders and files."""
    if not isinstance(name, str) or not name.strip() or not name.isprintable():
        raise _fault("an exported study", f"has the name {str(name)[:40]!r}")
    if len(quote(name, safe=" ")) > LONGEST_STUDY_NAME:
        raise _fault(f"the exported study {name[:40]}...", f"has a name of {len(name):,} characters")


def _check_run(row: Row, place: str) -> None:
    for column, longest in (("tags", LONGEST_TAG), ("settings", LONGEST_SETTING)):
        for name, text in _object(row, column, place).items():
            if not isinstance(text, str):
                raise _fault(place, f"has {type(text).__name__} where {column} hold text: {name[:40]!r}")
            _check_name(name, place)
            if NO_DATABASE_TEXT.search(text):
                raise _fault(place, f"has a character in {name[:40]!r} that no database takes")
            if len(text) > longest:
                raise _fault(
                    place, f"has {len(text):,} characters in {name[:40]!r}, and {longest:,} are the most"
                )
    for column in ("start", "end"):
        if row.get(column) is not None:
            _check_number(row[column], column, place)
    if not isinstance(row["start"], int):
        raise _fault(place, "has no start")


def _check_identity(tags: Mapping[str, str], place: str) -> None:
    """StoreError for tags that no reader of the store could read (`study_records`)."""
    for name in ("number", "seed", STEPS_FACTOR):
        if name in tags and not WHOLE.fullmatch(tags[name]):
            raise _fault(place, f"has {tags[name][:40]!r} as its {name}")
    text = tags.get("point", "{}")
    try:
        point = json.loads(text)
    except (ValueError, RecursionError):
        point = None
    if not isinstance(point, dict):
        raise _fault(place, f"has {text[:40]!r} as its point, and a point has settings by name")


def _check_progress(metrics: Row, place: str) -> None:
    """StoreError for the steps among the metrics."""
    for name in metrics:
        if name.startswith(RUNG) and not WHOLE.fullmatch(name.removeprefix(RUNG)):
            raise _fault(place, f"has the rung {name[:40]!r}, and a rung is a step")
    step = metrics.get("step", 0)
    if not (0 <= step < LATEST and step == int(step)):
        raise _fault(place, f"has {step} as its last step")


def _check_files(study: Row, place: str) -> None:
    """StoreError unless the description has its form and the file is text."""
    readers: dict[str, Callable[[bytes], Any]] = {
        STUDY_JSON: parse_description,
        STUDY_FILE: lambda content: content.decode(),
    }
    for name, read in readers.items():
        try:
            if study[name] is not None:
                read(study[name])
        except DAMAGE as problem:
            raise _fault(place, f"has a damaged {name}: {str(problem)[:100]}") from problem


def _object(row: Row, column: str, place: str) -> dict[str, Any]:
    content = json.loads(row[column])
    if not isinstance(content, dict):
        raise _fault(place, f"has {type(content).__name__} in the column {column}")
    return content


def _check_numbers(metrics: Row, place: str) -> None:
    for name, value in metrics.items():
        _check_name(name, place)
        if not isinstance(value, int | float) or isinstance(value, bool):
            raise _fault(place, f"has {str(value)[:40]!r} as the number {name[:40]!r}")
        if isinstance(value, int) and abs(value) > LARGEST_METRIC:
            raise _fault(place, f"has an integer of {value.bit_length():,} bits as the number {name[:40]!r}")


def _check_number(value: Any, what: str, place: str) -> None:
    if not isinstance(value, int) or not 0 <= value < LATEST:
        raise _fault(place, f"has {str(value)[:40]} as {what}")


def _check_name(name: Any, place: str) -> None:
    if not isinstance(name, str) or not COLUMN_NAME.fullmatch(name) or ".." in name:
        raise _fault(place, f"has the name {str(name)[:40]!r} for a tag, a setting or a metric")


def _place(trial: Any) -> str:
    """The trial in words. A text that is no key may hold anything, such as codes for the terminal."""
    is_key = isinstance(trial, str) and TRIAL_KEY.fullmatch(trial)
    return f"the exported trial {trial if is_key else repr(str(trial)[:40])}"


def _fault(place: str, what: str) -> StoreError:
    return StoreError(f"{place} {what}", "nothing was imported; export again")
