"""A study's tuning for Optuna's own tools, such as optuna-dashboard: one Optuna study a cell.

What the search was told is what they see: a trial that diverged has the worst value there is, one that was pruned is
pruned, one that was lost or failed has failed. Replicates are no part of a search, and are left out.
"""

import math
import os
import tempfile
import warnings
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import optuna
from optuna.distributions import BaseDistribution, CategoricalDistribution, FloatDistribution, IntDistribution
from optuna.exceptions import ExperimentalWarning
from optuna.storages import BaseStorage, JournalStorage, RDBStorage
from optuna.storages.journal import JournalFileBackend
from optuna.study import StudyDirection
from optuna.trial import FrozenTrial, TrialState
from pydantic import TypeAdapter

from loopscale.analysis.load import load_results
from loopscale.records.model.errors import StoreError
from loopscale.records.model.note import Record
from loopscale.records.model.run import Run
from loopscale.records.stores.base import Store
from loopscale.records.trial_records import as_records
from loopscale.studies.optuna_terms import distribution, trial_state
from loopscale.studies.space import Space

SQLITE = "sqlite:///"
DATABASES = (".db", ".sqlite", ".sqlite3")
STATES = {"running": TrialState.RUNNING, "interrupted": TrialState.RUNNING}
"""Of trials that the search has not been told of."""


def to_optuna(store: Store, study: str, target: str) -> dict[str, int]:
    """Write every cell's tuning trials as an Optuna study; how many trials each has.

    `target` is a new file: an SQLite database if it is called `sqlite:///FILE` or ends as one does, else an Optuna
    journal. Raises StoreError where it is there already, cannot be written, or nothing was tuned.
    """
    results = load_results(store, study, curves=False)
    described = results.study
    runs = {run.id: run for run in store.runs(store.require_experiment(study))}
    tuning = [record for record in as_records(runs.values()) if record.role == "tuning"]
    if not tuning:
        raise StoreError(f"{study} has tuned nothing yet", "`loopscale export --csv` writes what there is")
    curves: dict[str, dict[int, float]] = {}
    for run, step, metric, value in store.histories([runs[record.run] for record in tuning]):
        if metric == "error":
            curves.setdefault(run, {})[step] = value
    axes = TypeAdapter(Space).validate_python(described.get("nuisance") or {})
    both = results.two_objectives
    written = {}
    with _storage(target) as storage:
        for cell in described["cells"]:
            mine = sorted((one for one in tuning if one.cell == cell["key"]), key=lambda one: one.number)
            if not mine:
                continue
            name = f"{study}: {cell['label']}" if cell["label"] else study
            directions = [StudyDirection.MINIMIZE] * (1 + both)
            made = optuna.create_study(storage=storage, study_name=name, directions=directions)
            with warnings.catch_warnings(action="ignore", category=ExperimentalWarning):
                made.set_metric_names(["error", "flops"] if both else ["error"])
            about = {"question": described.get("question"), "study": study, "cell": cell["key"]}
            for attribute, said in (about | dict(cell["values"])).items():
                made.set_user_attr(attribute, said)
            space = {
                path: _holding(distribution(axis), [one.point[path] for one in mine if path in one.point])
                for path, axis in axes.items()
            }
            made.add_trials(
                _frozen(number, one, runs[one.run], space, curves.get(one.run, {}), both)
                for number, one in enumerate(mine)
            )
            written[name] = len(mine)
    return written


def address(target: str) -> str:
    """The storage as Optuna's tools take it."""
    is_database = not target.startswith(SQLITE) and Path(target).suffix in DATABASES
    return SQLITE + target if is_database else target


def _frozen(
    number: int,
    record: Record,
    run: Run,
    space: Mapping[str, BaseDistribution],
    curve: Mapping[int, float],
    both: bool,
) -> FrozenTrial:
    state, value = trial_state(record.outcome, record.error)
    state = STATES.get(record.outcome, state)
    over = state.is_finished()
    flops = record.metrics.get("flops", math.inf)
    attributes = {
        "trial": record.key,
        "outcome": record.outcome,
        "number": record.number,
        "step": record.step,
    }
    attributes |= {tag: record.tags[tag] for tag in ("git_commit", "host") if tag in record.tags}
    return FrozenTrial(
        number=number,
        state=state,
        value=None if both else value,
        values=[value, flops] if both and value is not None else None,
        datetime_start=datetime.fromtimestamp(run.start / 1000),
        datetime_complete=datetime.fromtimestamp(max(run.end, run.start) / 1000) if over else None,
        params=record.point,
        distributions={path: space[path] for path in record.point},
        user_attrs=attributes,
        system_attrs={},
        # Optuna takes none where there are two objectives.
        intermediate_values={} if both else dict(sorted(curve.items())),
        trial_id=-1,
    )


def _holding(kind: BaseDistribution, values: Iterable[Any]) -> BaseDistribution:
    """The range, widened to all values that were tried: a study's file may have narrowed it since."""
    values = list(values)
    match kind:
        case CategoricalDistribution():
            more = (each for each in dict.fromkeys(values) if each not in kind.choices)
            return CategoricalDistribution((*kind.choices, *more))
        case IntDistribution():
            return IntDistribution(min([kind.low, *values]), max([kind.high, *values]), log=kind.log)
        case FloatDistribution():
            return FloatDistribution(min([kind.low, *values]), max([kind.high, *values]), log=kind.log)
    return kind


@contextmanager
def _storage(target: str) -> Iterator[BaseStorage]:
    """A new file, which takes its name only when it is whole."""
    file = Path(target.removeprefix(SQLITE))
    if file.exists():
        raise StoreError(f"{file} is there already", "give a new file, or delete it")
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
