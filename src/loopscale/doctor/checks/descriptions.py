"""The recorded file and description of every study."""

import json
from collections.abc import Iterator
from functools import partial

import yaml
from typing_extensions import override

from loopscale.analysis.recorded.load import described_by_file
from loopscale.doctor.check import CannotMend, Check, Finding, Patient
from loopscale.notation.mistakes import Mistakes
from loopscale.records.mirror import Mirror
from loopscale.records.model import DAMAGE, STUDY_FILE, STUDY_JSON, Run, json_object, parse_description
from loopscale.studies.spec import Study


class Descriptions(Check):
    """Every study has its file and its description, and both can be read."""

    name = "descriptions"
    stage = "sources"

    @override
    def find(self, patient: Patient) -> Iterator[Finding]:
        for study in patient.studies:
            parent = patient.parent(study)
            if parent is None:
                continue
            file, description = (
                patient.store.read_artifact(parent.id, name) for name in (STUDY_FILE, STUDY_JSON)
            )
            remedy = f"`loopscale run {study}` writes the artifact again"
            # A driver writes both at its start. Without either, and without a copy in the mirror, no driver has begun.
            if file is None and description is None and not Mirror(patient.store).kept_description(study):
                continue
            if file is None or not _is_study(file):
                what = "the file is missing" if file is None else "the file is damaged"
                repair = partial(_restore_file, patient, study, parent)
                yield Finding("warning", f"{STUDY_FILE} of {study}", what, remedy, repair)
            if description is None or not _is_description(description):
                what = "the description is missing" if description is None else "the description is damaged"
                repair = partial(_restore_description, patient, study, parent)
                yield Finding("error", f"{STUDY_JSON} of {study}", what, remedy, repair)


def _is_study(content: bytes) -> bool:
    try:
        tree = yaml.safe_load(content)
    except (yaml.YAMLError, UnicodeDecodeError, RecursionError, ValueError):
        return False
    return isinstance(tree, dict) and "question" in tree


def _is_description(content: bytes) -> bool:
    try:
        return bool(parse_description(content)["cells"])
    except DAMAGE:
        return False


def _restore_description(patient: Patient, study: str, parent: Run) -> str:
    """Copy the description from the mirror, else make the description from the recorded file."""
    kept = Mirror(patient.store).kept_description(study)
    text = kept or described_by_file(patient.store, study)
    if not text:
        raise CannotMend("neither the mirror nor the recorded file tells the description")
    patient.store.write_artifact(parent.id, STUDY_JSON, text.encode())
    return f"restored from {'the mirror' if kept else STUDY_FILE}"


def _restore_file(patient: Patient, study: str, parent: Run) -> str:
    """Copy the file of the study's name, if the file still asks the recorded question with the recorded cells."""
    recorded = json_object(patient.store.read_artifact(parent.id, STUDY_JSON)) or {}
    recorded = recorded or json_object(Mirror(patient.store).kept_description(study)) or {}
    try:
        found = Study.load(study)
    except Mistakes as problem:
        raise CannotMend(f"there is no valid file of {study}") from problem
    own = json.loads(json.dumps(found.document()))
    if any(own.get(part) != recorded.get(part) for part in ("question", "cells")):
        raise CannotMend(f"{found.path} has changed since the last run")
    patient.store.write_artifact(parent.id, STUDY_FILE, found.text.encode())
    return f"restored from {found.path}"
