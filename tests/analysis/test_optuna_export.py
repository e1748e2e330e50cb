"""A study's tuning in Optuna's own storages, and in Optuna's dashboard."""

import json
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.storages import BaseStorage, JournalStorage, RDBStorage
from optuna.storages.journal import JournalFileBackend
from optuna.trial import TrialState

from loopscale.analysis.optuna_export import address, to_optuna
from loopscale.records.model import StoreError
from loopscale.records.stores.base import Store
from loopscale.records.stores.opening import open_store
from loopscale.studies.spec import Study
from tests.cli.conftest import TINY, record
from tests.disks import small_disk
from tests.ports import free_port

NAMES = ["tiny: loops=1", "tiny: loops=2"]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two cells. The first has two finished trials, and a diverged, a pruned and a failed trial."""
    folder = tmp_path_factory.mktemp("tuned")
    (folder / "tiny.yaml").write_text(TINY.replace("trials: 2", "trials: 5"))
    study = Study.load(folder / "tiny.yaml")
    with record(folder / "records", study) as made:
        made.whole()
        ends = [("diverged", 3e-3), ("pruned", 4e-3), ("failed", 6e-3)]
        for number, (outcome, lr) in enumerate(ends, 2):
            made.trial(study.cells()[0], "tuning", number, 0, {"training.lr": lr}, 0.9, outcome)
    return folder / "records"


@contextmanager
def opened(file: Path) -> Iterator[BaseStorage]:
    if file.suffix == ".db":
        storage = RDBStorage(f"sqlite:///{file}")
        yield storage
        storage.engine.dispose()
    else:
        yield JournalStorage(JournalFileBackend(str(file)))


@pytest.mark.parametrize("name", ["tuning.db", "tuning.log"])
def test_every_cell_is_a_study_with_its_points_and_outcomes(root: Path, tmp_path: Path, name: str):
    before = datetime.now()
    assert to_optuna(open_store(root), "tiny", str(tmp_path / name)) == dict(zip(NAMES, (5, 2), strict=True))
    assert [path.name for path in tmp_path.iterdir()] == [name]
    with opened(tmp_path / name) as storage:
        first, second = (optuna.load_study(study_name=each, storage=storage) for each in NAMES)
        states = [trial.state for trial in first.trials]
        assert states == [TrialState.COMPLETE] * 3 + [TrialState.PRUNED, TrialState.FAIL]
        assert [trial.value for trial in first.trials] == [0.5, 0.4, float("inf"), None, None]
        assert [trial.user_attrs["outcome"] for trial in first.trials[2:]] == ["diverged", "pruned", "failed"]
        best = second.best_trial
        assert (best.params, best.value) == ({"training.lr": 5e-3}, 0.4)
        distribution = optuna.distributions.FloatDistribution(1e-3, 1e-2, log=True)
        assert best.distributions == {"training.lr": distribution}
        assert best.intermediate_values == {4: 0.4}
        assert best.datetime_start is not None
        assert best.datetime_complete is not None
        assert best.datetime_start <= best.datetime_complete <= before
        assert second.user_attrs["training.loops"] == 2
        assert second.metric_names == ["error"]
        assert best.user_attrs["trial"] in {run.tags["trial"] for run in _runs(open_store(root))}


def _runs(store: Store) -> Any:
    return store.runs(store.require_experiment("tiny"))


def test_a_search_continues_from_the_export(root: Path, tmp_path: Path):
    to_optuna(open_store(root), "tiny", str(tmp_path / "tuning.log"))
    with opened(tmp_path / "tuning.log") as storage:
        study = optuna.load_study(study_name=NAMES[0], storage=storage)
        trial = study.ask(study.best_trial.distributions)
        assert 1e-3 <= trial.params["training.lr"] <= 1e-2
        assert trial.number == 5


def test_an_existing_file_is_not_overwritten(root: Path, tmp_path: Path):
    (tmp_path / "mine.db").write_text("mine")
    with pytest.raises(StoreError, match="exists already; give a new file, or delete the old one"):
        to_optuna(open_store(root), "tiny", f"sqlite:///{tmp_path / 'mine.db'}")
    assert (tmp_path / "mine.db").read_text() == "mine"
    with pytest.raises(StoreError, match=r"cannot write .*; give another file"):
        to_optuna(open_store(root), "tiny", str(tmp_path / "nosuch" / "x.log"))


def test_a_study_without_tuning_is_an_error(root: Path, tmp_path: Path):
    (tmp_path / "tiny.yaml").write_text(TINY)
    with record(tmp_path / "records", Study.load(tmp_path / "tiny.yaml")) as made:
        made.parent()
    with pytest.raises(StoreError, match="tiny has tuned nothing yet; "):
        to_optuna(open_store(tmp_path / "records"), "tiny", str(tmp_path / "x.log"))
    assert not (tmp_path / "x.log").exists()


def test_points_outside_a_narrowed_range_widen_the_range(root: Path, tmp_path: Path):
    text = TINY.replace("{real: [1.0e-3, 1.0e-2], scale: log}", "{real: [3.0e-3, 4.0e-3]}")
    (tmp_path / "tiny.yaml").write_text(text)
    with record(tmp_path / "records", Study.load(tmp_path / "tiny.yaml")) as made:
        made.whole()
    to_optuna(open_store(tmp_path / "records"), "tiny", str(tmp_path / "x.log"))
    with opened(tmp_path / "x.log") as storage:
        best = optuna.load_study(study_name=NAMES[0], storage=storage).best_trial
    assert best.distributions == {"training.lr": optuna.distributions.FloatDistribution(2e-3, 5e-3)}


def test_a_point_with_several_seeds_is_one_trial(tmp_path: Path):
    (tmp_path / "tiny.yaml").write_text(TINY.replace("trials: 2", "trials: 3, seeds: 2"))
    study = Study.load(tmp_path / "tiny.yaml")
    with record(tmp_path / "records", study) as made:
        made.parent()
        cell = study.cells()[0]
        for number, errors in enumerate([(0.2, 0.8), (0.1, None), (0.3,)]):
            for seed, error in zip(study.search.tuning_seeds, errors, strict=False):
                outcome = "finished" if error else "diverged"
                point = {"training.lr": 2e-3 + number * 1e-3}
                made.trial(cell, "tuning", number, seed, point, error or 0.0, outcome)
    assert to_optuna(open_store(tmp_path / "records"), "tiny", str(tmp_path / "x.log")) == {NAMES[0]: 3}
    with opened(tmp_path / "x.log") as storage:
        whole, diverged, begun = optuna.load_study(study_name=NAMES[0], storage=storage).trials
    assert whole.value == pytest.approx(0.4)
    assert whole.user_attrs["errors"] == [0.2, 0.8]
    assert (diverged.state, diverged.value) == (TrialState.COMPLETE, float("inf"))
    assert begun.state == TrialState.RUNNING


@pytest.mark.slow
@pytest.mark.parametrize("name", ["tuning.db", "tuning.log"])
def test_the_dashboard_serves_the_export(root: Path, tmp_path: Path, name: str):
    to_optuna(open_store(root), "tiny", str(tmp_path / name))
    port = free_port()
    program = "from optuna_dashboard._cli import main; main()"
    where = [address(str(tmp_path / name)), "--host", "127.0.0.1", "--port", str(port)]
    with subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", program, *where], stderr=subprocess.DEVNULL
    ) as server:
        try:
            studies = _response(f"http://127.0.0.1:{port}/api/studies")["study_summaries"]
            assert sorted(study["study_name"] for study in studies) == NAMES
            first = next(study["study_id"] for study in studies if study["study_name"] == NAMES[0])
            study = _response(f"http://127.0.0.1:{port}/api/studies/{first}")
        finally:
            server.terminate()
            server.wait(60)
    trials = study["trials"]
    assert [trial["state"] for trial in trials] == ["Complete", "Complete", "Complete", "Pruned", "Fail"]
    assert trials[0]["values"] == [0.5]
    assert trials[0]["params"][0]["name"] == "training.lr"
    assert trials[0]["params"][0]["distribution"]["log"] is True
    assert trials[0]["intermediate_values"] == [{"step": 4, "value": 0.5}]


def _response(url: str, patience: float = 180) -> Any:
    until = time.monotonic() + patience
    while True:
        try:
            with urllib.request.urlopen(url, timeout=10) as answer:
                return json.load(answer)
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(0.3)


def test_values_of_a_range_that_was_a_choice_are_choices(tmp_path: Path):
    range_now = TINY.replace(
        "training.lr: {real: [1.0e-3, 1.0e-2], scale: log}", "training.clip: {real: [0.5, 2]}"
    )
    (tmp_path / "tiny.yaml").write_text(range_now)
    study = Study.load(tmp_path / "tiny.yaml")
    with record(tmp_path / "records", study) as made:
        made.parent()
        for number, clip in enumerate([None, 1, 0.75]):
            made.trial(study.cells()[0], "tuning", number, 0, {"training.clip": clip}, 0.9)
    to_optuna(open_store(tmp_path / "records"), "tiny", str(tmp_path / "tuning.db"))
    with opened(tmp_path / "tuning.db") as storage:
        tried = optuna.load_study(study_name=NAMES[0], storage=storage).trials
        assert [trial.params["training.clip"] for trial in tried] == [None, 1, 0.75]


@pytest.mark.parametrize(
    ("name", "size"), [("tuning.db", "16k"), ("tuning.db", "128k"), ("tuning.log", "4k")]
)
def test_a_full_disk_is_one_line(root: Path, tmp_path: Path, name: str, size: str):
    with small_disk(tmp_path / "full", size) as disk:
        with pytest.raises(StoreError, match=r"^cannot write .*tuning\S+ \([^\n]*\); "):
            to_optuna(open_store(root), "tiny", str(disk / name))
        assert not list(disk.iterdir())
