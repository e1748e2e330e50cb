"""Every option that names a file writes into links and devices, and replaces nothing but regular files."""

import os
import shutil
import stat
from pathlib import Path

import pytest

from loopscale.studies.spec import Study


def device(file: Path, minor: int) -> Path:
    if os.getuid() != 0:
        pytest.skip("only root makes device files")
    os.mknod(file, 0o666 | stat.S_IFCHR, os.makedev(1, minor))
    return file


NULL, FULL = 3, 7
"""The device that takes everything, and the device that takes nothing."""
TARGETS = [["report", "tiny", "--out"], ["compare", "tiny", "second", "--out"]]


@pytest.fixture(scope="module")
def second(recording, store: Path, study_file: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with two studies."""
    folder = tmp_path_factory.mktemp("second")
    file = folder / "second.yaml"
    file.write_text(study_file.read_text())
    shutil.copytree(store, folder / "records", ignore=shutil.ignore_patterns("mirror", "reports"))
    with recording(folder / "records", Study.load(file)) as made:
        made.whole()
    return folder / "records"


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("words", TARGETS, ids=lambda words: words[0])
def test_a_page_goes_through_links_and_into_devices(loopscale, second: Path, elsewhere: Path, words):
    null = device(elsewhere / "null", NULL)
    (elsewhere / "link").symlink_to("page.html")
    assert loopscale(*words, "null", "--store", second).code == 0
    assert stat.S_ISCHR(null.lstat().st_mode)
    assert loopscale(*words, "link", "--store", second).code == 0
    assert (elsewhere / "link").is_symlink()
    assert "<html" in (elsewhere / "page.html").read_text()


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("words", TARGETS, ids=lambda words: words[0])
def test_a_target_that_takes_no_page_is_a_mistake_and_stays(loopscale, second: Path, elsewhere: Path, words):
    full = device(elsewhere / "full", FULL)
    os.mkfifo(elsewhere / "pipe")
    (elsewhere / "folder").mkdir()
    reasons = {"full": "No space left on device", "pipe": "no program reads the pipe"}
    for name, reason in (reasons | {"folder": "it is a folder"}).items():
        answer = loopscale(*words, name, "--store", second)
        assert (answer.code, answer.err) == (
            2,
            f"cannot write {name} ({reason}); give another file with --out\n",
        )
    assert stat.S_ISCHR(full.lstat().st_mode)
    assert stat.S_ISFIFO((elsewhere / "pipe").lstat().st_mode)


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("words", TARGETS, ids=lambda words: words[0])
def test_a_page_replaces_no_file_but_a_page(loopscale, second: Path, elsewhere: Path, words):
    study = elsewhere / "victim.yaml"
    study.write_text("question: Why?\n")
    answer = loopscale(*words, "victim.yaml", "--store", second)
    assert (answer.code, answer.out, study.read_text()) == (2, "", "question: Why?\n")
    reason = "it exists and is no HTML page"
    assert answer.err == f"cannot write victim.yaml ({reason}); give another file with --out\n"
    (elsewhere / "page.html").write_bytes(b"")
    for _ in ("onto an empty file", "onto a page"):
        assert loopscale(*words, "page.html", "--store", second).code == 0
        assert "<html" in (elsewhere / "page.html").read_text()


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("words", TARGETS, ids=lambda words: words[0])
def test_a_page_replaces_nothing_in_a_store_but_its_reports(
    loopscale, second: Path, elsewhere: Path, words, tmp_path_factory
):
    store = elsewhere / "records"
    shutil.copytree(second, store)
    assert loopscale("best", "tiny", "--store", store).code == 0  # makes the mirror
    (store / "reports").mkdir(exist_ok=True)
    (store / "reports" / "link.html").symlink_to("../mlflow.db")
    (elsewhere / "link.html").symlink_to("records/format.json")
    before = {file: file.read_bytes() for file in store.rglob("*") if file.is_file()}
    inside = ["mlflow.db", "new.html", "artifacts/new.html", "mirror/new.html", "reports/../format.json"]
    for name in (*(f"records/{file}" for file in inside), "records/reports/link.html", "link.html"):
        answer = loopscale(*words, name, "--store", store)
        place = f"{name} lies in the store {store}"
        assert (answer.code, answer.out) == (2, "")
        assert answer.err == f"{place}; give --out a file outside of all stores, or in {store}/reports\n"
    after = {file: file.read_bytes() for file in store.rglob("*") if file.is_file()}
    changed = {file.name for file in after if after[file] != before.get(file)}
    assert changed <= {"mlflow.db-shm", "mlflow.db-wal"}
    assert loopscale(*words, "records/reports/mine.html", "--store", store).code == 0
    assert "<html" in (store / "reports" / "mine.html").read_text()


@pytest.mark.parametrize("option", ["--to", "--csv", "--parquet", "--optuna"])
def test_an_export_is_written_outside_of_stores(loopscale, records: Path, option: str):
    answer = loopscale("export", "tiny", "--store", records, option, "records/mirror/new")
    assert (answer.code, answer.out, answer.err.count("\n")) == (2, "", 1)
    assert f"records/mirror/new lies in the store {records}; give " in answer.err
    assert not (records / "mirror" / "new").exists()


@pytest.mark.parametrize(
    ("option", "name"), [("--csv", "trials.csv"), ("--parquet", "curves.parquet"), ("--to", "trials.parquet")]
)
def test_an_export_goes_through_links_and_spares_devices(
    loopscale, store: Path, elsewhere: Path, option: str, name: str
):
    folder = elsewhere / "out"
    folder.mkdir()
    (folder / name).symlink_to("../linked")
    assert loopscale("export", "tiny", "--store", store, option, "out").code == 0
    assert (folder / name).is_symlink()
    assert (elsewhere / "linked").stat().st_size > 0
    (folder / name).unlink()
    full = device(folder / name, FULL)
    answer = loopscale("export", "tiny", "--store", store, option, "out")
    assert (answer.code, answer.err.count("\n")) == (2, 1)
    assert answer.err == "the disk of out is full; make room there, or give another folder\n"
    assert stat.S_ISCHR(full.lstat().st_mode)


def test_an_export_deletes_only_the_weights_of_an_earlier_export(loopscale, store: Path, elsewhere: Path):
    own = elsewhere / "out" / "weights" / "mine.txt"
    own.parent.mkdir(parents=True)
    own.write_text("mine")
    (own.parent / "0123456789abcdef.safetensors").write_text("of an earlier export")
    assert loopscale("export", "tiny", "--store", store, "--to", "out").code == 0
    assert os.listdir(own.parent) == ["mine.txt"]


def test_tuning_for_optuna_goes_through_a_link(loopscale, store: Path, elsewhere: Path):
    (elsewhere / "link.log").symlink_to("tuning.log")
    os.mkfifo(elsewhere / "pipe.log")
    assert loopscale("export", "tiny", "--store", store, "--optuna", "link.log").code == 0
    assert (elsewhere / "link.log").is_symlink()
    assert (elsewhere / "tuning.log").stat().st_size > 0
    answer = loopscale("export", "tiny", "--store", store, "--optuna", "pipe.log")
    assert (answer.code, answer.err.count("\n")) == (2, 1)
