"""A user's mistake: one line with the remedy, exit code 2, no traceback, and nothing is written."""

import contextlib
import os
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from loopscale.records.stores.opening import store_place

COMMANDS: list[tuple[str, list[str], str]] = [
    ("", ["--frobnicate"], "no such option: --frobnicate"),
    ("", ["frobnicate"], "no such command 'frobnicate'"),
    ("", ["best"], "missing argument 'STUDY'"),
    ("", ["best", "tiny"], "no records in"),
    ("", ["list"], "`loopscale run` makes them"),
    ("", ["query", "SELECT 1"], "no records in"),
    ("", ["report", "tiny"], "no records in"),
    ("", ["compare", "tiny"], "missing argument 'STUDY'"),
    ("", ["compare", "tiny", "other"], "no records in"),
    ("", ["compare", "tiny", "tiny"], "compared with itself"),
    ("", ["ui"], "no records in"),
    ("", ["predict", "abc"], "no records in"),
    ("", ["run", "nosuch"], "there is no such file"),
    ("", ["run", "nosuch.yaml"], "there is no such file"),
    ("", ["run", "x", "--workers", "-1"], "--workers"),
    ("", ["run", "x", "--workers", "two"], "--workers"),
    ("", ["run", "x", "--set", "training.steps"], "write it as path=value"),
    ("", ["run", "x", "--set", "a=1", "--set", "a=2"], "given twice"),
    ("", ["plan", "nosuch"], "there is no such file"),
    ("", ["plan", "x", "--rate", "0"], "give FLOP/s from 1"),
    ("", ["plan", "x", "--rate", "nan"], "give FLOP/s from 1"),
    ("", ["show", "frogs"], "use one of tasks, models"),
    ("", ["show", "trainin"], "did you mean training?"),
    ("", ["show", "training", "lr"], "`loopscale show training` shows all"),
    (
        "",
        ["show", "task", "linear_regresion"],
        "there is no task 'linear_regresion'; did you mean linear_regression?",
    ),
    ("", ["show", "models", "algoforme"], "did you mean algoformer?"),
    ("", ["show", "constructions", "newtn"], "there is no construction 'newtn'; did you mean newton?"),
    ("", ["export", "tiny"], "give --to FOLDER, --csv FOLDER, --parquet FOLDER or --optuna FILE"),
    ("", ["export", "tiny", "--csv", "x", "--weights"], "give --to FOLDER too"),
    ("", ["export", "--all", "--optuna", "x.db"], "--optuna takes one study"),
    ("", ["query"], "give one of them"),
    ("", ["query", "SELECT 1", "--tables"], "give one of them"),
    ("", ["export", "--to", "x"], "give STUDY or --all"),
    ("", ["export", "tiny", "--all", "--to", "x"], "give STUDY or --all"),
    ("", ["import", "nosuch"], "holds no exported records"),
    ("", ["list", "--store", "ftp://x"], "give a folder, http://"),
    ("", ["list", "--store", "http://127.0.0.1:9"], "no tracking server answers"),
    ("", ["list", "--store", "http://[::1"], "is no address"),
    ("", ["list", "--store", "http://a b"], "is no address"),
    ("", ["list", "--store", "~nosuch/x"], "write its path without ~"),
    ("", ["list", "--store", "x" * 300], "cannot write to"),
    ("", ["list", "--store", "sqlite:///nosuch.db"], "no records in"),
    ("", ["list", "--store", "sqlite://"], "no records in"),
    ("store", ["best", ""], "name is empty"),
    ("store", ["export", "", "--to", "x"], "name is empty"),
    ("store", ["report", "tiny", "--out", "."], "it is a folder"),
    ("store", ["query", "SELECT * FROM nosuch"], "there are trials, curves"),
    ("store", ["query", 'SELECT * FROM trials WHERE role = "x"'], "in single quotes"),
    ("store", ["best", "tinny"], "no file of such a study; did you mean tiny?"),
    ("store", ["best", "nosuch.yaml"], "no file of such a study; use one of tiny"),
    ("store", ["report", "nosuch"], "no file of such a study; use one of tiny"),
    ("store", ["compare", "nosuch", "tiny"], "no file of such a study; use one of tiny"),
    ("store", ["best", "tiny", "--where", "nosuch = 1"], 'column "nosuch" not found'),
    ("store", ["best", "tiny", "--where", "training.loops = 1"], "in double quotes"),
    ("store", ["best", "tiny", "--where", "1) OR )"], "syntax error"),
    ("store", ["report", "tinny"], "did you mean tiny?"),
    ("store", ["compare", "tiny", "tinny"], "did you mean tiny?"),
    ("store", ["compare", "", "tiny"], "name is empty"),
    ("store", ["report", "tiny", "--out", "nosuch/page.html"], "give another file with --out"),
    ("store", ["export", "tinny", "--to", "x"], "there are records of tiny"),
    ("store", ["query", "SELEC 1"], "syntax error"),
    ("store", ["query", "SELECT model.kind FROM trials"], "in double quotes"),
    ("store", ["query", "DROP TABLE trials"], "a query is one SELECT"),
    ("store", ["query", "SELECT * FROM read_csv('/etc/passwd')"], "disabled"),
    ("store", ["query", "SELECT 1", "--format", "xml"], "'table', 'csv'"),
    ("store", ["predict", "nosuch"], "there is no trial nosuch"),
    ("store", ["predict", ""], "could be any of"),
    ("store", ["predict", "x", "--set", "task.noise"], "write it as path=value"),
    ("store", ["ui", "--port", "0"], "--port"),
    ("store", ["ui", "--host", "no.such.host.invalid"], "give another --port or --host"),
]


