"""The example package is installed by pip: its study runs on a local Ray cluster, is killed, and goes on."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.examples.packages import EXAMPLE, install, python_path
from tests.runner.drivers import TRACING, Driver

pytestmark = pytest.mark.slow

TRIALS, BASELINES = 2 * (2 + 2), 2


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return install(tmp_path_factory.mktemp("package"))


def ask(folder: Path, *words: str, path: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "loopscale.cli.main", *words]
    environment = os.environ | {"PYTHONPATH": path}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def test_the_study_of_the_package_survives_a_kill_and_names_the_package(installed: Path, tmp_path: Path):
    file = tmp_path / "fourier.yaml"
    shutil.copy(EXAMPLE / "fourier.yaml", file)
    path = python_path(installed)
    driver = Driver(file, tmp_path, environment={"PYTHONPATH": python_path(TRACING, installed)})
    driver.kill_after_saves(3)
    code, _, errors = driver.finish()
    assert code == 0, errors
    driver.check(TRIALS, BASELINES)
    store = str(driver.store)

    def rows(sql: str) -> list[dict]:
        return json.loads(ask(tmp_path, "query", sql, "--json", "--store", store, path=path).stdout)

    sql = 'SELECT DISTINCT "task.plugin" AS task, "model.kind" AS kind, "model.plugin" AS model FROM trials '
    sql += "WHERE role <> 'baseline' ORDER BY kind"
    gated, looped = rows(sql)
    assert gated["task"] == gated["model"] == looped["task"]
    name, digest = gated["task"].split()
    assert name == "loopscale_fourier"
    assert (gated["kind"], looped["kind"], looped["model"]) == ("gated_rnn", "looped", None)
    (measured,) = rows("SELECT min(wrong_sign) AS low, max(wrong_sign) AS high FROM trials")
    sql = (
        'SELECT "solver.kind" AS kind, "solver.plugin" AS plugin, error FROM trials WHERE role = \'baseline\''
    )
    kernel, ridge = sorted(rows(sql), key=lambda row: row["kind"])
    assert (kernel["kind"], ridge["kind"], ridge["plugin"]) == ("periodic_kernel", "ridge", None)
    assert kernel["plugin"] == f"{name} {digest}"
    assert ridge["error"] < kernel["error"] < 1, "the kernel beats the prediction 0, and no Bayes predictor"
    assert 0 <= measured["low"] <= measured["high"] < 0.6
    trial = rows(
        "SELECT any_value(trial) AS key FROM trials WHERE role = 'replicate' AND \"model.kind\" = 'gated_rnn'"
    )
    said = ask(tmp_path, "predict", trial[0]["key"], "--json", "--store", store, path=path)
    assert json.loads(said.stdout)["model"] == "gated_rnn"

    # Without the package, a reader says in one line which package is missing. Only a net needs the package.
    for words, code in ((("predict", trial[0]["key"]), 2), (("report", "fourier.yaml"), 0)):
        said = ask(tmp_path, *words, "--store", store, path=python_path())
        assert said.returncode == code
        assert len(said.stderr.splitlines()) == 1
        assert f"loopscale_fourier with the hash {digest}, which is not loaded" in said.stderr


def test_the_members_of_the_package_pass_the_contracts(installed: Path, tmp_path: Path):
    done = ask(tmp_path, "check", "loopscale_fourier", path=python_path(installed))
    assert done.returncode == 0, done.stdout
    for member in ("model gated_rnn", "task fourier", "solver periodic_kernel"):
        assert member in done.stdout.splitlines()[0]


def test_show_finds_the_members_of_the_package(installed: Path, tmp_path: Path):
    assert "gated_rnn" in ask(tmp_path, "show", "models", path=python_path(installed)).stdout
    assert "gated_rnn" not in ask(tmp_path, "show", "models", path=python_path()).stdout
    said = ask(tmp_path, "show", "tasks", "fourier", path=python_path(installed))
    assert "K, the number of frequencies 1 .. K." in " ".join(said.stdout.split())
