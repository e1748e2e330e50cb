"""Checkpoints, and the copies of kept weights in the records."""

from collections.abc import Iterator
from functools import partial

from typing_extensions import override

from loopscale.doctor.check import CannotMend, Check, Finding, Patient
from loopscale.doctor.checks.places import misplaced
from loopscale.records.model import WEIGHTS, Run
from loopscale.records.weights import restore_weights
from loopscale.training import checkpoint
from loopscale.training.checkpoint import CHECKPOINT_SUFFIX
from loopscale.training.storage import StorageDenied

ASIDE = ".damaged"
"""Suffix of a damaged checkpoint that was put aside."""


class Weights(Check):
    """Every checkpoint is whole and of the trial that its name tells, and kept weights have a copy in the records."""

    name = "weights"
    stage = "sources"

    @override
    def find(self, patient: Patient) -> Iterator[Finding]:
        if patient.store.read_only:
            return
        checkpoints = patient.store.checkpoints
        runs = {run.tags["trial"]: (study, run) for study, run in patient.trials}
        kept = {key: found for key, found in runs.items() if found[1].tags.get("weights") == "kept"}
        present = checkpoint.keys(checkpoints)
        reported = {str(path) for path, _ in misplaced(patient)}
        for key in sorted(present | kept.keys()):
            if checkpoint.place(checkpoints, key) in reported:
                continue
            if key not in present and "imported" in runs[key][1].tags:
                continue  # an import makes no checkpoints, so their folder may be absent too
            steps = int(runs[key][1].metrics.get("step", 0)) if key in runs else 0
            try:
                condition = checkpoint.condition(checkpoints, key, steps)
            except checkpoint.NewerFormat as problem:
                what, _, remedy = str(problem).partition("; ")
                yield Finding("warning", checkpoint.place(checkpoints, key), what, remedy)
                continue
            except StorageDenied as problem:  # of this file alone
                what, _, remedy = str(problem).partition("; ")
                yield Finding("error", checkpoint.place(checkpoints, key), what, remedy)
                continue
            if key in kept:
                yield from _kept(patient, key, *kept[key], condition)
            elif condition == "damaged":
                yield Finding(
                    "warning",
                    checkpoint.place(checkpoints, key),
                    "the checkpoint is damaged, and no result needs the checkpoint",
                    "remove the file; a trial under way then starts from the beginning",
                    partial(_put_aside, patient, key),
                )


def _kept(
    patient: Patient, key: str, study: str, run: Run, condition: checkpoint.Condition
) -> Iterator[Finding]:
    """The findings of a trial whose weights were kept twice."""
    content = patient.store.read_artifact(run.id, WEIGHTS)
    recorded = content is not None and checkpoint.is_whole(content, key)
    place, trained = checkpoint.place(patient.store.checkpoints, key), condition == "trained"
    if trained and recorded:
        return
    if trained and run.tags.get("outcome") == "finished":
        what = f"the copy of the weights in the records is {'damaged' if content is not None else 'missing'}"
        remedy = f"copy {place} to {WEIGHTS} of the run"
        yield Finding("warning", f"trial {key} of {study}", what, remedy, partial(_record, patient, key, run))
    elif recorded and not (condition == "absent" and "imported" in run.tags):
        what = f"the checkpoint is {condition}, and its copy in the records is whole"
        yield Finding(
            "warning", place, what, f"copy {WEIGHTS} of the run there", partial(_restore, patient, key, run)
        )
    elif not trained and "imported" not in run.tags:
        what = f"the weights of trial {key} of {study} are lost: the checkpoint is {condition}, and there is no copy"
        remedy = f"delete run {run.id} in MLflow, and `loopscale run {study}` trains the trial again"
        yield Finding("error", place, what, remedy)


def _restore(patient: Patient, key: str, run: Run) -> str:
    if not restore_weights(patient.store, key, run.id):
        raise CannotMend("the copy in the records is damaged too")
    return "restored from the copy in the records"


def _record(patient: Patient, key: str, run: Run) -> str:
    content = checkpoint.strip(patient.store.checkpoints, key, keep_weights=True, replace=False)
    patient.store.write_artifact(run.id, WEIGHTS, content)
    return "copied from the checkpoint"


def _put_aside(patient: Patient, key: str) -> str:
    checkpoints, name = patient.store.checkpoints, key + CHECKPOINT_SUFFIX
    checkpoints.put(name + ASIDE, checkpoints.get(name))
    checkpoints.delete(name)
    return f"the file was renamed to {name}{ASIDE}"