@pytest.mark.quick_cases(5)
@pytest.mark.parametrize(
    ("where", "words", "message"), [pytest.param(*case, id=" ".join(case[1])) for case in COMMANDS]
)
def test_a_mistake_is_one_line_and_writes_nothing(loopscale, elsewhere, store, where, words, message):
    before = sorted(path.relative_to(store) for path in store.rglob("*") if "mirror" not in path.parts)
    answer = loopscale(*(["--store", store] if where else []), *words)
    assert answer.code == 2
    assert answer.out == ""
    assert message in answer.err
    assert answer.err.count("\n") == 1, "one mistake is one line"
    assert list(elsewhere.iterdir()) == []
    assert (
        sorted(path.relative_to(store) for path in store.rglob("*") if "mirror" not in path.parts) == before
    )


def test_a_file_that_is_no_study_has_no_records(loopscale, elsewhere, store):
    Path("README.md").write_text("# Not a study\n\nBut: words, and no question.\n")
    answer = loopscale("best", "README.md", "--store", store)
    assert (answer.code, answer.out) == (2, "")
    assert all(line.startswith("README.md") for line in answer.err.splitlines())
    assert "loopscale run" not in answer.err


def test_a_study_without_records_names_the_command_that_makes_them(loopscale, elsewhere, store, study_file):
    Path("other.yaml").write_text(study_file.read_text())
    answer = loopscale("best", "other.yaml", "--store", store)
    assert (answer.code, answer.err.count("\n")) == (2, 1)
    assert "`loopscale run other` makes them" in answer.err


def test_every_mistake_of_a_study_gets_a_line_and_creates_no_store(loopscale, elsewhere, study_file):
    text = study_file.read_text().replace("heads: 1", "heads: 3").replace("replicates: 3", "replicates: 0")
    Path("bad.yaml").write_text(text)
    for verb in ("run", "plan"):
        answer = loopscale(verb, "bad.yaml")
        assert answer.code == 2
        lines = answer.err.splitlines()
        assert any("bad.yaml:5:" in line and "heads" in line for line in lines)
        assert any("bad.yaml:12:" in line and "replicates" in line for line in lines)
        assert [path.name for path in elsewhere.iterdir()] == ["bad.yaml"]


def test_a_rejected_setting_names_the_option(loopscale, study_file):
    answer = loopscale("plan", study_file, "--set", "training.steps=many")
    assert (answer.code, answer.err) == (
        2,
        "--set training.steps=many: training.steps is 'many'; write a whole number, such as 10\n",
    )


def test_a_store_that_cannot_be_written_is_a_mistake(loopscale, study_file, elsewhere):
    Path("taken").write_text("")
    answer = loopscale("run", study_file, "--store", "taken")
    assert answer.code == 2
    assert "taken is a file; give --store a folder" in answer.err


