"""Clean-up after the end of a study: kept weights, stripped checkpoints, and deleted leftovers.

The weights of the replicates and of each cell's best trial are kept, without the optimiser. Of all other trials only
the header and the history stay, so another study with an equal trial need not train it. Equal trials of two studies
share a checkpoint: a checkpoint that another study of the store may resume or keeps is not stripped.
"""

import shutil
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory

from loopscale.records.model import WEIGHTS, Note, Record
from loopscale.records.stores.base import Store
from loopscale.records.study_records import wanted_elsewhere
from loopscale.runner.decide.conductor import Conductor
from loopscale.training import checkpoint
from loopscale.training.storage import CheckpointStore

STRIPPED_OUTCOMES = ("finished", "pruned", "diverged")
"""Outcomes after which no trial resumes from its checkpoint."""
BATCH_SIZE = 8
"""Number of files at the same time. A bucket answers many requests at a time, each slowly."""
FLUSH_SECONDS = 600.0
"""Longest wait until the records have taken a batch of weights."""


def retain_weights(conductor: Conductor, store: Store, records: Iterable[Record]) -> None:
    """Strip the checkpoints of trials that are over, and hand the kept weights to the records.

    Call this function after the whole history is written, because stripped checkpoints do not repeat it. Raises
    StorageUnavailable, CorruptCheckpoint.
    """
    checkpoints, jobs = store.checkpoints, {job.key: job for job in conductor.jobs()}
    decisions = dict(_decide(conductor, records))
    if not decisions:
        return
    existing = checkpoint.keys(checkpoints)
    open_elsewhere, kept_elsewhere = wanted_elsewhere(store, conductor.study.name)
    spared = open_elsewhere | kept_elsewhere
    due = [key for key, keep in decisions.items() if key in existing and (keep or key not in spared)]
    with TemporaryDirectory(prefix="loopscale-") as temporary, ThreadPoolExecutor(BATCH_SIZE) as pool:
        folder = Path(temporary)

        def strip(key: str) -> Path | None:
            return _strip(checkpoints, key, decisions[key], key not in open_elsewhere, folder)

        for start in range(0, len(due), BATCH_SIZE):
            batch = due[start : start + BATCH_SIZE]
            for key, file in zip(batch, pool.map(strip, batch), strict=True):
                finished = key in jobs and jobs[key].outcome == "finished"
                artifacts = ((WEIGHTS, file),) if file and finished else ()
                decision = "kept" if decisions[key] else "dropped"
                if key in jobs:
                    jobs[key].weights = decision
                conductor.writer.write(Note(key, tags={"weights": decision}, artifacts=artifacts))
            if any(decisions[key] for key in batch):
                conductor.writer.flush(FLUSH_SECONDS)  # so that files do not accumulate
                for file in folder.iterdir():
                    file.unlink()


def delete_leftovers(store: Store, study: str) -> None:
    """Delete what a study leaves behind: partial files of dead writers, and Ray's folder."""
    store.checkpoints.sweep()
    shutil.rmtree(ray_folder(store, study), ignore_errors=True)


def ray_folder(store: Store, study: str) -> Path:
    """Folder of Ray's own files on the study. Nothing reads them."""
    return store.storage / "ray" / study.replace("/", "__")


def _decide(conductor: Conductor, records: Iterable[Record]) -> Iterator[tuple[str, bool]]:
    """Trials whose weights need a decision, and whether the weights are kept."""
    kept_keys, jobs = conductor.kept_keys(), {job.key: job for job in conductor.jobs()}
    for key, job in jobs.items():
        keep = key in kept_keys
        if job.role == "baseline" or job.outcome not in STRIPPED_OUTCOMES:
            continue
        # Dropped weights are gone and cannot be kept any more.
        if job.weights not in ("dropped", "kept" if keep else "dropped"):
            yield key, keep
    for record in records:
        # Trials of cells that the study has left, without a decision. Weights that were kept stay kept.
        left = record.key not in jobs and record.role in ("tuning", "replicate")
        if left and record.outcome in STRIPPED_OUTCOMES and not record.tags.get("weights"):
            yield record.key, False


def _strip(checkpoints: CheckpointStore, key: str, keep: bool, replace: bool, folder: Path) -> Path | None:
    """Strip a checkpoint, in place if `replace`. Returns a copy of the weights in `folder` if they are kept."""
    content = checkpoint.strip(checkpoints, key, keep, replace=replace)
    if not keep:
        return None
    file = folder / f"{key}{checkpoint.SUFFIX}"
    file.write_bytes(content)
    return file
