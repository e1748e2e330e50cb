"""A store after a study of two cells with tuning, replicates and baselines, written by the real writer."""

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from loopscale.cli.main import main
from loopscale.records.model import CURVE, STUDY, STUDY_FILE, STUDY_JSON, Note, flatten
from loopscale.records.stores.opening import open_store
from loopscale.records.tables import encode_curve
from loopscale.records.writing.mlflow_writer import MlflowWriter
from loopscale.runner.decide.job import Baseline
from loopscale.studies.spec import Study

TINY = """\
question: Does the error fall with the loops?
source: nowhere
fixed:
  task: {kind: linear_regression, dim: 2, points: 4}
  model: {kind: looped, width: 8, heads: 1}
  training: {steps: 4, batch_size: 4, window: 1, eval_every: 2}
scientific:
  training.loops: [1, 2]
nuisance:
  training.lr: {real: [1.0e-3, 1.0e-2], scale: log}
search: {kind: random, trials: 2}
replicates: 3
evaluate: {loops: 4, prompts: 16}
baselines: [{kind: least_squares}, {kind: gradient_descent}]
laws:
  - {of: error, along: loop, form: [exponential]}
"""


@dataclass
class Recording:
    """Writes the records that a driver writes of a study, with made-up errors."""

    study: Study
    writer: MlflowWriter

    def parent(self, status: str = "FINISHED") -> None:
        files = (
            (STUDY_FILE, self.study.text.encode()),
            (STUDY_JSON, json.dumps(self.study.document()).encode()),
        )
        tags = {"question": self.study.question, "source": self.study.source}
        self.writer.write(Note(STUDY, tags=tags, artifacts=files, status=status))

    def whole(self) -> None:
        self.parent()
        for cell in self.study.cells():
            for number, lr in enumerate((2e-3, 5e-3)):
                self.trial(cell, "tuning", number, 0, {"training.lr": lr}, 0.5 - 0.1 * number)
            for seed in (1, 2, 3):
                error = (0.4 if cell.values["training.loops"] == 1 else 0.3) + 0.01 * seed
                self.trial(cell, "replicate", seed, seed, {"training.lr": 5e-3}, error)
        task = self.study.at(self.study.cells()[0], {}, 0).task
        for number, solver in enumerate(self.study.baselines):
            work = Baseline(task=task, solver=solver)
            tags = {"label": solver.kind, "role": "baseline", "number": str(number), "outcome": "finished"}
            error = 0.2 + 0.2 * number
            self._ended(work.key, work.settings, tags, error, 0)

    def trial(
        self,
        cell,
        role: str,
        number: int,
        seed: int,
        point: dict,
        error: float,
        outcome="finished",
        detail="",
    ):
        trial = self.study.at(cell, point, seed)
        tags = {"cell": cell.key, "label": cell.label, "role": role, "number": str(number)}
        tags |= {"seed": str(seed), "point": json.dumps(point), "outcome": outcome}
        tags |= {"detail": detail} if detail else {}
        self._ended(trial.key, trial.settings, tags, error, 4)
        return trial

    def _ended(self, key: str, settings: dict, tags: dict, error: float, step: int) -> None:
        outcome = tags["outcome"]
        status = {"finished": "FINISHED", "pruned": "KILLED"}.get(outcome, "FAILED")
        measured = {"error": error, "error_last": error / 2, "step": step, "seconds": 1.0, "flops": 1e6}
        self.writer.write(Note(key, 0, {}, flatten(settings), tags, "RUNNING"))
        if outcome != "finished":
            self.writer.write(Note(key, step, {"step": step}, tags=tags, status=status))
            return
        grid = np.outer(np.exp(-0.5 * np.arange(4)), np.linspace(1, 0.5, 4) / 0.75) * error
        measured |= {f"evaluate/{name}": error for name in ("error", "raw_error", "excess")}
        measured |= {"evaluate/error_last": grid[0, -1]}
        curve = ((CURVE, encode_curve(grid, grid / 10, grid)),)
        self.writer.write(Note(key, step, measured, tags=tags, status=status, artifacts=curve))


@pytest.fixture(scope="session")
def study_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("project") / "studies" / "tiny.yaml"
    file.parent.mkdir()
    file.write_text(TINY)
    return file


@contextmanager
def record(root: Path, study: Study) -> Iterator[Recording]:
    """Write into a store, which is created if needed, and wait until all records are there."""
    with MlflowWriter(open_store(root, create=True), study.name, {}) as writer:
        yield Recording(study, writer)
        assert writer.flush(300)
        assert not writer.refused


@pytest.fixture(scope="session")
def recording() -> Callable[[Path, Study], AbstractContextManager[Recording]]:
    return record


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory, study_file: Path) -> Path:
    """One store for all tests that only read, or write reports and mirrors."""
    root = tmp_path_factory.mktemp("store") / "records"
    with record(root, Study.load(study_file)) as recording:
        recording.whole()
    return root


@pytest.fixture
def records(store: Path, elsewhere: Path) -> Path:
    """A copy of the store that a test may change, as `records` in the working directory."""
    unread = shutil.ignore_patterns("mirror", "reports")
    return Path(shutil.copytree(store, elsewhere / "records", ignore=unread))


@pytest.fixture
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory, and no environment variable that names a store."""
    for name in ("LOOPSCALE_STORE", "MLFLOW_TRACKING_URI"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@dataclass
class Answer:
    code: int
    out: str
    err: str

    @property
    def json(self):
        def refuse(word: str) -> float:
            raise ValueError(f"{word} is no JSON")

        return json.loads(self.out, parse_constant=refuse)


@pytest.fixture
def loopscale(elsewhere: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., Answer]:
    """Run the program in this process."""

    def call(*words: object) -> Answer:
        code = main([str(word) for word in words])
        captured = capsys.readouterr()
        assert "Traceback" not in captured.err
        return Answer(code, captured.out, captured.err)

    return call
