"""`loopscale rename` and `loopscale delete`."""

import shutil
from pathlib import Path

import mlflow
import pytest

from loopscale.records.stores.opening import open_store
from loopscale.runner.lease import lease
from loopscale.training.checkpoint import CHECKPOINT_SUFFIX


@pytest.fixture
def records(store, elsewhere: Path) -> Path:
    """A store that the test may change."""
    shutil.copytree(store, elsewhere / "records")
    return elsewhere / "records"


def names(loopscale, records: Path) -> list[str]:
    return [study["study"] for study in loopscale("list", "--store", records, "--json").json]


def test_a_renamed_study_has_its_answers_under_the_new_name(loopscale, records: Path):
    before = loopscale("best", "tiny", "--store", records, "--json").json["cells"]
    answer = loopscale("rename", "tiny", "scaling/heads", "--store", records)
    assert answer.out.startswith("the records of tiny (10 trials) are now those of scaling/heads")
    assert names(loopscale, records) == ["scaling/heads"]
    assert loopscale("best", "scaling/heads", "--store", records, "--json").json["cells"] == before
    studies = loopscale("query", "SELECT DISTINCT study FROM trials", "--store", records, "--json").json
    assert studies == [{"study": "scaling/heads"}]
    assert "no records of tiny" in loopscale("best", "tiny", "--store", records).err
    place = open_store(records)
    runs = place.runs(place.require_experiment("scaling/heads"))
    assert {run.tags["study"] for run in runs if run.is_trial} == {"scaling/heads"}


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("content", [b"", b"{", b"[]", None])
def test_a_study_with_a_damaged_description_is_renamed(loopscale, records: Path, content: bytes | None):
    (description,) = records.glob("artifacts/*/artifacts/study.json")
    description.unlink() if content is None else description.write_bytes(content)
    answer = loopscale("rename", "tiny", "other", "--store", records)
    assert (answer.code, answer.err) == (0, "")
    assert names(loopscale, records) == ["other"]
    assert (description.read_bytes() if description.exists() else None) == content


def test_a_run_goes_on_with_renamed_records(loopscale, records: Path, study_file: Path):
    loopscale("rename", "tiny", "other", "--store", records)
    (renamed := study_file.with_name("other.yaml")).write_text(study_file.read_text())
    left = loopscale("plan", renamed, "--rate", "1e9", "--store", records, "--json").json["left"]
    assert left["trials"] == 0


@pytest.mark.slow
def test_names_that_are_taken_held_or_impossible_are_refused_in_one_line(loopscale, records: Path):
    for words, message in (
        (["tiny", "tiny"], "give another one"),
        (["absent", "other"], "no records of absent"),
        (["tiny", "../up"], "../up"),
        (["tiny", "a" * 300], "300 characters are too many for the name of a study; use at most 200"),
        (["tiny", "a/" * 4000 + "a"], "8,001 characters are too many"),
    ):
        refused = loopscale("rename", *words, "--store", records)
        assert (refused.code, refused.err.count("\n")) == (2, 1), refused.err
        assert message in refused.err
    with lease(open_store(records).storage, "tiny"):
        assert "tiny is being run by" in loopscale("rename", "tiny", "other", "--store", records).err
        assert "tiny is being run by" in loopscale("delete", "tiny", "--yes", "--store", records).err
    assert names(loopscale, records) == ["tiny"]


def test_a_deleted_study_is_in_the_trash_and_its_name_is_free(loopscale, records: Path):
    place = open_store(records)
    place.checkpoints.make()
    key = next(run.tags["trial"] for run in place.runs(place.require_experiment("tiny")) if run.is_trial)
    place.checkpoints.put(key + CHECKPOINT_SUFFIX, b"a state")
    assert "this deletes 10 trials of tiny; add --yes" in loopscale("delete", "tiny", "--store", records).err
    answer = loopscale("delete", "tiny", "--yes", "--store", records)
    assert answer.out.startswith("10 trials of tiny are in MLflow's trash, as 'tiny (deleted 20")
    assert names(loopscale, records) == []
    assert key not in "".join(place.checkpoints.names())
    found = place.client.search_experiments(mlflow.entities.ViewType.DELETED_ONLY)
    assert [each.name.partition(" (")[0] for each in found] == ["tiny"]
    assert place.make_experiment("tiny") not in [each.experiment_id for each in found]


def test_a_rename_that_the_database_refuses_halfway_changes_no_name(
    loopscale, records: Path, monkeypatch: pytest.MonkeyPatch
):
    """As on a disk that is full after some of the tags."""
    answers = iter([None, None])

    def refuse(*_: object, **__: object) -> None:
        if next(answers, "over") == "over":
            raise mlflow.exceptions.MlflowException(
                "(sqlite3.OperationalError) database or disk is full [SQL: ...]"
            )

    monkeypatch.setattr(mlflow.MlflowClient, "set_tag", refuse)
    refused = loopscale("rename", "tiny", "other", "--store", records)
    assert (refused.code, refused.err.count("\n")) == (2, 1)
    assert "disk is full); make room on the disk of the store" in refused.err
    monkeypatch.undo()
    assert names(loopscale, records) == ["tiny"]
