"""The records of a study, read back: its trials, the hours that the study has spent, and the origin of its results."""

import json
import math
import statistics
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from loopscale.records.model import (
    DAMAGE,
    DECISION,
    PREDICTION,
    RUNG,
    STOP,
    STUDY,
    STUDY_FILE,
    STUDY_JSON,
    NoRecords,
    Record,
    Run,
    StoreError,
    parent_among,
    safe_tags,
    tags_below,
)
from loopscale.records.stores.base import Store

AnyRun = TypeVar("AnyRun")
SPENT = "spent"
"""Tag of the parent run: hours used, and the budget in force."""
VERSION = "version."
"""Prefix of the tags with versions of packages."""
NOT_RECORDED = "not recorded"
SHOWN_ELSEWHERE = {SPENT, "question", "source", "trial", "role", "study"}
"""Tags of the parent run that a report shows in other places."""
UNITS = {"gpu_hours": "GPU-hours", "core_hours": "core-hours", "hours": "h of wall clock"}
MINUTES = {"gpu_hours": "GPU-minutes", "core_hours": "core-minutes", "hours": "min of wall clock"}


def recorded_trials(store: Store, study: str) -> Iterator[Record]:
    """Every trial of the study in the order of their start; none if the study has no records."""
    experiment = store.find_experiment(study)
    return as_records(store.runs(experiment, params=False) if experiment else [])


def as_records(runs: Iterable[Run]) -> Iterator[Record]:
    """The trials among the runs. Raises StoreError for tags that no driver has written."""
    return (_record(run) for run in runs if run.is_trial)


def trial_named(store: Store, study: str, beginning: str) -> Record:
    """The study's trial whose key begins with the text. Raises NoRecords, and StoreError without exactly one."""
    if store.parent_run(study) is None:
        raise no_records(store, study)
    trials = {record.key: record for record in recorded_trials(store, study) if record.role != "baseline"}
    beginning = beginning.strip("\"'")  # as CSV writes texts
    matching = [key for key in trials if key.startswith(beginning)]
    if len(matching) != 1:
        what = f"{len(matching) or 'no'} trials of {study} have a key that begins with {beginning!r}"
        raise StoreError(what, "give a key of the column trial of `loopscale query`")
    return trials[matching[0]]


def no_records(store: Store, study: str) -> NoRecords:
    return NoRecords(f"no records of {study} in {store.name}", "name a study that has been run")


def recorded_studies(store: Store, study: str | None) -> list[str]:
    """The name of one study, or of every recorded study. Raises NoRecords."""
    studies = store.studies()
    if study is not None and study not in studies:
        known = ", ".join(studies) or "nothing"
        raise NoRecords(f"no records of {study} in {store.name}", f"there are records of {known}")
    return studies if study is None else [study]


def recorded_description(store: Store, study: str) -> dict[str, Any]:
    """The study as its last driver recorded it; empty if the study has no records. Raises StoreError."""
    parent = store.parent_run(study)
    content = store.read_artifact(parent.id, STUDY_JSON) if parent else None
    try:
        return dict(json.loads(content or "{}"))
    except DAMAGE as problem:
        what = f"the description {STUDY_JSON} of {study} in {store.name} is damaged ({str(problem)[:200]})"
        raise StoreError(
            what, "`loopscale doctor --repair` restores the description if a copy exists"
        ) from problem


def wanted_elsewhere(store: Store, study: str) -> tuple[set[str], set[str]]:
    """Keys of trials that other studies need.

    First the trials of studies that have not ended, which continue from the checkpoints; then the trials whose weights
    other studies keep.
    """
    others = [experiment for name, experiment in store.experiments().items() if name != study]
    if not others:
        return set(), set()
    parents = store.search(others, f"tags.role = '{STUDY}'")
    under_way = [run.experiment for run in parents if run.status != "FINISHED"]
    kept = store.search(others, "tags.weights = 'kept'")
    continued = store.search(under_way, f"tags.trial != '{STUDY}'") if under_way else ()
    return {run.tags["trial"] for run in continued}, {run.tags["trial"] for run in kept}


def _record(run: Run) -> Record:
    tags, metrics = run.tags, run.metrics
    try:
        return Record(
            run=run.id,
            key=tags["trial"],
            cell=tags.get("cell", ""),
            role=tags.get("role", ""),
            number=int(tags.get("number", 0)),
            point=dict(json.loads(tags.get("point", "{}")).items()),
            sampler=dict(json.loads(tags.get("sampler", "{}")).items()),
            seed=int(tags["seed"]) if tags.get("seed") else None,
            outcome=tags.get("outcome", ""),
            status=run.status,
            step=int(metrics.get("step", 0)),
            error=metrics.get("error", math.nan),
            error_last=metrics.get("error_last", math.nan),
            rungs={
                int(name.removeprefix(RUNG)): value
                for name, value in metrics.items()
                if name.startswith(RUNG)
            },
            tags=tags,
            metrics=metrics,
        )
    except (ValueError, OverflowError, RecursionError, AttributeError) as problem:
        what = f"the record of run {run.id} is damaged ({str(problem)[:200]})"
        raise StoreError(what, "mend its tags or delete the run in MLflow") from problem


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
        """`1.2 of 4 core-hours (2.8 left), 42 min of wall clock`. Without a limit, less than an hour is in minutes."""
        return ", ".join(self._part(name, unit) for name, unit in UNITS.items() if name in self.used)

    def _part(self, name: str, unit: str) -> str:
        if name not in self.budget:
            hours = self.used[name]
            return f"{hours:.3g} {unit}" if hours >= 1 else f"{60 * hours:.2g} {MINUTES[name]}"
        return f"{self.used[name]:.3g} of {self.budget[name]:g} {unit} ({self.left[name]:.3g} left)"


