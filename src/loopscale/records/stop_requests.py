"""Requests to stop single trials: tags of the study's parent run, which every driver of the study reads."""

import time

from loopscale.records.model import STOP, NoRecords, StoreError
from loopscale.records.stores.base import Store
from loopscale.records.study_records import recorded_trials


def request_stop(store: Store, study: str, key: str) -> None:
    """Ask the study's drivers, now and later, to end the trial. Raises StoreError."""
    _write(store, study, key, time.strftime("%Y-%m-%d %H:%M:%S %z"))


def withdraw_stop(store: Store, study: str, key: str) -> None:
    """Let the study's next driver train the trial again. Raises StoreError."""
    _write(store, study, key, "")


def stopped_trial(store: Store, study: str, beginning: str) -> tuple[str, str]:
    """Key and outcome of the study's trial whose key begins with the text. Raises StoreError, NoRecords."""
    if store.parent_run(study) is None:
        raise _no_records(store, study)
    trials = {record.key: record for record in recorded_trials(store, study) if record.role != "baseline"}
    matching = [key for key in trials if key.startswith(beginning)]
    if len(matching) != 1:
        what = f"{len(matching) or 'no'} trials of {study} have a key that begins with {beginning!r}"
        raise StoreError(what, "give a key of the column trial of `loopscale query`")
    return matching[0], trials[matching[0]].outcome


def _no_records(store: Store, study: str) -> NoRecords:
    return NoRecords(f"no records of {study} in {store.name}", "name a study that has been run")


def _write(store: Store, study: str, key: str, text: str) -> None:
    parent = store.parent_run(study)
    if parent is None:
        raise _no_records(store, study)
    store.client.set_tag(parent.id, STOP + key, text, synchronous=True)
