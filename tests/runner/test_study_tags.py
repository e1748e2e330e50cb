"""Tags and a note of a study's file: in MLflow on the parent run, and in no key."""

import json
from pathlib import Path
from typing import Any

import pytest

import loopscale
from loopscale.notation.mistakes import Mistakes
from loopscale.records.model import RUN_NOTE, STUDY, STUDY_TAG, USED_PREFIXES, USED_TAGS, Note, study_tags
from loopscale.records.stores.opening import open_store
from loopscale.records.writing.mlflow_writer import MlflowWriter
from loopscale.runner.machine import provenance_tags
from loopscale.runner.run import _option_tags, _write_study
from loopscale.studies.spec import Study
from tests.runner.simulated_study import TREE

TAGS = {"team": "optics", "question": "of the group", "version.data": "3", "mlflow.user": "me", "a/b c": "λ"}
NOTE = "# Why\n\nBecause *Figure 3* has no *window* of 1.\n"
RECORDED = {
    "team": "optics",
    "study_tag.question": "of the group",
    "study_tag.version.data": "3",
    "study_tag.mlflow.user": "me",
    "a/b c": "λ",
    RUN_NOTE: NOTE,
}


def write(study: Study, place: Path) -> dict[str, str]:
    """Write the study to its parent run, as every driver does at its start; gives the tags of the parent run."""
    store = open_store(place, create=True)
    parent = store.parent_run(study.name)
    earlier = parent.tags if parent else {}
    runs = {STUDY: parent.id} if parent else {}
    with MlflowWriter(store, study.name, runs) as writer:
        tags = provenance_tags(place) | _option_tags(study, earlier, print)
        _write_study(study, writer, tags | study_tags(study.tags, study.note, earlier))
        writer.write(Note(STUDY, status="FINISHED"))
        assert writer.flush(60)
        assert not writer.refused
    parent = open_store(place).parent_run(study.name)
    assert parent
    return parent.tags


def test_tags_and_the_note_are_on_the_parent_run_and_replace_no_tag_of_the_records(tmp_path: Path):
    plain = write(Study.parse(TREE, "plain"), tmp_path / "store")
    tags = write(Study.parse(TREE | {"tags": TAGS, "note": NOTE}, "plain"), tmp_path / "store")
    assert {name: tags[name] for name in RECORDED} == RECORDED
    assert tags["question"] == plain["question"] == TREE["question"]
    assert tags.keys() - plain.keys() == RECORDED.keys() | {"study_tags"}
    assert all(name in USED_TAGS or name.startswith(USED_PREFIXES) for name in plain)
    changed = write(Study.parse(TREE | {"tags": {"team": "lasers"}}, "plain"), tmp_path / "store")
    assert changed["team"] == "lasers"
    assert {changed[name] for name in RECORDED if name != "team"} == {""}
    assert json.loads(changed["study_tags"]) == ["team"]
    assert json.loads(write(Study.parse(TREE, "plain"), tmp_path / "store")["study_tags"]) == []


def test_a_note_that_a_person_wrote_in_mlflow_stays(tmp_path: Path):
    study = Study.parse(TREE, "plain")
    write(study, tmp_path / "store")
    store = open_store(tmp_path / "store")
    parent = store.parent_run("plain")
    assert parent
    store.client.set_tag(parent.id, RUN_NOTE, "by hand")
    assert write(study, tmp_path / "store")[RUN_NOTE] == "by hand"


def test_no_key_and_no_description_depends_on_tags_and_notes():
    plain, tagged = Study.parse(TREE), Study.parse(TREE | {"tags": TAGS, "note": NOTE})
    assert tagged.document() == plain.document()
    assert [cell.key for cell in tagged.cells()] == [cell.key for cell in plain.cells()]
    for cell in plain.cells():
        assert tagged.at(cell, {}, 1).key == plain.at(cell, {}, 1).key


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (
            "tags: {'a=b': x}",
            "study:2: tags: MLflow takes no tag with the name 'a=b'; use at most 200 letters, digits, spaces, _ . : - "
            "and /",
        ),
        (
            "tags: {'../up': x}",
            "study:2: tags: MLflow takes no tag with the name '../up'; use at most 200 letters",
        ),
        ("tags: {team: ' '}", "study:2: tags: the tag team is empty; write a text, or leave out the tag"),
        ("tags:\n  year: 2026", "study:3: tags.year is 2026; write text"),
        (f"note: {'x' * 5001}", "study:2: note: 5,001 characters are written; write at most 5,000"),
    ],
)
def test_a_tag_that_mlflow_does_not_take_is_a_mistake_in_its_line(content: str, expected: str):
    fixed = "fixed: {task: {kind: linear_regression}, model: {kind: looped}}\n"
    with pytest.raises(Mistakes) as caught:
        Study.parse(f"question: q\n{content}\n{fixed}", "study")
    (mistake,) = caught.value.items
    assert str(mistake).startswith(expected)


@pytest.mark.slow
def test_every_tag_of_a_run_is_known_to_be_used(tmp_path: Path):
    """A new tag of the records belongs to `USED_TAGS`, so that no tag of a study has its name."""
    tree: dict[str, Any] = TREE | {
        "fixed": {**TREE["fixed"], "training": {"steps": 4, "batch_size": 4, "window": 1, "eval_every": 2}},
        "scientific": {"training.loops": [1, 2]},
        "where": "",
        "search": {"kind": "random", "trials": 2},
        "scheduler": {"kind": "none"},
        "stop": {"error_below": 100.0},
        "tags": TAGS,
        "note": NOTE,
    }
    loopscale.run(loopscale.Study.parse(tree, "tagged"), tmp_path / "store", [])
    store = open_store(tmp_path / "store")
    runs = store.runs(store.require_experiment("tagged"))
    parent = store.parent_run("tagged")
    assert parent
    assert RECORDED.items() <= parent.tags.items()
    used = {name for run in runs for name in run.tags} - (RECORDED.keys() - {RUN_NOTE})
    assert [name for name in used if name not in USED_TAGS and not name.startswith(USED_PREFIXES)] == []
    assert STUDY_TAG in USED_PREFIXES
