"""One small real study, run once through Ray. Every test damages a copy of its store."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

STUDY = """\
question: Does the error fall with the loops?
source: nowhere
fixed:
  task: {kind: linear_regression, dim: 2, points: 4}
  model: {kind: looped, width: 8, heads: 1}
  training: {steps: 6, batch_size: 4, window: 1, eval_every: 2}
scientific:
  training.loops: [1, 2]
nuisance:
  training.lr: {real: [1.0e-3, 1.0e-2], scale: log}
search: {kind: random, trials: 2}
replicates: 2
evaluate: {loops: 3, prompts: 16}
baselines: [{kind: least_squares}]
claims: [{text: two loops are better, first: {training.loops: 2}, second: {training.loops: 1}}]
"""


@dataclass(frozen=True)
class Place:
    """A folder with the study's file, its store and a folder for temporary files."""

    folder: Path
    temporary: Path
    """The folder of temporary files. Its path is short, because Ray's sockets lie below."""

    @property
    def store(self) -> Path:
        return self.folder / "store"

    @property
    def environment(self) -> dict[str, str]:
        kept = {
            name: text for name, text in os.environ.items() if not name.startswith(("LOOPSCALE", "MLFLOW"))
        }
        return kept | {
            "TMPDIR": str(self.temporary),
            "OMP_NUM_THREADS": "1",
            "RAY_TMPDIR": str(self.temporary),
        }

    def start(self, *words: object) -> "subprocess.Popen[str]":
        """The program in a process of its own, in the folder of the study."""
        command = [sys.executable, "-m", "loopscale.cli.main", *map(str, words), "--store", str(self.store)]
        return subprocess.Popen(
            command,
            cwd=self.folder,
            env=self.environment,
            text=True,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )

    def call(self, *words: object) -> tuple[int, str, str]:
        """Exit code, standard output and standard error of one verb."""
        process = self.start(*words)
        out, err = process.communicate(timeout=500)
        assert "Traceback" not in err, err
        return process.returncode, out, err

    def artifacts(self, name: str) -> list[Path]:
        return sorted(self.store.glob(f"artifacts/*/artifacts/{name}"))


@pytest.fixture(scope="session")
def short() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="d-", dir="/tmp") as folder:
        yield Path(folder)


@pytest.fixture(scope="session")
def whole(tmp_path_factory: pytest.TempPathFactory, short: Path) -> Place:
    """The finished study. Tests do not write to it."""
    place = Place(tmp_path_factory.mktemp("whole"), short)
    (place.folder / "tiny.yaml").write_text(STUDY)
    code, out, err = place.call("run", "tiny.yaml", "--workers", 2)
    assert code == 0, out + err
    return place


@pytest.fixture
def place(whole: Place, short: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Place:
    """A copy of the finished study that a test may damage."""
    for name in ("tiny.yaml", "store"):
        source = whole.folder / name
        (shutil.copytree if source.is_dir() else shutil.copyfile)(source, tmp_path / name)
    temporary = Path(tempfile.mkdtemp(dir=short))
    monkeypatch.setattr(tempfile, "tempdir", str(temporary))  # the leftovers of other tests stay out of sight
    return Place(tmp_path, temporary)


Answers = dict[str, Any]


@pytest.fixture
def answers(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[[Place], Answers]:
    """The answer of every verb that reads a store."""
    from loopscale.cli.main import main

    queries = {
        "trials": "SELECT trial, study, cell, label, role, number, seed, outcome, error, regret, step FROM trials",
        "curves": "SELECT * FROM curves",
        "history": "SELECT * FROM history",
        "studies": "SELECT study, question, status, cells FROM studies",
    }
    verbs = {
        "list": ["list", "--json"],
        "best": ["best", "tiny", "--json"],
        "claims": ["best", "tiny"],
        **{name: ["query", f"{sql} ORDER BY ALL", "--json"] for name, sql in queries.items()},
    }

    def read(place: Place) -> Answers:
        monkeypatch.chdir(place.folder)
        monkeypatch.delenv("LOOPSCALE_STORE", raising=False)
        found: Answers = {}
        for name, words in verbs.items():
            code = main([*words, "--store", str(place.store)])
            captured = capsys.readouterr()
            assert code == 0, (name, captured.err)
            assert "Traceback" not in captured.err
            found[name] = captured.out
        return found

    return read
