"""Which checkpoints are kept once a study has ended: weights of the replicates and of each cell's best, no optimiser.

Of all other trials the header stays, with the history, so that another study with an equal trial need not train it.
"""

from pathlib import Path

from loopscale.records.notes import WEIGHTS, Note
from loopscale.runner.conductor import Conductor
from loopscale.runner.report import checkpoint_path
from loopscale.training import checkpoint


def retain(conductor: Conductor, folder: Path) -> None:
    """Strip the checkpoints of trials that are over, and hand the weights that are kept to the records.

    Call it when everything that the checkpoints know has been written: their history is said no more.
    """
    keepers = conductor.keepers
    for job in list(conductor.jobs()):
        decided = "kept" if job.key in keepers else "dropped"
        path = checkpoint_path(folder, job.key)
        if (
            job.role == "baseline"
            or job.outcome not in ("finished", "pruned", "diverged")
            or not path.exists()
        ):
            continue
        if job.weights == decided or (job.weights == "dropped" and decided == "kept"):
            continue
        checkpoint.strip(path, keep_weights=decided == "kept")
        job.weights = decided
        artifacts = ((WEIGHTS, path),) if decided == "kept" and job.outcome == "finished" else ()
        conductor.writer.write(Note(job.key, tags={"weights": decided}, artifacts=artifacts))
