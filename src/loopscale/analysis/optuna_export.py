"""Export of a study's tuning for Optuna's own tools, such as optuna-dashboard: one Optuna study for each cell.

The export shows what the search knew. A diverged trial has the worst value. A pruned trial is pruned. A lost or failed
trial has failed. Replicates belong to no search and are left out.
"""

import json
import math
import os
import tempfile
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.exceptions import ExperimentalWarning, StorageInternalError
from optuna.storages import BaseStorage, JournalStorage, RDBStorage
from optuna.storages.journal import JournalFileBackend
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState
from pydantic import TypeAdapter
from sqlalchemy.exc import SQLAlchemyError

from loopscale.analysis.recorded.load import load_results
from loopscale.notation.space import Space
from loopscale.records.model import Record, Run, StoreError
from loopscale.records.stores.base import Store
from loopscale.records.stores.folder import require_outside_stores
from loopscale.records.study_records import as_records, geometric_mean
from loopscale.studies.searches.base import distribution, trial_state

SQLITE = "sqlite:///"
DATABASES = (".db", ".sqlite", ".sqlite3")
STATES = {"running": TrialState.RUNNING, "interrupted": TrialState.RUNNING}
"""The states of trials that have no result yet."""


def to_optuna(store: Store, study: str, target: str) -> dict[str, int]:
    """Write every cell's tuning trials as an Optuna study. Returns the number of trials of each.

    Parameters
    ----------
    target
        A new file: an SQLite database if it is `sqlite:///FILE` or has such a suffix, else an Optuna journal.

    Raises
    ------
    StoreError
        If the file exists or cannot be written, or if nothing was tuned.
    """
    results = load_results(store, study, curves=False)
    runs = {run.id: run for run in store.runs(store.require_experiment(study))}
    tuning = [record for record in as_records(runs.values()) if record.role == "tuning"]
    if not tuning:
        raise StoreError(
            f"{study} has tuned nothing yet", "`loopscale export --csv` writes the existing records"
        )
    curves: dict[str, dict[int, float]] = {}
    for run, step, metric, value in store.histories([runs[record.run] for record in tuning]):
        if metric == "error":
            curves.setdefault(run, {})[step] = value
    axes = TypeAdapter(Space).validate_python(results.study.get("nuisance") or {})
    both, seeds = results.two_objectives, (results.study.get("search") or {}).get("seeds", 1)
    written = {}
    with _storage(target) as storage:
        for cell in results.study["cells"]:
            of_cell = [record for record in tuning if record.cell == cell["key"]]
            of_cell.sort(key=lambda record: (record.number, record.seed or 0))
            if not of_cell:
                continue
            name = f"{study}: {cell['label']}" if cell["label"] else study
            directions = [StudyDirection.MINIMIZE] * (1 + both)
            exported = optuna.create_study(storage=storage, study_name=name, directions=directions)
            with warnings.catch_warnings(action="ignore", category=ExperimentalWarning):
                exported.set_metric_names(["error", "flops"] if both else ["error"])
            about = {"question": results.study.get("question"), "study": study, "cell": cell["key"]}
            for attribute, value in (about | dict(cell["values"])).items():
                exported.set_user_attr(attribute, value)
            space = {}
            for path, axis in axes.items():
                tried = [record.point[path] for record in of_cell if path in record.point]
                space[path] = _widened(distribution(axis), tried)
            points: dict[str, list[Record]] = {}
            for record in of_cell:
                points.setdefault(json.dumps(record.point, sort_keys=True), []).append(record)
            exported.add_trials(
                _frozen(number, records, seeds, [runs[each.run] for each in records], space, curves, both)
                for number, records in enumerate(points.values())
            )
            written[name] = len(points)
    return written


def address(target: str) -> str:
    """The address of the storage, for Optuna's tools."""
    is_database = not target.startswith(SQLITE) and Path(target).suffix in DATABASES
    return SQLITE + target if is_database else target


