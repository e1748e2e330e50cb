"""Stores are found, made and checked. An unusable store gives an error of one line."""

import gc
import json
import multiprocessing
import os
import re
import shutil
import socket
import sqlite3
import stat
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from sqlalchemy.orm import Session

from loopscale.records.model import Note, StoreError
from loopscale.records.stores.base import Store
from loopscale.records.stores.folder import FolderStore
from loopscale.records.stores.opening import open_store
from loopscale.records.stores.server import ServerStore
from loopscale.records.study_records import recorded_trials
from loopscale.records.writing.mlflow_writer import MlflowWriter
from tests.buckets import CREDENTIALS, Bucket
from tests.ports import free_port


def problem(where: object, create: bool) -> str:
    with pytest.raises(StoreError) as caught:
        open_store(str(where), create=create)
    text = str(caught.value)
    assert "\n" not in text
    assert "; " in text, "the problem; the remedy"
    return text


def test_the_argument_comes_before_our_variable_before_mlflows_variable_before_the_default(
    store: FolderStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    for name in ("argument", "ours", "mlflows", ".loopscale"):
        shutil.copytree(store.root, tmp_path / name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("LOOPSCALE_STORE", "ours")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", (tmp_path / "mlflows").as_uri())
    assert open_store("argument").root == tmp_path / "argument"
    assert open_store().root == tmp_path / "ours"
    monkeypatch.delenv("LOOPSCALE_STORE")
    assert open_store().root == tmp_path / "mlflows"
    monkeypatch.delenv("MLFLOW_TRACKING_URI")
    assert open_store().root == tmp_path / ".loopscale"


def test_checkpoints_lie_in_the_store_unless_storage_names_another_folder(store: FolderStore, tmp_path: Path):
    assert store.checkpoints.url == str(tmp_path / "store" / "checkpoints")
    fast = open_store(store.root, storage=tmp_path / "fast")
    assert fast.checkpoints.url == str(tmp_path / "fast" / "checkpoints")


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(
    ("storage", "message"),
    [
        ("ftp://somewhere/x", "checkpoints cannot be kept at ftp://somewhere/x"),
        ("s3://key:secret@bucket/x", "put credentials into the environment"),
        ("s3://bucket/x?endpoint_override=127.0.0.1:1&scheme=http", "cannot reach s3://bucket/x"),
        ("nothing-here", "there is no bucket nothing-here"),
        ("forbidden", "may not use s3://studies/a/prefix"),
    ],
)
def test_an_unusable_bucket_is_an_error_and_no_store_is_made(
    storage: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    for name, value in CREDENTIALS.items():
        monkeypatch.setenv(name, value)
    server = Bucket(tmp_path)
    if "://" not in storage:
        server.start()
        if storage == "forbidden":
            server.strict()
            storage = server.url
        else:
            storage = server.url.replace("s3://studies", f"s3://{storage}")
    with pytest.raises(StoreError, match=message) as caught:
        open_store(tmp_path / "fresh", storage, create=True)
    server.kill()
    assert "\n" not in str(caught.value)
    assert "secret" not in str(caught.value)
    assert not (tmp_path / "fresh").exists()


def test_reading_an_absent_store_makes_nothing_and_names_the_remedy(tmp_path: Path):
    assert problem(tmp_path / "none", create=False).endswith(
        "no records in " + str(tmp_path / "none") + " yet; `loopscale run` makes them"
    )
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("create", [True, False])
def test_a_file_is_not_a_store(tmp_path: Path, create: bool):
    (tmp_path / "file").write_text("")
    assert "is a file" in problem(tmp_path / "file", create)


@pytest.mark.parametrize("where", ["/proc/loopscale", "/dev/null/store"])
def test_an_unwritable_folder_is_reported(where: str):
    assert f"cannot write to {where}" in problem(where, create=True)


@pytest.mark.parametrize("create", [True, False])
def test_a_store_made_by_a_newer_version_is_left_alone(store: FolderStore, create: bool):
    (store.root / "format.json").write_text(json.dumps({"format": 2, "made_by": "9.9"}))
    text = problem(store.root, create)
    assert "loopscale 9.9 in format 2" in text
    assert "install a newer loopscale" in text


@pytest.mark.parametrize("create", [True, False])
def test_a_damaged_format_file_is_reported(store: FolderStore, create: bool):
    (store.root / "format.json").write_text("{")
    assert "format.json is damaged" in problem(store.root, create)


@pytest.mark.parametrize("create", [True, False])
def test_a_database_that_is_not_ours_is_left_alone(tmp_path: Path, create: bool):
    sqlite3.connect(tmp_path / "mlflow.db").execute("CREATE TABLE experiments (x)").connection.close()
    assert "was not made by loopscale" in problem(tmp_path, create)


@pytest.mark.parametrize("create", [True, False])
@pytest.mark.parametrize("content", [b"garbage" * 1000, b""])
def test_a_damaged_database_is_reported(store: FolderStore, content: bytes, create: bool):
    (store.root / "mlflow.db").write_bytes(content)
    assert "or damaged" in problem(store.root, create)
    assert (store.root / "mlflow.db").read_bytes() == content


def test_a_database_of_another_mlflow_version_is_reported(store: FolderStore):
    with sqlite3.connect(store.root / "mlflow.db") as connection:
        connection.execute("UPDATE alembic_version SET version_num = 'abc'")
    connection.close()
    with pytest.raises(StoreError, match=r"another version of MLflow; .*mlflow db upgrade"):
        _ = open_store(store.root).client


def test_an_address_of_an_unknown_kind_gets_a_list_of_kinds():
    assert "give a folder, http://" in problem("ftp://somewhere", create=True)


@pytest.mark.parametrize(
    "where", ["http://127.0.0.1:{port}", "postgresql+psycopg://me:secret@127.0.0.1:{port}/x"]
)
def test_a_refused_connection_is_reported_without_a_wait(where: str, monkeypatch: pytest.MonkeyPatch):
    waits: list[float] = []
    sleep, tester = time.sleep, threading.get_ident()

    def noted(seconds: float) -> None:
        if threading.get_ident() == tester:
            waits.append(seconds)
        sleep(seconds)

    monkeypatch.setattr(time, "sleep", noted)
    text = problem(where.format(port=free_port()), create=True)
    assert "answers at" in text
    assert "secret" not in text
    assert waits == []


@pytest.mark.slow
def test_a_silent_server_is_given_up_after_one_wait_of_five_seconds():
    """A client with the patience of 20 s starts first, and still waits at the end: on a slow machine it is slow too."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        with (
            socket.create_connection(("127.0.0.1", port), timeout=20) as patient,
            ThreadPoolExecutor(1) as side,
        ):
            answer = side.submit(patient.recv, 1)
            start = time.monotonic()
            assert "no tracking server answers" in problem(f"http://127.0.0.1:{port}", create=True)
            assert time.monotonic() - start > 4
            assert not answer.done()
            patient.shutdown(socket.SHUT_RDWR)
            assert answer.result() == b""
        silent.setblocking(False)
        for _ in range(2):
            silent.accept()[0].close()
        with pytest.raises(BlockingIOError):
            silent.accept()


def test_a_store_works_at_any_path_and_in_any_working_directory(tmp_path: Path, trials, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("it's").mkdir()
    monkeypatch.chdir("it's")
    store = open_store("odd 'q' \"d\" ?a=b#c%20&;@:ü", create=True)
    with MlflowWriter(store, "odd ?#%/'name\"", {}) as writer:
        for note in trials.whole("a"):
            writer.write(note)
    assert [record.outcome for record in recorded_trials(store, "odd ?#%/'name\"")] == ["finished"]
    assert store.studies() == ["odd ?#%/'name\""]
    assert [path.name for path in Path().iterdir()] == [store.root.name]
    assert len(list(store.root.glob("artifacts/*/artifacts/curve.parquet"))) == 1


def test_a_moved_store_finds_its_artifacts(store: FolderStore, tmp_path: Path, trials):
    with MlflowWriter(store, "study", {}) as writer:
        for note in trials.whole("a"):
            writer.write(note)
        writer.flush(30)
        run = writer.runs["a"]
    shutil.copytree(tmp_path / "store", tmp_path / "moved")
    shutil.rmtree(tmp_path / "store")
    file = open_store(tmp_path / "moved").artifact(run, "curve.parquet")
    assert file
    assert file.read_bytes() == trials.curve


def test_a_copied_store_puts_new_artifacts_into_its_own_folder(store: FolderStore, tmp_path: Path, trials):
    def record(into: Store, *keys: str) -> dict[str, str]:
        with MlflowWriter(into, "study", {}) as writer:
            for note in (note for key in keys for note in trials.whole(key)):
                writer.write(note)
            assert writer.flush(30)
            assert not writer.refused
            return writer.runs

    old = record(store, "a")["a"]
    shutil.copytree(tmp_path / "store", tmp_path / "copied")
    copy = open_store(tmp_path / "copied", create=True)
    new = record(copy, "b")["b"]
    assert (tmp_path / "copied/artifacts" / new).is_dir()
    assert not (tmp_path / "store/artifacts" / new).exists()
    shutil.rmtree(tmp_path / "store")
    assert {found.path for found in copy.client.list_artifacts(old)} == {"curve.parquet"}


def test_experiments_that_loopscale_did_not_make_are_not_studies(store: FolderStore):
    store.client.create_experiment("mine")
    store.make_experiment("ours")
    assert store.studies() == ["ours"]
    with pytest.raises(StoreError, match="an experiment mine that loopscale did not make"):
        store.make_experiment("mine")


def test_the_error_for_a_deleted_study_names_the_remedy(store: FolderStore):
    store.client.delete_experiment(store.make_experiment("gone"))
    with pytest.raises(StoreError, match=r"were deleted in MLflow; .mlflow experiments restore"):
        store.make_experiment("gone")


def test_records_of_a_newer_version_on_a_server_are_left_alone(store: FolderStore):
    store.client.set_experiment_tag(store.make_experiment("new"), "loopscale.format", "7")
    with pytest.raises(StoreError, match="have format 7"):
        store.find_experiment("new")


@pytest.mark.slow
def test_opening_and_reading_print_nothing_and_send_no_telemetry(store: FolderStore):
    store.make_experiment("a")
    code = (
        "from loopscale.records.stores.opening import open_store;"
        "s = open_store(); s.parent_run('a'); s.make_experiment('b'); s.studies();"
        "from mlflow.telemetry.utils import is_telemetry_disabled; assert is_telemetry_disabled()"
    )
    environment = {
        name: value for name, value in os.environ.items() if name not in ("CI", "PYTEST_CURRENT_TEST")
    }
    environment |= {"LOOPSCALE_STORE": str(store.root)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def _open(folder: str, results: multiprocessing.Queue) -> None:
    store = open_store(folder, create=True)
    results.put(store.make_experiment("shared"))


@pytest.mark.slow
def test_processes_that_open_a_new_store_together_get_the_same_store(tmp_path: Path):
    context = multiprocessing.get_context("spawn")
    results = context.Queue()
    processes = [context.Process(target=_open, args=(str(tmp_path / "s"), results)) for _ in range(4)]
    for process in processes:
        process.start()
    assert len({results.get(timeout=120) for _ in processes}) == 1
    for process in processes:
        process.join()


@pytest.mark.slow
def test_a_new_store_has_the_tables_of_mlflow(tmp_path: Path):
    """Tests copy a migrated database. Another process has no copy, and lets MLflow migrate."""
    code = "import sys; from loopscale.records.stores.opening import open_store; open_store(sys.argv[1], create=True)"
    subprocess.run([sys.executable, "-c", code, tmp_path / "migrated"], check=True)
    open_store(tmp_path / "copied", create=True)
    contents = list[tuple[object, ...]]()
    for place in (tmp_path / "migrated", tmp_path / "copied"):
        with closing(sqlite3.connect(place / "mlflow.db")) as database:
            rows = database.execute("SELECT type, name, tbl_name, sql FROM sqlite_master")
            # The migrations write the constraints of a table in any order.
            tables = {(*names, *sorted(re.split(r",?\s*\n\s*", sql or ""))) for *names, sql in rows}
            version = database.execute("SELECT * FROM alembic_version").fetchall()
            columns = "experiment_id, name, lifecycle_stage, replace(artifact_location, ?, '')"
            experiments = database.execute(f"SELECT {columns} FROM experiments", [str(place)]).fetchall()
            contents.append((tables, version, experiments))
    assert contents[0] == contents[1]


@pytest.mark.slow
def test_a_store_can_be_opened_after_its_maker_was_killed(tmp_path: Path):
    code = f"from loopscale.records.stores.opening import open_store; open_store({str(tmp_path / 's')!r}, create=True)"
    for wait in (0.3, 0.8, 1.2, 1.6, 2.0, 2.5):
        process = subprocess.Popen([sys.executable, "-c", code])
        time.sleep(wait)
        process.kill()
        process.wait()
    store = open_store(tmp_path / "s", create=True)
    assert store.make_experiment("a")
    assert not (tmp_path / "s" / "new").exists()


def test_threads_that_write_two_studies_do_not_disturb_each_other(store: FolderStore, trials):
    def record(study: str) -> None:
        with MlflowWriter(store, study, {}) as writer:
            for key in "abc":
                for note in trials.whole(key):
                    writer.write(note)
            writer.write(Note("study", tags={"commit": "1"}))

    threads = [threading.Thread(target=record, args=(study,)) for study in ("one", "two")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for study in ("one", "two"):
        assert [record.key for record in recorded_trials(store, study)] == ["a", "b", "c"]


def test_a_new_store_and_its_storage_are_private_to_their_user(tmp_path: Path):
    store, storage = tmp_path / "new" / "store", tmp_path / "fast" / "storage"
    opened = open_store(store, storage=storage, create=True)
    opened.checkpoints.make()
    for folder in (store, storage, storage / "checkpoints"):
        assert stat.S_IMODE(folder.stat().st_mode) == 0o700, folder


def test_a_folder_that_a_group_shares_keeps_its_permissions(tmp_path: Path):
    folders = tmp_path / "store", tmp_path / "storage"
    for folder in folders:
        folder.mkdir()
        folder.chmod(0o770)
    open_store(folders[0], storage=folders[1], create=True)
    assert [stat.S_IMODE(folder.stat().st_mode) for folder in folders] == [0o770, 0o770]


def test_a_database_gets_a_private_storage_folder(tmp_path: Path):
    storage = tmp_path / "storage"
    open_store(f"sqlite:///{tmp_path}/records.db", storage=storage, create=True)
    assert stat.S_IMODE(storage.stat().st_mode) == 0o700


def test_artifacts_of_a_copied_store_do_not_reach_the_original(store: FolderStore, tmp_path: Path):
    """In one process, which has written to the same run before."""
    with MlflowWriter(store, "one", {}) as writer:
        writer.write(Note("study", tags={"commit": "1"}, artifacts=(("before.txt", b"1"),)))
        assert writer.flush(60)
    shutil.copytree(store.root, tmp_path / "copy")
    copy = open_store(tmp_path / "copy")
    with MlflowWriter(copy, "one", {}) as writer:
        writer.write(Note("study", artifacts=(("after.txt", b"2"),)))
        assert writer.flush(60)
    assert [file.name for file in (tmp_path / "copy").rglob("after.txt")] == ["after.txt"]
    assert not list(store.root.rglob("after.txt"))


def test_the_parent_run_of_a_folder_is_found_without_mlflow(store: FolderStore, trials):
    from tests.records.test_mirror import write

    write(store, *trials.whole("a"), *trials.whole("b"))
    experiment = store.require_experiment("one")
    through_mlflow = store.search([experiment], "tags.role = 'study'")
    assert [store.parent_run("one")] == through_mlflow
    assert store.parent_run("two") is None


def test_a_server_of_this_machine_is_reached_past_a_proxy(monkeypatch):
    """The proxy's port is closed. Without NO_PROXY a request would go there."""
    for name in ("no_proxy", "NO_PROXY", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NO_PROXY", "")  # so that the test's end removes what the store adds
    monkeypatch.setenv("no_proxy", "")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    with ThreadingHTTPServer(("127.0.0.1", 0), BaseHTTPRequestHandler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        ServerStore.check_reachable(f"http://127.0.0.1:{server.server_port}", create=True)
        server.shutdown()
    with pytest.raises(StoreError, match=r"by way of the proxy http://127.0.0.1:9.*; .*NO_PROXY"):
        ServerStore.check_reachable("http://tracking.invalid:5000", create=True)


def test_transactions_make_no_classes(store: FolderStore):
    """SQLAlchemy makes a class for each maker of sessions. Only a whole garbage collection removes classes."""
    with store.transaction():
        store.client.search_experiments()
    before = Session.__subclasses__()
    gc.disable()
    try:
        for _ in range(3):
            with store.transaction():
                store.client.search_experiments()
        assert [each for each in Session.__subclasses__() if each not in before] == []
    finally:
        gc.enable()
