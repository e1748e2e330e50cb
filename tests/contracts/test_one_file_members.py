"""One file is enough to add a member of every family: a real study uses one new member of each."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from loopscale.core.plugins import find_plugin
from tests.runner.drivers import Driver

MEMBERS = '''
"""One member of every family, in one file outside the package."""

import plotly.graph_objects as go

from loopscale.analysis.figures.base import Drawing, Figure
from loopscale.cluster.local import Local
from loopscale.models.looped import Looped
from loopscale.optimizers.muon import Muon
from loopscale.questions.axes.base import LawAxis
from loopscale.records.model import StoreError
from loopscale.records.stores.folder import FolderKind
from loopscale.solvers.regression import LeastSquares
from loopscale.stats.forms.power import Power
from loopscale.studies.schedulers.median import MedianStopping
from loopscale.studies.searches.random import RandomSearch
from loopscale.tasks.linear_regression import LinearRegression
from loopscale.theory.bounds.base import Bound
from loopscale.theory.constructions.newton import Newton


class OutsideForm(Power, kind="outside_form"):
    """A power law under another name."""


class OutsideTask(LinearRegression, kind="outside_task"):
    """Linear regression under another name."""


class OutsideModel(Looped, kind="outside_model"):
    """A looped net under another name."""


class OutsideOptimizer(Muon, kind="outside_optimizer"):
    """Muon under another name."""


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


class OutsideCourse(Bound, kind="outside_course"):
    """1 / depth, along an axis from outside."""

    claim = "="
    of = "error"
    source = "derived"
    outside_axis: int = 1

    def value(self) -> float:
        return 1 / self.outside_axis


class OutsideAxis(LawAxis, kind="outside_axis"):
    """The loops of a whole training: T x steps."""

    title = "loops of a training (count)"
    factors = ("training.loops", "training.steps")
    varied = factors


class OutsideConstruction(Newton, kind="outside_construction"):
    """The construction of Newton's iteration under another name."""


class OutsideSearch(RandomSearch, kind="outside_search"):
    """A random search under another name."""


class OutsideScheduler(MedianStopping, kind="outside_scheduler"):
    """The median rule under another name."""


class OutsideFigure(Figure, kind="outside_figure"):
    """The number of runs of every cell."""

    place = 35

    def draw(self, study, part):
        bars = {cell.key: len(cell.runs) for cell in part.cells}
        figure = go.Figure(go.Bar(x=list(bars), y=list(bars.values())))
        return Drawing("Runs of outside cells", "The number of runs of every cell.", figure)


class OutsideStore(FolderKind, kind="outside_store"):
    """A store in a folder, with an address of its own."""

    marker = ""
    is_storage = False
    schemes = ("outside",)

    def check(self, place, create):
        if not place.startswith("outside:///"):
            raise StoreError(f"{place} is no path", "write outside:///PATH")

    def open(self, place, storage, checkpoints, create):
        return super().open(place.removeprefix("outside://"), storage, checkpoints, create)

    def example(self, folder, exported):
        return f"outside://{folder}"


class OutsideCluster(Local, kind="outside_cluster"):
    """This machine under another name."""
