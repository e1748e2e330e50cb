"""A trial's weights, by the start of its key: from its checkpoint, else from the copy in the records."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from loopscale.records.mirror import Mirror
from loopscale.records.model import WEIGHTS, StoreError
from loopscale.records.stores.base import Store
from loopscale.records.study_records import recorded_trials
from loopscale.training.checkpoint import keys
from loopscale.training.checkpoint_stores import open_checkpoint_store
from loopscale.training.storage import CheckpointStore

LISTED = 8
"""Keys that a message lists."""


@contextmanager
def weights_of(store: Store, start: str) -> Iterator[tuple[CheckpointStore, str]]:
    """The place and the name under which `load_net` finds the weights, while the context lasts.

    Raises StoreError unless exactly one trial's key begins with `start` and its weights exist.
    """
    if key := _only_key(start, keys(store.checkpoints)):
        yield store.checkpoints, key
        return
    with TemporaryDirectory(prefix="loopscale-") as folder:
        file = _recorded_weights(store, start, Path(folder))
        yield open_checkpoint_store(file.parent), file.stem


def _recorded_weights(store: Store, start: str, folder: Path) -> Path:
    mirror = Mirror(store)
    mirror.sync()
    trials = mirror.query("SELECT trial, study, role FROM trials").to_pylist()
    key = _only_key(start, (row["trial"] for row in trials))
    if key is None:
        what = f"there is no trial {start} in {store.name}"
        raise StoreError(what, "`loopscale best STUDY` shows those that there are")
    row = next(row for row in trials if row["trial"] == key)
    if row["role"] == "baseline":
        what = f"{key} is a classical algorithm, and has no weights"
        raise StoreError(what, "give a trial that was trained")
    run = next(record.run for record in recorded_trials(store, row["study"]) if record.key == key)
    if file := store.artifact(run, WEIGHTS, folder):
        return file
    raise store.missing_weights(key, row["study"])


def _only_key(start: str, keys: Iterable[str]) -> str | None:
    """The only key that begins with `start`, or None. Raises StoreError for several keys."""
    matches = sorted({key for key in keys if key.startswith(start)})
    if start in matches:
        return start
    if len(matches) > 1:
        listed = ", ".join(matches[:LISTED]) + (", ..." if len(matches) > LISTED else "")
        what = f"{start or 'nothing'} could be any of {len(matches)} trials"
        raise StoreError(what, f"give more of it: {listed}")
    return matches[0] if matches else None
