"""What is kept once a study has ended: weights of the replicates and of each cell's best, no optimiser, no leftovers.

Of all other trials the header stays, with the history, so that another study with an equal trial need not train it.
Equal trials of two studies share a checkpoint: what another study of the store may still go on from, or keeps, stays.
"""

import shutil
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory

from loopscale.records.model.note import WEIGHTS, Note, Record
from loopscale.records.stores.base import Store
from loopscale.records.trial_records import wanted_elsewhere
from loopscale.runner.decide.conductor import Conductor
from loopscale.training import checkpoint
from loopscale.training.storage import CheckpointStore

STRIPPED = ("finished", "pruned", "diverged")
"""Outcomes after which nobody goes on from a checkpoint."""
AT_ONCE = 8
"""Files under way: a bucket answers many requests at a time, each slowly."""
PATIENCE = 600.0
"""Seconds for which a batch of weights may wait for the records."""


def retain(conductor: Conductor, store: Store, records: Iterable[Record]) -> None:
    """Strip the checkpoints of trials that are over, and hand the weights that are kept to the records.

    Call it when everything that the checkpoints know has been written: their history is said no more. Raises
    StorageUnavailable, CorruptCheckpoint.
    """
    shelf, jobs = store.checkpoints, {job.key: job for job in conductor.jobs()}
    decisions = dict(_decisions(conductor, records))
    if not decisions:
        return
    there = checkpoint.keys(shelf)
    open_elsewhere, kept_elsewhere = wanted_elsewhere(store, conductor.study.name)
    spared = open_elsewhere | kept_elsewhere
    due = [key for key, kept in decisions.items() if key in there and (kept or key not in spared)]
    with TemporaryDirectory(prefix="loopscale-") as folder, ThreadPoolExecutor(AT_ONCE) as pool:
        for first in range(0, len(due), AT_ONCE):
            batch = due[first : first + AT_ONCE]
            files = pool.map(
                lambda key: _strip(shelf, key, decisions[key], key in open_elsewhere, Path(folder)), batch
            )
            for key, file in zip(batch, files, strict=True):
                finished = key in jobs and jobs[key].outcome == "finished"
                artifacts = ((WEIGHTS, file),) if file and finished else ()
                decided = "kept" if decisions[key] else "dropped"
                if key in jobs:
                    jobs[key].weights = decided
                conductor.writer.write(Note(key, tags={"weights": decided}, artifacts=artifacts))
            if any(decisions[key] for key in batch):
                conductor.writer.flush(PATIENCE)  # or the files would gather
                for file in Path(folder).iterdir():
                    file.unlink()


def collect(store: Store, study: str) -> None:
    """Delete what a study that has ended leaves behind: part files of dead writers, and Ray's folder."""
    store.checkpoints.sweep()
    shutil.rmtree(ray_folder(store, study), ignore_errors=True)


def ray_folder(store: Store, study: str) -> Path:
    """Where Ray keeps its notes of the study; nothing in it is ever read again."""
    return store.storage / "ray" / study.replace("/", "__")


def _decisions(conductor: Conductor, records: Iterable[Record]) -> Iterator[tuple[str, bool]]:
    """Trials of which is to be decided whether their weights are kept, and whether they are."""
    keepers, jobs = conductor.keepers, {job.key: job for job in conductor.jobs()}
    for key, job in jobs.items():
        kept = key in keepers
        if job.role == "baseline" or job.outcome not in STRIPPED:
            continue
        # What was dropped cannot be kept any more.
        if job.weights not in ("dropped", "kept" if kept else "dropped"):
            yield key, kept
    for record in records:
        # Of a cell that the study no longer has, and that nobody has decided about: what was kept is kept for good.
        left = record.key not in jobs and record.role in ("tuning", "replicate")
        if left and record.outcome in STRIPPED and not record.tags.get("weights"):
            yield record.key, False


def _strip(shelf: CheckpointStore, key: str, keep: bool, wanted: bool, folder: Path) -> Path | None:
    """Strip one file, unless somebody else wants it as it is; a copy of the weights in `folder` if they are kept."""
    content = checkpoint.strip(shelf, key, keep, replace=not wanted)
    if not keep:
        return None
    file = folder / f"{key}{checkpoint.SUFFIX}"
    file.write_bytes(content)
    return file
