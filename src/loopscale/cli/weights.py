"""A trial's weights, found by the start of its key: its checkpoint, else the copy in the records."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from loopscale.cli.wrong import Wrong

if TYPE_CHECKING:
    from loopscale.records.store import Store
    from loopscale.training.storage import Shelf

SHOWN = 8


@contextmanager
def weights_of(store: "Store", start: str) -> Iterator[tuple["Shelf", str]]:
    """Where `load_net` finds the weights, while the context lasts. Raises Wrong where there are none, or several."""
    from loopscale.training.checkpoint import keys
    from loopscale.training.storage import Shelf

    if key := _only(start, keys(store.checkpoints)):
        yield store.checkpoints, key
        return
    with TemporaryDirectory(prefix="loopscale-") as folder:
        file = _fetched(store, start, Path(folder))
        yield Shelf.open(file.parent), file.stem


def _fetched(store: "Store", start: str, folder: Path) -> Path:
    from loopscale.records.mirror import Mirror
    from loopscale.records.notes import WEIGHTS
    from loopscale.records.read import load

    mirror = Mirror(store)
    mirror.sync()
    trials = mirror.query("SELECT trial, study, role FROM trials").to_pylist()
    key = _only(start, (row["trial"] for row in trials))
    if key is None:
        raise Wrong(
            f"there is no trial {start} in {store.name}; `loopscale best STUDY` shows those that there are"
        )
    row = next(row for row in trials if row["trial"] == key)
    if row["role"] == "baseline":
        raise Wrong(f"{key} is a classical algorithm, and has no weights; give a trial that was trained")
    run = next(record.run for record in load(store, row["study"]) if record.key == key)
    if file := store.artifact(run, WEIGHTS, folder):
        return file
    raise Wrong(
        f"the weights of trial {key} were not kept; those of replicates and of each cell's best are, "
        f"`loopscale best {row['study']}` shows them"
    )


def _only(start: str, keys: Iterable[str]) -> str | None:
    """The one key that starts so; `None` if none does. Raises Wrong if several do."""
    found = sorted({key for key in keys if key.startswith(start)})
    if start in found:
        return start
    if len(found) > 1:
        shown = ", ".join(found[:SHOWN]) + (", ..." if len(found) > SHOWN else "")
        raise Wrong(f"{start or 'nothing'} could be any of {len(found)} trials; give more of it: {shown}")
    return found[0] if found else None
