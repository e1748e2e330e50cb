"""Tags of runs that are lost, and that settings, names and the recorded study prove."""

import json
import math
import re
from collections.abc import Iterator, Mapping
from functools import cached_property, partial
from pathlib import Path
from typing import Any

from typing_extensions import override

from loopscale.doctor.check import CannotMend, Check, Finding, Patient
from loopscale.doctor.second_evaluation import study_in, unwritten_jobs
from loopscale.records.mirror import Mirror
from loopscale.records.model import (
    OVER,
    STATUS,
    STEPS_FACTOR,
    STUDY,
    STUDY_FILE,
    STUDY_JSON,
    WEIGHTS,
    Run,
    flatten,
    json_object,
)
from loopscale.records.stores.lost_rows import tags_in_rows
from loopscale.runner.decide.job import Baseline
from loopscale.studies.cells import Cell
from loopscale.studies.spec import Study
from loopscale.training.trial import Trial

TUNING, REPLICATE = re.compile(r" #(\d+)( seed \d+)?"), re.compile(r" seed \d+")
"""Ends of the names of trials in MLflow, after the label of the cell (`records.writing.mlflow_writer`)."""
OF_TRAINED = ("cell", "label", "number", "point", "seed")
"""Tags that every trained trial has from its start. Baselines have fewer."""
OF_BASELINES = ("label", "number")
FROM_MIRROR = ("outcome", "detail", "floor")
"""Tags that the mirror may hold."""
NOT_RESTORED = (
    "no copy has the spent hours, predictions, decisions, versions, hosts, and the states of searches; "
    "`loopscale run {study}` counts hours from nothing, evaluates again, and repeats trials without a known outcome"
)


class LostTags(Check):
    """No run of a study has lost the tags that tell its trial."""

    name = "lost tags"
    stage = "records"

    @override
    def find(self, patient: Patient) -> Iterator[Finding]:
        if (root := patient.folder) is None:
            return
        for study in list(patient.studies):
            lost = [run for run in patient.studies[study] if _has_lost(run)]
            if lost:
                what = f"{len(lost):,} runs have lost their tags"
                remedy = "restore the database from a copy"
                yield Finding("error", study, what, remedy, partial(_restore, patient, root, study, lost))


def _has_lost(run: Run) -> bool:
    """True for a run of loopscale without an identity. Other programs may record runs in the experiment too."""
    tags = run.tags
    if tags and tags.get("mlflow.source.name") != "loopscale":
        return False
    if not {"trial", "role"} <= tags.keys():
        return True
    if tags["role"] == STUDY or "imported" in tags:
        return False
    if run.status == "FINISHED" and "outcome" not in tags:
        return True
    return not {*(OF_BASELINES if tags["role"] == "baseline" else OF_TRAINED)} <= tags.keys()


def _restore(patient: Patient, root: Path, study: str, lost: list[Run]) -> str:
    try:
        return _Restoration(patient, root, study).restore(lost)
    finally:
        patient.forget_runs()


