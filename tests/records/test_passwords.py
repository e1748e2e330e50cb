"""Records, exports and reports hold no password, also where an older version has recorded one."""

import json

from loopscale.records.deferred_imports import parquet
from loopscale.records.model import STUDY, Note
from loopscale.records.stores.opening import open_store
from loopscale.records.study_records import origin_of
from loopscale.records.transfer import export_records, import_records
from loopscale.records.writing.mlflow_writer import MlflowWriter

COMMAND = "loopscale run one --store postgresql://me:tr0ub4dor@db/x"


def record(store, *notes: Note) -> None:
    with MlflowWriter(store, "one", {}) as writer:
        for note in notes:
            writer.write(note)
        assert writer.flush(60)


def test_no_tag_of_a_new_record_holds_a_password(store, trials):
    failed = Note("k", tags={"outcome": "failed", "detail": f"OSError: {COMMAND}"}, status="FAILED")
    record(store, Note(STUDY, tags={"command": COMMAND}), trials.begun("k"), failed)
    texts = [text for run in store.runs(store.find_experiment("one")) for text in run.tags.values()]
    assert "loopscale run one --store postgresql://me@db/x" in texts
    assert not [text for text in texts if "tr0ub4dor" in text]


def test_an_export_and_a_report_of_older_records_hold_no_password(store, trials, tmp_path):
    record(store, Note(STUDY, tags={"question": "Is it safe?"}), *trials.whole("k"))
    parent = store.parent_run("one")
    store.client.set_tag(parent.id, "command", COMMAND)  # as versions before this one recorded
    assert "tr0ub4dor" not in json.dumps(origin_of(store, "one").tags)
    export_records(store, "one", tmp_path / "out")
    tags = json.loads(parquet.read_table(tmp_path / "out" / "studies.parquet")["tags"][0].as_py())
    assert tags["command"] == "loopscale run one --store postgresql://me@db/x"


def test_an_import_of_an_older_export_records_no_password(store, trials, tmp_path, monkeypatch):
    record(store, Note(STUDY, tags={"question": "Is it safe?"}), *trials.whole("k"))
    store.client.set_tag(store.parent_run("one").id, "command", COMMAND)
    monkeypatch.setattr("loopscale.records.transfer.safe_tags", dict)  # as older versions exported
    export_records(store, "one", tmp_path / "out")
    into = open_store(tmp_path / "into", create=True)
    import_records(into, tmp_path / "out")
    assert into.parent_run("one").tags["command"] == "loopscale run one --store postgresql://me@db/x"
