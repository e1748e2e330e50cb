"""A trial's weights, by the start of its key: from its checkpoint, else from the copy in the records.

A damaged checkpoint, and the checkpoint of another trial, count as absent.
"""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from loopscale.core.files import read_regular
from loopscale.core.temporary import temporary_folder
from loopscale.records.mirror import Mirror
from loopscale.records.model import WEIGHTS, StoreError
from loopscale.records.stores.base import Store
from loopscale.records.study_records import recorded_trials
from loopscale.training.checkpoint import CHECKPOINT_SUFFIX, CorruptCheckpoint, is_whole, keys, load_history
from loopscale.training.checkpoint_stores import open_checkpoint_store
from loopscale.training.storage import CheckpointStore, StorageDenied

REMEDY = "delete the run of the trial in MLflow, and `loopscale run` of its study trains the trial again"
LISTED = 8
"""Keys that a message lists."""


@contextmanager
def weights_of(store: Store, start: str) -> Iterator[tuple[CheckpointStore, str]]:
    """The place and the name under which `load_net` finds the weights, while the context lasts.

    Raises StoreError unless exactly one trial's key begins with `start` and its weights exist.
    """
    damage = None
    if key := _only_key(start, keys(store.checkpoints)):
        try:
            load_history(store.checkpoints, key)
        except (CorruptCheckpoint, FileNotFoundError, StorageDenied) as problem:
            start, damage = key, problem
        else:
            yield store.checkpoints, key
            return
    with temporary_folder() as folder:
        try:
            key, file = _recorded_weights(store, start, folder)
        except StoreError as problem:
            if damage is None:
                raise
            raise StoreError(f"{damage}, and the records hold no copy of the weights", REMEDY) from problem
        try:
            whole = is_whole(read_regular(file), key)
        except OSError:  # larger than the memory
            whole = False
        if not whole:
            what = f"{damage or 'the checkpoint is gone'}, and the copy in the records is damaged too"
            raise StoreError(what, REMEDY)
        if damage:
            store.warn(
                f"{damage}; the copy in the records is used, and `loopscale doctor --repair` restores the file"
            )
        named = folder / "named"
        named.mkdir()
        (named / f"{key}{CHECKPOINT_SUFFIX}").symlink_to(file.absolute())
        yield open_checkpoint_store(named), key


def restore_weights(store: Store, key: str, run: str) -> bool:
    """Copy the recorded weights of a trial into its checkpoint. False if there are none, or if they are damaged."""
    content = store.read_artifact(run, WEIGHTS)
    if content is None or not is_whole(content, key):
        return False
    store.checkpoints.make()
    store.checkpoints.put(key + CHECKPOINT_SUFFIX, content)
    return True


def _recorded_weights(store: Store, start: str, folder: Path) -> tuple[str, Path]:
    """The key of the trial, and the file of its recorded weights."""
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
        return key, file
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
