"""A study as a notebook reads it: from a store, from an export beside the notebook, or not run yet."""

import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from loopscale.analysis.notebook import StudyResults, results
from loopscale.records.model.errors import StoreError
from loopscale.records.stores.store import Store
from loopscale.records.transfer import export
from loopscale.studies.mistakes import Mistakes
from loopscale.studies.spec import Study
from tests.cli.conftest import TINY, record

FIGURES = [
    lambda found: found.against_loops(),
    lambda found: found.against_points(),
    lambda found: found.replicates(),
    lambda found: found.against_axis("training.loops"),
    lambda found: found.law("error", "loop"),
    lambda found: found.learning(),
]


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Study:
    file = tmp_path_factory.mktemp("project") / "studies" / "tiny.yaml"
    file.parent.mkdir()
    file.write_text(TINY)
    return Study.load(file)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory, study: Study) -> Path:
    root = tmp_path_factory.mktemp("read") / "records"
    with record(root, study) as made:
        made.whole()
    return root


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, study: Study) -> Path:
    """A folder of notebooks beside `studies/`, where nothing says where the records are."""
    for name in ("LOOPSCALE_STORE", "MLFLOW_TRACKING_URI"):
        monkeypatch.delenv(name, raising=False)
    assert study.path
    shutil.copytree(study.path.parent, tmp_path / "studies")
    (tmp_path / "notebooks").mkdir()
    monkeypatch.chdir(tmp_path / "notebooks")
    return tmp_path


def test_the_store_that_is_given_is_read(here: Path, root: Path):
    found = results("tiny", root)
    assert (found.missing, found.origin) == ("", str(root))
    assert (len(found.trials), found.study["question"]) == (12, "Does the error fall with the loops?")
    assert set(found.curves["trial"]) <= set(found.trials["trial"])
    assert repr(found) == f"tiny: Does the error fall with the loops? 10 trials in 2 cells, from {root}."
    assert "Does the error fall" in found._repr_html_()


def test_measures_of_nets_and_algorithms_are_a_table(root: Path, here: Path):
    found = results("tiny", root)
    table = found.measures()
    assert {"error", "error_last", "excess"} <= set(table.columns)
    assert not {"seconds", "flops", "step"} & set(table.columns)
    nets = [cell["label"] for cell in found.study["cells"]]
    assert list(table.index[: len(nets)]) == nets
    assert len(table) > len(nets)
    for label, row in found.best().iterrows():
        assert table.loc[label, "error"] == pytest.approx(row["error"])


def test_the_default_store_comes_before_an_export(here: Path, root: Path, monkeypatch: pytest.MonkeyPatch):
    export(Store.open(root), "tiny", here / "notebooks" / "data" / "tiny")
    assert results("tiny").origin == "data/tiny"
    monkeypatch.setenv("LOOPSCALE_STORE", str(root))
    assert results("tiny").origin == str(root)


def test_the_default_store_beside_the_studies_is_found_from_the_notebooks(here: Path, root: Path):
    shutil.copytree(root, here / ".loopscale")
    assert results("tiny").origin == "../.loopscale"


def test_a_store_without_a_finished_trial_is_passed_over(here: Path, root: Path, study: Study):
    export(Store.open(root), "tiny", here / "notebooks" / "data" / "tiny")
    with record(here / ".loopscale", study) as made:
        made.parent("RUNNING")
        made.trial(study.cells()[0], "tuning", 0, 0, {"training.lr": 2e-3}, 0.5, "diverged", "loss is nan")
    assert results("tiny").origin == "data/tiny"
    assert len(results("tiny", here / ".loopscale").trials) == 1


def test_an_export_reads_as_the_store_that_it_is_from(here: Path, root: Path):
    export(Store.open(root), "tiny", here / "out")
    stored, exported = results("tiny", root), results("tiny", here / "out")
    for name in ("trials", "curves", "history"):
        one, other = (
            getattr(found, name).sort_values(list(getattr(found, name).columns[:4])).reset_index(drop=True)
            for found in (stored, exported)
        )
        pd.testing.assert_frame_equal(one, other)
    assert stored.study == exported.study
    assert stored.answer() == exported.answer()