def spending_of(store: Store, study: str) -> Spending:
    """The spending of all drivers so far; nothing if the study has no records. Raises StoreError.

    A running driver charges up to 15 s in advance.
    """
    return spending_in(store.parent_run(study) or store.deleted_parent_run(study), study)


def spending_in(parent: Run | None, study: str) -> Spending:
    """The spending in the tags of the study's parent run. Raises StoreError."""
    text = parent.tags.get(SPENT, "{}") if parent else "{}"
    try:
        document = json.loads(text)
        used, budget = (
            {str(name): float(hours) for name, hours in document.get(part, {}).items()}
            for part in ("used", "budget")
        )
    except DAMAGE as problem:
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
    execution: dict[str, int] = field(default_factory=dict)
    """The number of trials by the precision and the device of their training."""
    hosts: dict[str, int] = field(default_factory=dict)
    seeds: dict[str, int] = field(default_factory=dict)
    """The number of trials with each seed."""

    @property
    def versions(self) -> dict[str, str]:
        """The versions of Python and of packages, by name."""
        return {
            name.removeprefix(VERSION): text
            for name, text in sorted(self.tags.items())
            if name.startswith(VERSION)
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
        tags={name: text for name, text in safe_tags(tags).items() if not _shown_elsewhere(name)},
        text=(file or b"").decode(errors="replace"),
        commits=dict(Counter(map(_commit, trained))),
        hardware=_counts(trials, "hardware"),
        execution=_counts(trained, "execution"),
        hosts=_counts(trials, "host"),
        seeds=dict(sorted(_counts(trained, "seed").items())),
    )


def _shown_elsewhere(tag: str) -> bool:
    return tag in SHOWN_ELSEWHERE or "mlflow." in tag or tag.startswith((PREDICTION, DECISION, STOP))


def _counts(runs: Iterable[Run], tag: str) -> dict[str, int]:
    return dict(Counter(run.tags.get(tag) or NOT_RECORDED for run in runs))


def _commit(run: Run) -> str:
    changed = ", with changes that were not committed" * (run.tags.get("git_changed") == "yes")
    return commit + changed if (commit := run.tags.get("git_commit")) else NOT_RECORDED


def stopped_trials(tags: Mapping[str, str]) -> frozenset[str]:
    """The keys of the trials that somebody has stopped, from the tags of the parent run."""
    return frozenset(name.removeprefix(STOP) for name, text in tags_below(STOP, tags).items() if text)


def answering_runs(
    replicates: Sequence[AnyRun],
    tuned: Sequence[AnyRun],
    point: Callable[[AnyRun], object],
    error: Callable[[AnyRun], float],
) -> tuple[AnyRun, ...]:
    """The trials that answer for a cell: the finished replicates of one point, else the best tuning trial.

    The driver, which predicts, and the analysis, which reports, follow this one rule.

    If a study was extended and its best point changed, there are replicates of several points. The point with most
    finished replicates answers. If two points have equally many, the later point answers.

    Parameters
    ----------
    replicates, tuned
        The finished trials of each role, in the order of their numbers.
    point
        The identity of a trial's settings without the seed.
    """
    if not replicates:
        return _best_tuned(tuned, point, error)
    points = [point(run) for run in replicates]
    most = max(points.count(each) for each in points)
    answering = next(each for each in reversed(points) if points.count(each) == most)
    return tuple(run for run, each in zip(replicates, points, strict=True) if each == answering)


def _best_tuned(
    tuned: Sequence[AnyRun], point: Callable[[AnyRun], object], error: Callable[[AnyRun], float]
) -> tuple[AnyRun, ...]:
    """The first trial of the best point. With several seeds only points that have finished all of them count."""
    runs: dict[object, list[AnyRun]] = {}
    for run in tuned:
        runs.setdefault(point(run), []).append(run)
    most = max(map(len, runs.values()), default=0)
    finished = [of_point for of_point in runs.values() if len(of_point) == most]
    best = min(finished, key=lambda of_point: geometric_mean([error(run) for run in of_point]), default=[])
    return tuple(best[:1])


def geometric_mean(errors: Sequence[float]) -> float:
    """The value of a point with these errors, one for each seed. An error of 0 or less has no logarithm.

    With one of these errors the value is the mean of the errors.
    """
    if len(errors) == 1:
        return errors[0]
    return statistics.geometric_mean(errors) if min(errors) > 0 else statistics.fmean(errors)


def request_stop(store: Store, study: str, key: str) -> None:
    """Ask the study's drivers, now and later, to end the trial. Raises StoreError."""
    _write(store, study, key, time.strftime("%Y-%m-%d %H:%M:%S %z"))


def withdraw_stop(store: Store, study: str, key: str) -> None:
    """Let the study's next driver train the trial again. Raises StoreError."""
    _write(store, study, key, "")


def _write(store: Store, study: str, key: str, text: str) -> None:
    parent = store.parent_run(study)
    if parent is None:
        raise no_records(store, study)
    store.client.set_tag(parent.id, STOP + key, text, synchronous=True)