def test_a_store_of_a_newer_version_is_refused_and_unchanged(loopscale, elsewhere, study_file):
    Path("newer").mkdir()
    Path("newer/format.json").write_text('{"format": 999, "made_by": "9.9"}')
    for words in (["run", study_file], ["list"], ["best", "tiny"]):
        answer = loopscale(*words, "--store", "newer")
        assert answer.code == 2
        assert "install a newer loopscale" in answer.err
    assert [path.name for path in Path("newer").iterdir()] == ["format.json"]


def test_a_link_that_leads_to_no_file_is_named(loopscale, elsewhere):
    Path("mine.yaml").symlink_to("gone.yaml")
    answer = loopscale("plan", "mine.yaml")
    assert (answer.code, answer.err) == (
        2,
        "mine.yaml: the link leads to gone.yaml, where there is no file; correct the link\n",
    )


@pytest.mark.parametrize("address", ["databricks", "databricks://mine", "databricks-uc", "uc:foo"])
def test_a_service_that_loopscale_does_not_use_is_no_folder(loopscale, elsewhere, monkeypatch, address):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", address)
    answer = loopscale("list")
    assert answer.code == 2
    assert f"the store {address} is a service of Databricks" in answer.err


MISTYPED = {
    "localhost:5000": "did you mean http://localhost:5000?",
    "127.0.0.1": "did you mean http://127.0.0.1?",
    "tracking.example.org:5000/mlflow": "did you mean http://tracking.example.org:5000/mlflow?",
    "http:/localhost:5000": "did you mean http://localhost:5000?",
    "https//tracking.example.org": "did you mean https://tracking.example.org?",
    "postgresql+psycopg:/me@host/records": "did you mean postgresql+psycopg://me@host/records?",
    "sqlite:records.db": "did you mean sqlite:///records.db?",
    "s3:/bucket/prefix": "did you mean s3://bucket/prefix?",
    "$HOME/records": "write the whole path",
    "${SCRATCH}/records": "write the whole path",
    "%TEMP%/records": "write the whole path",
    "file://records": "did you mean file:///records?",
}
"""Texts that are meant as another place than a folder of this name, and the remedy."""


@pytest.mark.parametrize("text", MISTYPED)
def test_a_mistyped_store_is_named_and_makes_no_folder(loopscale, elsewhere, study_file, monkeypatch, text):
    monkeypatch.setenv("MLFLOW_TRACKING_URI", text)
    for words in (["run", study_file], ["list"]):
        answer = loopscale(*words)
        assert (answer.code, answer.out, answer.err.count("\n")) == (2, "", 1)
        assert MISTYPED[text] in answer.err
    assert list(elsewhere.iterdir()) == []


@pytest.mark.parametrize("text", [text for text in MISTYPED if not text.startswith("file:")])
def test_a_mistyped_storage_is_named_and_makes_no_folder(loopscale, elsewhere, study_file, text):
    answer = loopscale("run", study_file, "--store", "records", "--storage", text)
    assert (answer.code, answer.out, answer.err.count("\n")) == (2, "", 1)
    assert MISTYPED[text] in answer.err
    assert list(elsewhere.iterdir()) == []


@pytest.mark.parametrize("text", ["localhost:5000", "./localhost:5000", "$HOME/records", "databricks"])
def test_an_odd_folder_that_exists_is_a_store(elsewhere, text):
    Path(text).mkdir(parents=True)
    assert store_place(text) == elsewhere / text


def test_an_odd_folder_with_an_explicit_path_is_a_store(elsewhere):
    assert store_place("./localhost:5000") == elsewhere / "localhost:5000"


def test_a_noise_whose_square_overflows_is_a_mistake(loopscale, elsewhere, study_file):
    answer = loopscale("plan", study_file, "--set", "task.noise=1e200")
    assert (answer.code, answer.err.count("\n")) == (2, 1)
    assert "task.noise" in answer.err


def test_a_running_study_is_refused_and_its_driver_named(loopscale, elsewhere, study_file):
    from loopscale.records.stores.opening import open_store
    from loopscale.runner.lease import lease

    with lease(open_store("records", create=True).storage, "tiny"):
        answer = loopscale("run", study_file, "--store", "records")
    assert answer.code == 2
    assert f"tiny is being run by process {os.getpid()}" in answer.err
    assert answer.out == ""


