"""loopscale itself, installed as a package: a study with plugins runs outside of the checkout."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.examples.packages import install_loopscale

pytestmark = pytest.mark.slow

STUDY = """question: Does a plugin run from an installed package?
plugins: [./my_model.py, ./my_task.py, ./my_solver.py]
fixed:
  task: {kind: my_task, dim: 2, points: 5}
  model: {kind: my_model, layers: 2, dim: 8}
  training: {steps: 20, batch_size: 8, eval_every: 10}
replicates: 2
evaluate: {prompts: 32}
baselines: [ridge, my_solver]
"""


def test_an_installed_package_writes_checks_and_runs_members_of_a_study(tmp_path: Path):
    target = install_loopscale(tmp_path)

    def ask(*words: str) -> str:
        environment = os.environ | {"PYTHONPATH": str(target), "OMP_NUM_THREADS": "1"}
        command = [sys.executable, "-m", "loopscale.cli.main", *words]
        done = subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    ask("new", "model", "my_model")
    ask("new", "task", "my_task")
    ask("new", "solver", "my_solver")
    assert " passed" in ask("check", "my_model.py", "-k", "meta or flops")
    (tmp_path / "mine.yaml").write_text(STUDY)
    ask("run", "mine.yaml", "--store", "store", "--workers", "2")
    sql = 'SELECT DISTINCT "model.plugin" AS model, "task.plugin" AS task FROM trials WHERE role = \'replicate\''
    (row,) = json.loads(ask("query", sql, "--store", "store", "--json"))
    assert [text.split()[0] for text in row.values()] == ["my_model.py", "my_task.py"]
    place = "import loopscale; print(loopscale.__file__)"
    environment = os.environ | {"PYTHONPATH": str(target)}
    done = subprocess.run(
        [sys.executable, "-c", place], env=environment, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == str(target / "loopscale" / "__init__.py")
