"""Requests to stop single trials: tags of the study's parent run, which every driver of the study reads."""

import time

from loopscale.records.model import STOP
from loopscale.records.stores.base import Store
from loopscale.records.study_records import no_records


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
