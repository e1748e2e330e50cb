"""The trials of a study, read back from the records."""

import json
import math
from collections.abc import Iterable, Iterator

from loopscale.records.model.errors import NoRecords, StoreError
from loopscale.records.model.note import RUNG, STUDY, Record
from loopscale.records.model.run import Run
from loopscale.records.stores.base import Store


def recorded_trials(store: Store, study: str) -> Iterator[Record]:
    """Every trial of the study in the order of their start; none if the study has no records."""
    experiment = store.find_experiment(study)
    return as_records(store.runs(experiment, params=False) if experiment else [])


def as_records(runs: Iterable[Run]) -> Iterator[Record]:
    """The trials among the runs. Raises StoreError for tags that no driver has written."""
    return (_record(run) for run in runs if run.is_trial)


def recorded_studies(store: Store, study: str | None) -> list[str]:
    """The name of one study, or of every recorded study. Raises NoRecords."""
    studies = store.studies()
    if study is not None and study not in studies:
        known = ", ".join(studies) or "nothing"
        raise NoRecords(f"no records of {study} in {store.name}", f"there are records of {known}")
    return studies if study is None else [study]


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