def test_what_was_found_comes_as_tables(here: Path, root: Path):
    found = results("tiny", root)
    assert list(found.best().index) == ["loops=1", "loops=2"]
    assert found.best().loc["loops=1", "training.lr"] == 5e-3
    assert found.best()["error"].to_list() == pytest.approx([0.42, 0.32])
    assert (found.best()["error_low"] < found.best()["error"]).all()
    assert set(found.standings()["baseline"]) == {"least squares", "gradient descent"}
    errors = found.trials[found.trials["role"] == "replicate"].set_index("label")["error"]
    middle = np.exp(np.log(errors).groupby(level=0).mean())
    standings = found.standings()
    assert np.allclose(standings["ratio"], middle.loc[standings.index] / standings["baseline_error"])
    laws = found.laws()
    assert (laws["along"] == "loop").all()
    assert laws.loc["loops=2", "rate"] == pytest.approx(0.5, rel=1e-3)
    assert list(found.undecided().columns)[:3] == ["because", "replicates", "values"]
    assert found.undecided()["because"].str.len().min() > 10
    assert repr(found.answer()).startswith("Lowest error: 0.32")
    assert found.answer()._repr_html_().startswith("<p>Lowest error")


@pytest.mark.parametrize("draw", FIGURES)
def test_figures_are_drawn_from_what_was_read(here: Path, root: Path, draw):
    assert draw(results("tiny", root)).data


@pytest.mark.parametrize("draw", FIGURES)
def test_a_figure_of_a_study_that_was_not_run_says_how_to(here: Path, draw):
    figure = draw(results("tiny"))
    assert not figure.data
    assert "`loopscale run tiny`" in figure.layout.annotations[0].text


def _tables(found: StudyResults) -> tuple[pd.DataFrame, ...]:
    return found.trials, found.best(), found.laws(), found.standings(), found.undecided()


def test_a_study_that_was_not_run_is_read_from_its_file(here: Path):
    found = results("tiny")
    assert found.study["question"] == "Does the error fall with the loops?"
    assert found.missing == (
        "No trial of tiny has finished yet: `loopscale run tiny` trains them, then run this again."
    )
    assert found.answer() == (found.missing,)
    assert all(table.empty for table in _tables(found))
    assert list(found.nets()) == []
    assert found.missing in repr(found)
    assert "--store elsewhere`" in results("tiny", "elsewhere").missing
    assert sorted(path.name for path in (here / "notebooks").iterdir()) == []


def test_a_name_that_is_none_is_a_mistake(here: Path):
    with pytest.raises(Mistakes, match=r"did you mean tiny\?"):
        results("tinny")


def test_what_a_figure_cannot_be_of_is_one_line(here: Path, root: Path):
    found = results("tiny", root)
    with pytest.raises(
        ValueError, match=r"^model.kind is no numeric axis of tiny; use one of training.loops$"
    ):
        found.against_axis("model.kind")
    with pytest.raises(ValueError, match=r"no law of excess along loop; did you mean error along loop\?"):
        found.law("excess", "loop")
    with pytest.raises(ValueError, match="there is no task 'x'"):
        found.against_loops("x")
    with pytest.raises(ValueError, match=r"there is no cell 'loops=3'; did you mean"):
        list(found.nets("loops=3"))
    with pytest.raises(ValueError, match="there are several cells; use one of loops=1, loops=2"):
        list(found.nets())


def test_weights_that_are_nowhere_are_said(here: Path, root: Path):
    found = results("tiny", root)
    with pytest.raises(StoreError, match=r"were not kept; those of replicates"):
        list(found.nets("loops=1"))


def test_several_tasks_are_drawn_one_at_a_time(here: Path, root: Path):
    found = results("tiny", root)
    first, second = (cell["key"] for cell in found.study["cells"])
    noise = found.trials["cell"].map({first: 0.0, second: 0.5}).fillna(0.0)
    two = StudyResults(found.study, found.trials.assign(**{"task.noise": noise}), found.curves, found.history)
    assert two.task_names() == ["task.noise=0", "task.noise=0.5"]
    with pytest.raises(ValueError, match=r"there are several tasks; give task=, use one of task.noise=0, "):
        two.against_loops()
    drawn = two.against_loops("task.noise=0.5")
    assert {trace.legendgroup for trace in drawn.data} - {None} == {"loops=2"}
