"""Two users of one tracking server with permissions, each with a study of the same name."""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from hashlib import sha256
from pathlib import Path

import pytest

from loopscale.cli.main import main
from loopscale.doctor.examination import all_checks
from loopscale.records.model import Note
from loopscale.records.stores.opening import open_store
from loopscale.records.writing import mlflow_writer
from loopscale.records.writing.mlflow_writer import MlflowWriter
from loopscale.studies.spec import Study
from tests.cli.conftest import Recording, record
from tests.records.conftest import Guarded, Login

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
STUDY = """\
question: Whose is it?
source: nowhere
fixed:
  task: {{kind: linear_regression, dim: 2, points: 4}}
  model: {{kind: looped, width: 8, heads: 1}}
  training: {{steps: {steps}, batch_size: 4, loops: 2, window: 1, eval_every: 50}}
replicates: 2
evaluate: {{loops: 4, prompts: 16}}
"""
CHECKS = len(all_checks())
OF_RECORDS = ("experiments", "experiment_tags", "runs", "tags", "params", "metrics", "latest_metrics")
Words = tuple[str, ...]


class Desk:
    """A user's folder, with a study, a storage and a store. The settings of the study are the user's own."""

    def __init__(self, name: str, root: Path, uri: str) -> None:
        self.folder = root / name
        self.folder.mkdir()
        (self.folder / "one.yaml").write_text(STUDY.format(steps=len(name)))
        self.options = ("--store", uri, "--storage", str(self.folder / "storage"))


def contents(server: Guarded) -> dict[str, list[str]]:
    """Every row of the server's records, and the checksum of every artifact."""
    with closing(sqlite3.connect(server.folder / "server.db")) as database:
        found = {
            table: sorted(map(str, database.execute(f"SELECT * FROM {table}").fetchall()))
            for table in OF_RECORDS
        }
    files = [path for path in (server.folder / "artifacts").rglob("*") if path.is_file()]
    found["files"] = sorted(f"{path} {sha256(path.read_bytes()).hexdigest()}" for path in files)
    return found


@contextmanager
def unchanged(server: Guarded) -> Iterator[None]:
    before = contents(server)
    yield
    after = contents(server)
    changed = {name: set(before[name]) ^ set(after[name]) for name in before if before[name] != after[name]}
    assert not changed


Call = Callable[..., tuple[int, str, list[str]]]


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Call:
    """Calls a verb at a desk. Returns the code, the output and the lines on standard error."""

    def called(desk: Desk, *words: str) -> tuple[int, str, list[str]]:
        monkeypatch.chdir(desk.folder)
        capsys.readouterr()
        code = main([*words, *desk.options])
        out, err = capsys.readouterr()
        assert "Traceback" not in err
        return code, out, err.splitlines()

    return called


def test_nobody_changes_the_study_of_another_user(
    guarded: Guarded, login: Login, call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(mlflow_writer, "TOLERANCE", 1.0)
    anna, bob = (Desk(name, tmp_path, guarded.uri) for name in ("anna", "bob"))
    study = Study.load(bob.folder / "one.yaml")
    with record(bob.folder / "own", study) as recording:
        recording.parent()
        recording.trial(study.cells()[0], "replicate", 1, 1, {}, 0.5)
    assert (
        main(["export", "one", "--to", str(bob.folder / "export"), "--store", str(bob.folder / "own")]) == 0
    )
    login("anna")
    store = open_store(guarded.uri, storage=anna.folder / "storage", create=True)
    study = Study.load(anna.folder / "one.yaml")
    with MlflowWriter(store, "one", {}) as writer:
        recording = Recording(study, writer)
        recording.parent("RUNNING")
        recording.trial(study.cells()[0], "replicate", 1, 1, {}, 0.5)
        key = study.at(study.cells()[0], {}, 2).key
        tags = {"role": "replicate", "number": "2", "seed": "2", "point": "{}", "outcome": "running"}
        writer.write(Note(key, 0, {}, {}, tags | {"cell": study.cells()[0].key}, "RUNNING"))
        assert writer.flush(300)
    experiment = store.require_experiment("one")
    login("bob")
    changing: list[Words] = [
        ("run", "one.yaml"),
        ("stop", "one", "--trial", key),
        ("rename", "one", "mine"),
        ("delete", "one", "--yes"),
        ("import", "export"),
    ]
    reading: list[Words] = [("best", "one"), ("report", "one"), ("export", "one", "--to", "taken")]
    with unchanged(guarded):
        for words in (*changing, *reading):
            code, out, lines = call(bob, *words)
            assert (code, out, len(lines)) == (2, "", 1), words
            assert "does not let the user bob" in lines[0] or "no records of one" in lines[0]
        code, out, _ = call(bob, "doctor", "--repair")
        assert (code, out) == (0, f"{CHECKS} checks of 0 studies: 0 findings, 0 mended, 0 open\n")
        assert not (bob.folder / "taken").exists()
    guarded.grant("bob", experiment, "READ")
    with unchanged(guarded):
        for words in changing:
            code, out, lines = call(bob, *words)
            assert (code, out, len(lines)) == (2, "", 1), words
            assert "does not let the user bob" in lines[0], words
        _, out, _ = call(bob, "doctor", "--repair")
        assert "nothing was mended: the tracking server does not let the user bob write the records" in out
        code, _, lines = call(bob, "report", "one")
        assert (code, len(lines)) == (0, 1)
        assert "was not attached" in lines[0]
        assert "does not let the user bob" in lines[0]
        assert call(bob, "export", "one", "--to", "taken")[0] == 0