class _Restoration:
    """The lost tags of the runs of one study."""

    def __init__(self, patient: Patient, root: Path, study: str) -> None:
        self.patient, self.study = patient, study
        self.in_rows = tags_in_rows(root)
        self.rows = Mirror(patient.store).kept_rows(study)

    @cached_property
    def parent(self) -> str:
        """The id of the parent run, which alone has the file of the study. Raises CannotMend."""
        known = self.patient.parent(self.study)
        runs = [known] if known else self.patient.studies[self.study]
        for run in runs:
            if any(self.patient.store.read_artifact(run.id, name) for name in (STUDY_FILE, STUDY_JSON)):
                return run.id
        raise CannotMend(f"no run has the recorded file of {self.study}")

    @cached_property
    def recorded(self) -> Study:
        """Raises CannotMend."""
        if (found := study_in(self.patient, self.parent, self.study)) is None:
            raise CannotMend(f"the recorded file of {self.study} is missing or damaged")
        return found

    @cached_property
    def baselines(self) -> dict[str, int]:
        """The number of every baseline of the study, by its key."""
        jobs = unwritten_jobs(self.recorded)
        return {job.key: job.number for job in jobs if job.role == "baseline"}

    def restore(self, lost: list[Run]) -> str:
        """Write what the tags of every run must be. Raises CannotMend if a run is of no trial of the study."""
        unknown: list[str] = []
        store = self.patient.store
        for run in lost:
            tags = self._of_parent(run) if run.id == self.parent else self._of_trial(run)
            if not tags:
                unknown.append(run.id)
                continue
            tags |= {"study": self.study, "mlflow.source.name": "loopscale"} | self.in_rows.get(run.id, {})
            store.log_tags(run.id, {key: text for key, text in tags.items() if key not in run.tags})
        if unknown:
            raise CannotMend(
                f"the tags of {len(lost) - len(unknown):,} runs are back; {len(unknown):,} runs are of no trial of the "
                f"recorded study, the first {unknown[0]}"
            )
        return f"{len(lost):,} runs have their trials again; {NOT_RESTORED.format(study=self.study)}"

    def _of_parent(self, run: Run) -> dict[str, str]:
        described = json_object(self.patient.store.read_artifact(run.id, STUDY_JSON)) or {}
        texts = {name: described.get(name) for name in ("question", "source")}
        found = {name: text for name, text in texts.items() if isinstance(text, str)}
        return {"trial": STUDY, "role": STUDY} | found

    def _of_trial(self, run: Run) -> dict[str, str]:
        """The tags of a trial or baseline; empty if the settings are of none of the study."""
        settings = _tree(run.params)
        try:
            if "solver" in settings:
                tags = self._of_baseline(Baseline.model_validate(settings))
            else:
                tags = self._of_trained(Trial.model_validate(settings), run)
        except (ValueError, TypeError):
            return {}
        if not tags:
            return {}
        tags |= {"mlflow.parentRunId": self.parent, "outcome": "finished"}
        if run.status != "FINISHED":
            tags["outcome"] = "interrupted"
        row = self.rows.get(run.id, {})
        if row.get("outcome") in OVER and STATUS.get(row["outcome"], "FAILED") == run.status:
            tags |= {name: row[name] for name in FROM_MIRROR if row.get(name)}
        if self.patient.store.read_artifact(run.id, WEIGHTS):
            tags["weights"] = "kept"
        return tags

    def _of_baseline(self, work: Baseline) -> dict[str, str]:
        if (number := self.baselines.get(work.key)) is None:
            return {}
        tags = {"trial": work.key, "role": "baseline", "cell": "", "label": work.solver.kind}
        return tags | {"number": str(number)}

    def _of_trained(self, trial: Trial, run: Run) -> dict[str, str]:
        found = self._place(trial)
        if not found:
            return {}
        cell, point, factor = found
        tags = {"trial": trial.key, "cell": cell.key, "label": cell.label, "point": json.dumps(point)}
        tags |= {"seed": str(trial.seed)} | ({STEPS_FACTOR: str(factor)} if factor > 1 else {})
        end = self.in_rows.get(run.id, {}).get("mlflow.runName", "").removeprefix(cell.label)
        if tuning := TUNING.fullmatch(end):
            return tags | {"role": "tuning", "number": tuning[1]}
        if REPLICATE.fullmatch(end):
            return tags | {"role": "replicate", "number": str(trial.seed)}
        return {}

    def _place(self, trial: Trial) -> tuple[Cell, dict[str, Any], int] | None:
        """The cell, the point and the factor of the steps, proved by the key: a hash of all settings."""
        settings = flatten(trial.settings)
        for cell in self.recorded.cells():
            if any(path in settings and settings[path] != value for path, value in cell.values.items()):
                continue
            axes = self.recorded.layout.spaces.get(cell.key, {})
            point = {path: settings[path] for path in axes if path in settings}
            try:
                steps = self.recorded.at(cell, point, trial.seed).training.steps
                factor = max(1, math.floor(trial.training.steps / steps))
                made = self.recorded.at(cell, point, trial.seed, factor)
            except (ValueError, TypeError, KeyError):
                continue
            if made.key == trial.key:
                return cell, point, factor
        return None


def _tree(params: Mapping[str, str]) -> dict[str, Any]:
    """The settings as a tree, from their texts by dotted path."""
    tree: dict[str, Any] = {}
    for path, text in params.items():
        *parents, leaf = path.split(".")
        branch = tree
        for parent in parents:
            branch = branch.setdefault(parent, {})
        try:
            branch[leaf] = json.loads(text)
        except (ValueError, RecursionError):
            branch[leaf] = text
    return tree
