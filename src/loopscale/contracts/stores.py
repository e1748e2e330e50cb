"""The contract of every kind of store. A new file in `loopscale/records/stores` is tested here.

Each kind gets the same records by `loopscale import`, and must give the same records back. A kind that is only read
shows an export of the records.
"""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from loopscale.contracts.members import under_test
from loopscale.records.mirror import Mirror
from loopscale.records.model import CURVE, NoRecords, Note, StoreError
from loopscale.records.stores.base import Store, StoreKind
from loopscale.records.stores.exported import ABOUT
from loopscale.records.stores.opening import kind_at, open_store, store_place
from loopscale.records.tables import encode_curve
from loopscale.records.transfer import ImportCounts, export_records, import_records
from loopscale.records.writing.mlflow_writer import MlflowWriter

STORE_KINDS = [kind.model_validate({}) for kind in under_test(StoreKind).values()]
EVERY_KIND = pytest.mark.parametrize("kind", STORE_KINDS, ids=lambda kind: kind.kind)
WITH_EXAMPLE = [kind for kind in STORE_KINDS if kind.example(Path("/"), Path("/"))]
WITH_RECORDS = pytest.mark.parametrize("kind", WITH_EXAMPLE, ids=lambda kind: kind.kind)
STUDY_NAME, OTHER_STUDY = "a/planted study", "another"
Opened = Callable[[StoreKind], Store]


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Exported records of two finished trials."""
    source = open_store(tmp_path_factory.mktemp("source") / "store", create=True)
    grid = np.arange(6.0).reshape(2, 3)
    curve = encode_curve(grid, grid + 10, grid + 20)
    with MlflowWriter(source, STUDY_NAME, {}) as writer:
        description = b'{"question": "why?", "cells": []}'
        writer.write(Note("study", tags={"commit": "abc"}, artifacts=(("study.json", description),)))
        for key, error in (("a", 0.5), ("b", 0.25)):
            tags = {"cell": "c", "label": "width 8", "role": "replicate", "number": "0", "seed": "1"}
            settings = {"model.kind": "looped", "training.lr": 1e-3, "training.truncate": True}
            writer.write(Note(key, params=settings, tags=tags | {"outcome": "running"}, status="RUNNING"))
            for step in (10, 20):
                writer.write(Note(key, step, {"error": error * 20 / step, "step": step, "flops": 1e12}))
            ended, measures = {"outcome": "finished"}, {"evaluate/error": error}
            files = ((CURVE, curve),)
            writer.write(Note(key, 20, measures, tags=ended, status="FINISHED", artifacts=files))
        assert writer.flush(60)
    folder = tmp_path_factory.mktemp("exported") / "records"
    export_records(source, None, folder)
    return folder


@pytest.fixture(scope="module")
def opened(exported: Path, tmp_path_factory: pytest.TempPathFactory) -> Opened:
    """Opens the example of a kind, with the records."""
    stores = dict[str, Store]()

    def open_example(kind: StoreKind) -> Store:
        if kind.kind not in stores:
            folder = tmp_path_factory.mktemp(kind.kind)
            stores[kind.kind] = filled(kind.example(folder, exported), folder, exported)
        return stores[kind.kind]

    return open_example


def filled(place: str, folder: Path, exported: Path) -> Store:
    """The store at an address with the records, which a read-only store has already."""
    try:
        store = open_store(place, folder / "storage", create=True)
    except StoreError:
        return open_store(place, folder / "storage")
    import_records(store, exported)
    return store


def tables(store: Store) -> dict[str, list[dict[str, object]]]:
    mirror = Mirror(store)
    mirror.sync()
    names = ("trials", "history", "curves")
    return {name: mirror.query(f"SELECT * FROM {name} ORDER BY ALL").to_pylist() for name in names}


@EVERY_KIND
def test_a_kind_has_addresses_or_marks_its_folders(kind: StoreKind):
    assert bool(kind.schemes) is not bool(kind.marker)
    assert not (kind.is_storage and kind.schemes)
    assert all(kind.has_scheme(scheme) for scheme in kind.schemes)


@EVERY_KIND
def test_no_other_kind_has_the_same_addresses_or_the_same_mark(kind: StoreKind):
    others = [other() for each, other in StoreKind.choices().items() if each != kind.kind]
    assert not [other.kind for other in others if any(map(other.has_scheme, kind.schemes))]
    assert not [other.kind for other in others if kind.marker and other.marker == kind.marker]


@WITH_RECORDS
def test_the_example_is_a_place_of_the_kind(kind: StoreKind, tmp_path: Path):
    (tmp_path / ABOUT).touch()
    assert kind_at(store_place(kind.example(tmp_path / "new", tmp_path))) == kind


@pytest.mark.slow
@WITH_RECORDS
def test_a_place_without_records_stays_as_it_is(kind: StoreKind, tmp_path: Path):
    place = kind.example(tmp_path, tmp_path / "nothing")
    with pytest.raises((NoRecords, StoreError)):
        open_store(place, tmp_path / "storage")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
@WITH_RECORDS
def test_records_come_back_as_they_went_in(kind: StoreKind, opened: Opened, exported: Path, tmp_path: Path):
    store, wanted = opened(kind), tables(open_store(exported, tmp_path / "storage"))
    assert [len(rows) for rows in wanted.values()] == [2, 4, 12]
    assert tables(store) == wanted
    assert store.studies() == [STUDY_NAME]


@pytest.mark.slow
@WITH_RECORDS
def test_another_study_has_no_records(kind: StoreKind, opened: Opened):
    assert opened(kind).find_experiment(OTHER_STUDY) is None
    assert opened(kind).parent_run(OTHER_STUDY) is None
    with pytest.raises(NoRecords):
        opened(kind).require_experiment(OTHER_STUDY)


@pytest.mark.slow
@WITH_RECORDS
def test_runs_are_listed_in_the_order_of_their_start(kind: StoreKind, opened: Opened):
    store = opened(kind)
    runs = store.runs(store.require_experiment(STUDY_NAME))
    assert [run.start for run in runs] == sorted(run.start for run in runs)
    parent = store.parent_run(STUDY_NAME)
    assert parent
    assert [run.is_trial for run in runs].count(False) == 1
    assert parent.id in [run.id for run in runs if not run.is_trial]


@pytest.mark.slow
@WITH_RECORDS
def test_an_absent_file_of_a_run_is_none(kind: StoreKind, opened: Opened, tmp_path: Path):
    store = opened(kind)
    for run in store.runs(store.require_experiment(STUDY_NAME)):
        assert store.artifact(run.id, "no such file", tmp_path) is None
        assert store.read_artifact(run.id, "no such file") is None


@pytest.mark.slow
@WITH_RECORDS
def test_a_store_that_is_only_read_refuses_and_another_takes_no_record_twice(
    kind: StoreKind, opened: Opened, exported: Path
):
    store, before = opened(kind), tables(opened(kind))
    if store.read_only:
        with pytest.raises(StoreError):
            store.make_experiment(OTHER_STUDY)
    else:
        assert import_records(store, exported) == ImportCounts(new=0, present=2)
    assert tables(store) == before


@pytest.mark.slow
@WITH_RECORDS
def test_a_change_of_the_records_changes_the_stamp(kind: StoreKind, opened: Opened):
    store = opened(kind)
    before = store.change_stamp()
    if before is not None and not store.read_only:
        parent = store.parent_run(STUDY_NAME)
        assert parent
        store.log_tags(parent.id, {"loopscale.contract": "changed"})
        assert store.change_stamp() != before
    assert store.change_stamp() == store.change_stamp()