def test_the_program_itself_exits_with_the_code_and_without_a_traceback(elsewhere):
    done = subprocess.run(
        [sys.executable, "-m", "loopscale.cli.main", "best", "tiny"], capture_output=True, text=True
    )
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr == f"no records in {elsewhere}/.loopscale yet; `loopscale run` makes them\n"


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("form", ["csv", "table"])
def test_a_reader_that_leaves_early_is_no_error(store, elsewhere, form):
    command = f"{sys.executable} -m loopscale.cli.main --store {store} query --format {form}"
    command += " 'SELECT * FROM range(1000000)' | head -1"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=60)
    assert done.stderr == ""


def test_a_bug_shows_its_traceback(monkeypatch, elsewhere):
    from loopscale.cli import main

    def broken(*words: object, **more: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(main, "_command", lambda: broken)
    with pytest.raises(ZeroDivisionError):
        main.main([])


@pytest.mark.parametrize("storage", ["/proc/x", "taken"])
def test_a_storage_that_cannot_be_written_leaves_no_store(loopscale, study_file, elsewhere, storage):
    Path("taken").write_text("")
    answer = loopscale("run", study_file, "--store", "fresh", "--storage", storage)
    assert answer.code == 2
    assert "with --storage" in answer.err
    assert not Path("fresh").exists()


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("export.json", b"[]"),
        ("export.json", b"{}"),
        ("export.json", b'{"format": 99}'),
        ("trials.parquet", b"no table"),
        ("history.parquet", b""),
        ("studies.parquet", None),
    ],
)
def test_a_damaged_export_is_a_mistake_and_creates_no_store(loopscale, store, elsewhere, file, content):
    assert loopscale("--store", store, "export", "tiny", "--to", "exported").code == 0
    if content is None:
        Path("exported", file).unlink()
    else:
        Path("exported", file).write_bytes(content)
    answer = loopscale("import", "exported", "--store", "fresh")
    assert answer.code == 2
    assert answer.err.count("\n") == 1
    assert "; " in answer.err
    assert not Path("fresh").exists()


def test_a_database_without_its_tables_is_a_mistake(loopscale, store, elsewhere):
    shutil.copytree(store, "broken")
    with contextlib.closing(sqlite3.connect("broken/mlflow.db")) as database:
        database.execute("DROP TABLE runs")
    answer = loopscale("list", "--store", "broken")
    assert answer.code == 2
    assert "is no database of MLflow's, or damaged (no such table: runs)" in answer.err


def test_a_condition_without_matches_prints_a_line(loopscale, store):
    answer = loopscale("--store", store, "best", "tiny", "--where", "false")
    assert (answer.code, answer.out) == (0, "no cell of tiny has an answer whose trial meets false\n")


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("asked", ["resources.cpu=4096", "resources.memory=1e6"])
def test_resources_beyond_the_machine_are_a_mistake_before_ray_starts(tmp_path: Path, asked: str):
    done = subprocess.run(
        [sys.executable, "-m", "loopscale.cli.main", "run", "quickstart", "--store", "new", "--set", asked],
        cwd=Path(__file__).parents[2],
        env=os.environ | {"LOOPSCALE_STORE": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 2
    assert "a trial needs" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not (Path(__file__).parents[2] / "new").exists()


@pytest.mark.slow
def test_a_variable_that_a_library_does_not_understand_is_one_line():
    program = [sys.executable, "-m", "loopscale.cli.main", "plan", "quickstart"]
    done = subprocess.run(
        program, env=os.environ | {"TORCH_LOGS": "bogus"}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert done.stderr.startswith("torch does not import (Invalid log settings: bogus")
    assert done.stderr.count("\n") == 1


def test_a_folder_that_was_deleted_under_the_shell_is_one_line(tmp_path: Path):
    program = Path(sys.executable).with_name("loopscale")
    script = f"mkdir gone; cd gone; rmdir ../gone; exec {program} list"
    done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, cwd=tmp_path)
    line = "the folder of this shell has been deleted; change to another folder\n"
    assert (done.returncode, done.stderr) == (2, line)
