"""A parent run that somebody has deleted in MLflow: its hours stay spent, and the message names the run."""

import json
from pathlib import Path

import pytest

from loopscale.analysis.recorded.load import load_results
from loopscale.records.model import NoRecords, Note
from loopscale.records.stores.folder import FolderStore
from loopscale.records.study_records import spending_of
from loopscale.studies.spec import Study
from tests.cli.conftest import TINY, record


@pytest.fixture
def orphaned(store: FolderStore) -> tuple[FolderStore, str]:
    """A store with a study whose parent run is deleted, and the id of this run."""
    with record(Path(store.root), Study.parse(TINY, "tiny")) as recording:
        recording.whole()
        spent = json.dumps({"used": {"core_hours": 2.5, "hours": 3.0}, "budget": {"core_hours": 4}})
        recording.writer.write(Note("study", tags={"spent": spent}))
    parent = store.parent_run("tiny")
    assert parent
    store.client.delete_run(parent.id)
    return store, parent.id


def test_the_hours_of_a_deleted_parent_run_stay_spent(orphaned):
    assert spending_of(orphaned[0], "tiny").used == {"core_hours": 2.5, "hours": 3.0}


def test_the_error_for_a_study_without_a_parent_run_names_the_run_and_the_remedy(orphaned):
    store, parent = orphaned
    with pytest.raises(
        NoRecords, match=f"parent run of tiny .* is missing.*restore --run-id {parent}"
    ) as problem:
        load_results(store, "tiny")
    assert "did you mean" not in str(problem.value)