def _frozen(
    number: int,
    records: Sequence[Record],
    seeds: int,
    runs: Sequence[Run],
    space: Mapping[str, BaseDistribution],
    curves: Mapping[str, Mapping[int, float]],
    both: bool,
) -> FrozenTrial:
    """A point as one trial of Optuna. Its value is the geometric mean over its seeds, and its curve the first one."""
    first = records[0]
    ended = next((each for each in records if each.outcome != "finished"), first)
    state, value = trial_state(ended.outcome, geometric_mean([record.error for record in records]))
    state = STATES.get(ended.outcome, state)
    if ended.outcome == "finished" and len(records) < seeds:
        state, value = TrialState.RUNNING, None
    finished = state.is_finished()
    flops = first.metrics.get("flops", math.inf)
    attributes = {
        "trial": first.key,
        "outcome": ended.outcome,
        "number": first.number,
        "step": first.step,
    }
    attributes |= {"errors": [record.error for record in records]} if len(records) > 1 else {}
    attributes |= {tag: first.tags[tag] for tag in ("git_commit", "host") if tag in first.tags}
    start, end = min(run.start for run in runs), max(max(run.end, run.start) for run in runs)
    return FrozenTrial(
        number=number,
        state=state,
        value=None if both else value,
        values=[value, flops] if both and value is not None else None,
        datetime_start=datetime.fromtimestamp(start / 1000),
        datetime_complete=datetime.fromtimestamp(end / 1000) if finished else None,
        params=first.point,
        distributions={path: space[path] for path in first.point},
        user_attrs=attributes,
        system_attrs={},
        # Optuna allows none with two objectives.
        intermediate_values={} if both else dict(sorted(curves.get(first.run, {}).items())),
        trial_id=-1,
    )


def _widened(kind: BaseDistribution, values: Iterable[Any]) -> BaseDistribution:
    """The range with all values that were tried. The study's file may have another range since.

    Values of several types are choices, because Optuna has one distribution for a setting.
    """
    values = list(values)
    if isinstance(kind, CategoricalDistribution):
        more = (value for value in dict.fromkeys(values) if value not in kind.choices)
        return CategoricalDistribution((*kind.choices, *more))
    assert isinstance(kind, IntDistribution | FloatDistribution)
    if any(isinstance(value, bool) or not isinstance(value, int | float) for value in values):
        return CategoricalDistribution(tuple(dict.fromkeys(values)))
    low, high = min([kind.low, *values]), max([kind.high, *values])
    whole = isinstance(kind, IntDistribution) and all(isinstance(value, int) for value in values)
    log = kind.log and low > 0
    return IntDistribution(int(low), int(high), log=log) if whole else FloatDistribution(low, high, log=log)


@contextmanager
def _storage(target: str) -> Iterator[BaseStorage]:
    """A new file, which gets its name when it is complete."""
    file = Path(target.removeprefix(SQLITE))
    require_outside_stores(file, "a file")
    if file.exists():
        raise StoreError(f"{file} exists already", "give a new file, or delete the old one")
    file = Path(os.path.realpath(file))  # a link to a file that does not exist yet stays
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        with tempfile.TemporaryDirectory(prefix=".loopscale-", dir=file.parent) as folder:
            part = Path(folder, file.name)
            if address(target).startswith(SQLITE):
                storage: BaseStorage = RDBStorage(f"{SQLITE}{part}")
                yield storage
                storage.engine.dispose()
            else:
                yield JournalStorage(JournalFileBackend(str(part)))
            os.replace(part, file)
    except OSError as problem:
        raise StoreError(f"cannot write {file} ({problem.strerror})", "give another file") from problem
    except (StorageInternalError, SQLAlchemyError) as problem:
        why = problem.__cause__ or problem
        raise StoreError(
            f"cannot write {file} ({str(why).splitlines()[0]})", "free space, or give another file"
        ) from problem
