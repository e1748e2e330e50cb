"""A trial's weights, found by the start of its key: its checkpoint, else the copy in the records."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from loopscale.records.mirror.mirror import Mirror
from loopscale.records.model.errors import StoreError
from loopscale.records.model.note import WEIGHTS
from loopscale.records.read import load
from loopscale.records.stores.store import Store

if TYPE_CHECKING:
    from loopscale.training.storage import CheckpointStore

SHOWN = 8


@contextmanager
def weights_of(store: Store, start: str) -> Iterator[tuple["CheckpointStore", str]]:
    """Where `load_net` finds the weights, while the context lasts. Raises StoreError unless there are one trial's."""
    from loopscale.training.checkpoint import keys
    from loopscale.training.checkpoint_stores import open_checkpoint_store

    if key := _only(start, keys(store.checkpoints)):
        yield store.checkpoints, key
        return
    with TemporaryDirectory(prefix="loopscale-") as folder:
        file = _fetched(store, start, Path(folder))
        yield open_checkpoint_store(file.parent), file.stem


def _fetched(store: Store, start: str, folder: Path) -> Path:
    mirror = Mirror(store)
    mirror.sync()
    trials = mirror.query("SELECT trial, study, role FROM trials").to_pylist()
    key = _only(start, (row["trial"] for row in trials))
    if key is None:
        what = f"there is no trial {start} in {store.name}"
        raise StoreError(what, "`loopscale best STUDY` shows those that there are")
    row = next(row for row in trials if row["trial"] == key)
    if row["role"] == "baseline":
        raise StoreError(
            f"{key} is a classical algorithm, and has no weights", "give a trial that was trained"
        )
    run = next(record.run for record in load(store, row["study"]) if record.key == key)
    if file := store.artifact(run, WEIGHTS, folder):
        return file
    if store.exported:
        remedy = f"`loopscale export {row['study']} --weights` takes those that were kept along"
        raise StoreError(f"the weights of trial {key} are not in {store.name}", remedy)
    remedy = f"those of replicates and of each cell's best are, `loopscale best {row['study']}` shows them"
    raise StoreError(f"the weights of trial {key} were not kept", remedy)


def _only(start: str, keys: Iterable[str]) -> str | None:
    """The one key that starts so; `None` if none does. Raises StoreError if several do."""
    found = sorted({key for key in keys if key.startswith(start)})
    if start in found:
        return start
    if len(found) > 1:
        shown = ", ".join(found[:SHOWN]) + (", ..." if len(found) > SHOWN else "")
        what = f"{start or 'nothing'} could be any of {len(found)} trials"
        raise StoreError(what, f"give more of it: {shown}")
    return found[0] if found else None