'''
STUDY = """
question: Does a study with outside members run?
plugins: [members/outside_members.py]
fixed:
  task: {kind: outside_task, dim: 2, points: 5}
  model: {kind: outside_model, width: 16, heads: 2}
  training: {steps: 20, window: 1, batch_size: 8, eval_every: 10, optimizer: outside_optimizer}
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
  - {of: error, along: outside_axis, form: outside_form, theory: outside_course}
"""


@pytest.mark.slow
def test_one_new_member_of_every_family_works_from_the_study_file_to_the_verdict(tmp_path: Path):
    members = tmp_path / "members" / "outside_members.py"
    members.parent.mkdir()
    members.write_text(MEMBERS)
    (tmp_path / "outside.yaml").write_text(STUDY)
    (tmp_path / "here.yaml").write_text("plugins: [members/outside_members.py]\nkind: outside_cluster\n")
    driver = Driver(tmp_path / "outside.yaml", tmp_path, workers=1)
    code, _, errors = driver.finish()
    assert code == 0, errors

    def command(*words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "loopscale.cli.main", *words, "--store", str(driver.store)]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)

    def ask(*words: str) -> str:
        done = command(*words)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def refusal(*words: str) -> str:
        done = command(*words)
        assert done.returncode == 2, done.stderr
        assert len(done.stderr.splitlines()) == 1, done.stderr
        return done.stderr

    def note(*words: str) -> str:
        """The one line of a report that has recorded numbers alone."""
        done = command(*words)
        assert done.returncode == 0, done.stderr
        (line,) = [
            line for line in done.stderr.splitlines() if line.startswith("note: only recorded numbers")
        ]
        return line

    sql = 'SELECT DISTINCT "task.kind" AS task, "model.kind" AS model FROM trials WHERE role <> \'baseline\''
    assert json.loads(ask("query", sql, "--json")) == [{"task": "outside_task", "model": "outside_model"}]
    sql = "SELECT DISTINCT \"training.optimizer.kind\" AS kind FROM trials WHERE role <> 'baseline'"
    assert json.loads(ask("query", sql, "--json")) == [{"kind": "outside_optimizer"}]
    sql = 'SELECT "solver.kind" AS kind, "solver.construction.kind" AS name FROM trials '
    sql += "WHERE role = 'baseline' ORDER BY 1"
    assert json.loads(ask("query", sql, "--json")) == [
        {"kind": "construction", "name": "outside_construction"},
        {"kind": "outside_solver", "name": None},
    ]
    assert len(json.loads(ask("best", "outside.yaml", "--json"))["cells"]) == 4
    page = tmp_path / "page.html"
    ask("report", "outside.yaml", "--out", str(page))
    text = page.read_text()
    assert "outside form" in text
    assert "outside_bound" in text
    assert "Law: error along outside_axis" in text
    assert "loops of a training (count)" in text
    assert "Runs of outside cells" in text
    assert 'id="outsidefigure"' in text
    assert any(word in text for word in ("agrees", "slower", "faster", "undecided", "not learnt"))
    assert ask("list", "--cluster", "here.yaml", "--json").strip().startswith("[")

    # A command without plugins finds the kind of store by the environment. Its storage is a folder of its own.
    def best_of(store: str) -> subprocess.CompletedProcess[str]:
        words = ["best", "outside.yaml", "--json", "--store", store, "--storage", "elsewhere"]
        command = [sys.executable, "-m", "loopscale.cli.main", *words]
        kinds = os.environ | {"LOOPSCALE_PLUGINS": str(members)}
        return subprocess.run(command, cwd=tmp_path, env=kinds, capture_output=True, text=True, check=False)

    assert best_of(f"outside://{driver.store}").stdout == ask("best", "outside.yaml", "--json")
    assert "https://, outside://, postgresql://" in best_of("unknown:///x").stderr

    # The file changes: `list` says so, `run` trains new trials, and the earlier trials stay in the records.
    old = find_plugin("outside_members.py", members.parent).digest
    (trial,) = json.loads(
        ask("query", "SELECT any_value(trial) AS key FROM trials WHERE role = 'replicate'", "--json")
    )
    assert json.loads(ask("predict", trial["key"], "--json"))["model"] == "outside_model"
    members.write_text(MEMBERS + "CHANGED = 1\n")
    new = find_plugin("outside_members.py", members.parent).digest
    (row,) = json.loads(ask("list", "--json"))
    assert row["changed_plugins"] == ["outside_members.py"]
    said = note("report", "outside.yaml", "--out", str(page))
    assert f"outside_members.py with the hash {old}" in said
    assert f"its hash is {new} now" in said
    code, _, errors = driver.finish()
    assert code == 0, errors
    assert f"outside_members.py has changed since the last run (hash {old}, now {new})" in errors
    sql = "SELECT \"model.plugin\" AS plugin, count(*) AS number FROM trials WHERE role = 'replicate' GROUP BY 1"
    assert {row["plugin"]: row["number"] for row in json.loads(ask("query", sql, "--json"))} == {
        f"outside_members.py {old}": 8,
        f"outside_members.py {new}": 8,
    }
    ask("report", "outside.yaml", "--out", str(page))

    # The file is gone, also in an export: a report has recorded numbers, and one line names the file and the hash.
    ask("export", "outside", "--to", str(tmp_path / "exported"))
    members.unlink()
    for store in ("store", "exported"):
        said = note("report", "outside.yaml", "--store", str(tmp_path / store), "--out", str(page))
        assert f"outside_members.py with the hash {new}, which is not loaded" in said
    said = refusal("predict", trial["key"])
    assert f"outside_members.py with the hash {old}, which is not loaded" in said
    assert len(json.loads(ask("best", "outside.yaml", "--json"))["cells"]) == 4
