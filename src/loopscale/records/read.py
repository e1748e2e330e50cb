"""A study's records, brought back."""

import json
import math
from collections.abc import Iterable, Iterator

from loopscale.records.model.errors import StoreError
from loopscale.records.model.note import RUNG, STUDY, Record
from loopscale.records.model.run import Run, parents, search
from loopscale.records.model.tables import is_trial
from loopscale.records.stores.sources import source
from loopscale.records.stores.store import FORMAT_TAG, Store


def load(store: Store, study: str) -> Iterator[Record]:
    """Every trial of the study, in the order in which they were begun; none if the study has no records."""
    experiment = store.find(study)
    yield from trials(source(store).runs(experiment, params=False) if experiment else [])


def trials(runs: Iterable[Run]) -> Iterator[Record]:
    """The trials among the runs. StoreError for tags that no driver of ours has written."""
    return (_record(run.id, run.status, run.tags, run.metrics) for run in runs if is_trial(run))


def parent(store: Store, study: str) -> str | None:
    """The id of the study's parent run, which holds its file, its description and its report."""
    experiment = store.find(study)
    found = parents(store, experiment) if experiment else []
    return found[0].id if found else None


def wanted_elsewhere(store: Store, study: str) -> tuple[set[str], set[str]]:
    """Trials that another study, which has not ended, may go on from; and those of which another keeps the weights."""
    page = store.client.search_experiments(max_results=1000)
    others = list(page)
    while page.token:
        page = store.client.search_experiments(max_results=1000, page_token=page.token)
        others += page
    ours = [other for other in others if FORMAT_TAG in other.tags and other.name != study]
    ids = [other.experiment_id for other in ours]
    if not ids:
        return set(), set()
    studies = search(store, ids, f"tags.role = '{STUDY}'")
    open_ids = [run.experiment for run in studies if run.status != "FINISHED"]
    kept = search(store, ids, "tags.weights = 'kept'")
    under_way = search(store, open_ids, f"tags.trial != '{STUDY}'") if open_ids else ()
    return {run.tags["trial"] for run in under_way}, {run.tags["trial"] for run in kept}


def _record(run: str, status: str, tags: dict[str, str], metrics: dict[str, float]) -> Record:
    """StoreError for tags that no driver of ours has written."""
    try:
        return _said(run, status, tags, metrics)
    except (ValueError, OverflowError, RecursionError, AttributeError) as problem:
        what = f"the record of run {run} is damaged ({str(problem)[:200]})"
        raise StoreError(what, "mend its tags or delete the run in MLflow") from problem


def _said(run: str, status: str, tags: dict[str, str], metrics: dict[str, float]) -> Record:
    return Record(
        run=run,
        key=tags["trial"],
        cell=tags.get("cell", ""),
        role=tags.get("role", ""),
        number=int(tags.get("number", 0)),
        point=dict(json.loads(tags.get("point", "{}")).items()),
        seed=int(tags["seed"]) if tags.get("seed") else None,
        outcome=tags.get("outcome", ""),
        status=status,
        step=int(metrics.get("step", 0)),
        error=metrics.get("error", math.nan),
        error_last=metrics.get("error_last", math.nan),
        rungs={
            int(name.removeprefix(RUNG)): value for name, value in metrics.items() if name.startswith(RUNG)
        },
        tags=tags,
        metrics=metrics,
    )
