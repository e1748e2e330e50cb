"""One file is enough to add a member of every family: a real study uses one new member of each."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.runner.drivers import Driver, python_path

MEMBERS = '''
"""One member of every family, in one file outside the package."""

from loopscale.stats.forms.power import Power


class OutsideForm(Power, kind="outside_form"):
    """A power law under another name."""


from loopscale.cluster.local import Local
from loopscale.models.looped import Looped
from loopscale.solvers.regression import LeastSquares
from loopscale.studies.schedulers.median import MedianStopping
from loopscale.studies.searches.random import RandomSearch
from loopscale.tasks.linear_regression import LinearRegression
from loopscale.theory.bounds.base import Bound
from loopscale.theory.constructions.newton import Newton


class OutsideTask(LinearRegression, kind="outside_task"):
    """Linear regression under another name."""


class OutsideModel(Looped, kind="outside_model"):
    """A looped net under another name."""


class OutsideSolver(LeastSquares, kind="outside_solver"):
    """Least squares under another name."""


class OutsideBound(Bound, kind="outside_bound"):
    """1 / loops."""

    claim = "="
    of = "error"
    source = "derived"
    loops: int = 1

    def value(self) -> float:
        return 1 / self.loops


class OutsideConstruction(Newton, kind="outside_construction"):
    """The construction of Newton's iteration under another name."""


class OutsideSearch(RandomSearch, kind="outside_search"):
    """A random search under another name."""


class OutsideScheduler(MedianStopping, kind="outside_scheduler"):
    """The median rule under another name."""


class OutsideCluster(Local, kind="outside_cluster"):
    """This machine under another name."""
'''
STUDY = """
question: Does a study with outside members run?
fixed:
  task: {kind: outside_task, dim: 2, points: 5}
  model: {kind: outside_model, width: 16, heads: 2}
  training: {steps: 20, window: 1, batch_size: 8, eval_every: 10}
scientific:
  training.loops: [1, 2, 3, 4]
nuisance:
  training.lr: {real: [1e-3, 1e-2], scale: log}
search: {kind: outside_search, trials: 2}
scheduler: {kind: outside_scheduler, first_rung: 10}
replicates: 2
evaluate: {loops: 4, prompts: 64}
baselines: [outside_solver, {kind: construction, name: outside_construction}]
laws:
  - {of: error, along: training.loops, form: outside_form, theory: outside_bound}
"""


@pytest.mark.slow
def test_one_new_member_of_every_family_works_from_the_study_file_to_the_verdict(tmp_path: Path):
    members = tmp_path / "members"
    members.mkdir()
    (members / "outside_members.py").write_text(MEMBERS)
    # Python imports sitecustomize in every process, so the driver and all workers of Ray know the members.
    (members / "sitecustomize.py").write_text("import outside_members\n")
    (tmp_path / "outside.yaml").write_text(STUDY)
    (tmp_path / "here.yaml").write_text("kind: outside_cluster\n")
    environment = {"PYTHONPATH": python_path(members)}
    driver = Driver(tmp_path / "outside.yaml", tmp_path, environment=environment)
    code, _, errors = driver.finish()
    assert code == 0, errors

    def ask(*words: str) -> str:
        command = [sys.executable, "-m", "loopscale.cli.main", *words, "--store", str(driver.store)]
        done = subprocess.run(
            command, env=os.environ | environment, cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    sql = 'SELECT DISTINCT "task.kind" AS task, "model.kind" AS model FROM trials WHERE role <> \'baseline\''
    assert json.loads(ask("query", sql, "--json")) == [{"task": "outside_task", "model": "outside_model"}]
    sql = 'SELECT "solver.kind" AS kind, "solver.construction.kind" AS name FROM trials '
    sql += "WHERE role = 'baseline' ORDER BY 1"
    assert json.loads(ask("query", sql, "--json")) == [
        {"kind": "construction", "name": "outside_construction"},
        {"kind": "outside_solver", "name": None},
    ]
    assert len(json.loads(ask("best", "outside", "--json"))) == 4
    page = tmp_path / "page.html"
    ask("report", "outside", "--out", str(page))
    text = page.read_text()
    assert "outside form" in text
    assert "outside_bound" in text
    assert any(word in text for word in ("agrees", "slower", "faster", "undecided", "not learnt"))
    assert ask("list", "--cluster", "here.yaml", "--json").strip().startswith("[")
