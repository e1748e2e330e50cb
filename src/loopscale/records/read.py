"""A study's records, brought back by one paged search."""

import json
import math
from collections.abc import Iterator
from typing import Any

from loopscale.records.errors import StoreError
from loopscale.records.notes import RUNG, STUDY, Record
from loopscale.records.sources import source
from loopscale.records.store import FORMAT_TAG, Store
from loopscale.records.tables import is_trial


def load(store: Store, study: str, page: int = 200) -> Iterator[Record]:
    """Every trial of the study, in the order in which they were begun; none if the study has no records.

    A server is asked for `page` of them at a time: a busy one takes longer for 1,000 than a request may last (seen).
    """
    experiment = store.find(study)
    if experiment and store.root:  # by SQL, five times as fast
        runs = source(store).runs(experiment, params=False)
        yield from (_record(r.id, r.status, r.tags, r.metrics) for r in runs if is_trial(r))
        return
    token = None
    while experiment:
        runs = store.client.search_runs(
            [experiment],
            filter_string=f"tags.trial != '{STUDY}'",
            order_by=["attributes.start_time ASC", "attributes.run_id ASC"],
            max_results=page,
            page_token=token,
        )
        yield from (
            _record(r.info.run_id, r.info.status, dict(r.data.tags), dict(r.data.metrics)) for r in runs
        )
        token = runs.token
        if not token:
            return


def parent(store: Store, study: str) -> str | None:
    """The id of the study's parent run, which holds its file, its description and its report."""
    experiment = store.find(study)
    runs = experiment and store.client.search_runs([experiment], f"tags.role = '{STUDY}'", max_results=1)
    return runs[0].info.run_id if runs else None


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
    parents = _runs(store, ids, f"tags.role = '{STUDY}'")
    open_ids = [run.info.experiment_id for run in parents if run.info.status != "FINISHED"]
    kept = _runs(store, ids, "tags.weights = 'kept'")
    under_way = _runs(store, open_ids, f"tags.trial != '{STUDY}'") if open_ids else ()
    return {run.data.tags["trial"] for run in under_way}, {run.data.tags["trial"] for run in kept}


def _runs(store: Store, experiments: list[str], condition: str) -> Iterator[Any]:
    token = None
    while True:
        page = store.client.search_runs(experiments, condition, max_results=1000, page_token=token)
        yield from page
        token = page.token
        if not token:
            return


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
