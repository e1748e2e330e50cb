"""A study in a notebook, read from a store, from an export beside the notebook, or from its file alone."""

import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from loopscale.analysis.notebook import StudyResults, answer, results
from loopscale.notation.mistakes import Mistakes
from loopscale.records.model import StoreError
from loopscale.records.stores.opening import open_store
from loopscale.records.transfer import export_records
from loopscale.studies.spec import Study
from tests.cli.conftest import TINY, record

FIGURES = [
    lambda study: study.against_loops(),
    lambda study: study.against_points(),
    lambda study: study.replicates(),
    lambda study: study.against_axis("training.loops"),
    lambda study: study.law("error", "loop"),
    lambda study: study.learning(),
]


DATA = Path(__file__).parents[2] / "notebooks" / "data"


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Study:
    file = tmp_path_factory.mktemp("project") / "studies" / "tiny.yaml"
    file.parent.mkdir()
    file.write_text(TINY)
    return Study.load(file)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory, study: Study) -> Path:
    root = tmp_path_factory.mktemp("read") / "records"
    with record(root, study) as records:
        records.whole()
    return root


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, study: Study) -> Path:
    """A folder of notebooks beside `studies/`, without environment variables that name a store."""
    for name in ("LOOPSCALE_STORE", "MLFLOW_TRACKING_URI"):
        monkeypatch.delenv(name, raising=False)
    assert study.path
    shutil.copytree(study.path.parent, tmp_path / "studies")
    (tmp_path / "notebooks").mkdir()
    monkeypatch.chdir(tmp_path / "notebooks")
    return tmp_path


def test_results_are_read_from_the_given_store(project: Path, root: Path):
    tiny = results("tiny", root)
    assert (tiny.missing, tiny.origin) == ("", str(root))
    assert (len(tiny.trials), tiny.study["question"]) == (12, "Does the error fall with the loops?")
    assert set(tiny.curves["trial"]) <= set(tiny.trials["trial"])
    assert repr(tiny) == f"tiny: Does the error fall with the loops? 10 trials in 2 cells, from {root}."
    assert "Does the error fall" in tiny._repr_html_()


def test_the_table_of_measures_lists_nets_before_algorithms(root: Path, project: Path):
    tiny = results("tiny", root)
    table = tiny.measures()
    assert {"error", "error_last", "excess"} <= set(table.columns)
    assert not {"seconds", "flops", "step"} & set(table.columns)
    nets = [cell["label"] for cell in tiny.study["cells"]]
    assert list(table.index[: len(nets)]) == nets
    assert len(table) > len(nets)
    for label, row in tiny.best().iterrows():
        assert table.loc[label, "error"] == pytest.approx(row["error"])


def test_the_default_store_is_read_before_an_export(
    project: Path, root: Path, monkeypatch: pytest.MonkeyPatch
):
    export_records(open_store(root), "tiny", project / "notebooks" / "data" / "tiny")
    assert results("tiny").origin == "data/tiny"
    monkeypatch.setenv("LOOPSCALE_STORE", str(root))
    assert results("tiny").origin == str(root)


def test_a_notebook_finds_the_default_store_beside_the_studies(project: Path, root: Path):
    shutil.copytree(root, project / ".loopscale")
    assert results("tiny").origin == "../.loopscale"


def test_a_default_store_without_a_finished_trial_is_skipped(project: Path, root: Path, study: Study):
    export_records(open_store(root), "tiny", project / "notebooks" / "data" / "tiny")
    with record(project / ".loopscale", study) as records:
        records.parent("RUNNING")
        records.trial(study.cells()[0], "tuning", 0, 0, {"training.lr": 2e-3}, 0.5, "diverged", "loss is nan")
    assert results("tiny").origin == "data/tiny"
    assert len(results("tiny", project / ".loopscale").trials) == 1


def test_an_export_gives_the_same_results_as_its_store(project: Path, root: Path):
    export_records(open_store(root), "tiny", project / "out")
    stored, exported = results("tiny", root), results("tiny", project / "out")
    for name in ("trials", "curves", "history"):
        tables = [getattr(source, name) for source in (stored, exported)]
        in_order = [table.sort_values(list(table.columns[:4])).reset_index(drop=True) for table in tables]
        pd.testing.assert_frame_equal(*in_order)
    assert stored.study == exported.study
    assert stored.answer() == exported.answer()


def test_answers_are_tables_and_sentences(project: Path, root: Path):
    tiny = results("tiny", root)
    assert list(tiny.best().index) == ["loops=1", "loops=2"]
    assert tiny.best().loc["loops=1", "training.lr"] == 5e-3
    assert tiny.best()["error"].to_list() == pytest.approx([0.42, 0.32])
    assert (tiny.best()["error_low"] < tiny.best()["error"]).all()
    assert set(tiny.standings()["baseline"]) == {"least squares", "gradient descent"}
    errors = tiny.trials[tiny.trials["role"] == "replicate"].set_index("label")["error"]
    middle = np.exp(np.log(errors).groupby(level=0).mean())
    standings = tiny.standings()
    assert np.allclose(standings["ratio"], middle.loc[standings.index] / standings["baseline_error"])
    laws = tiny.laws()
    assert (laws["along"] == "loop").all()
    assert laws.loc["loops=2", "rate"] == pytest.approx(0.5, rel=1e-3)
    assert list(tiny.undecided().columns)[:3] == ["because", "replicates", "values"]
    assert tiny.undecided()["because"].str.len().min() > 10
    assert repr(tiny.answer()).startswith("Lowest error: 0.32")
    assert tiny.answer()._repr_html_().startswith("<p>Lowest error")


@pytest.mark.parametrize("draw", FIGURES)
def test_every_figure_has_data(project: Path, root: Path, draw):
    assert draw(results("tiny", root)).data


@pytest.mark.parametrize("draw", FIGURES)
def test_a_figure_of_a_study_without_records_names_the_command_that_runs_the_study(project: Path, draw):
    figure = draw(results("tiny"))
    assert not figure.data
    assert "`loopscale run tiny`" in figure.layout.annotations[0].text


def _tables(tiny: StudyResults) -> tuple[pd.DataFrame, ...]:
    return tiny.trials, tiny.best(), tiny.laws(), tiny.standings(), tiny.undecided()


def test_a_study_without_records_is_read_from_its_file(project: Path):
    tiny = results("tiny")
    assert tiny.study["question"] == "Does the error fall with the loops?"
    assert tiny.missing == (
        "No trial of tiny has finished yet: `loopscale run tiny` trains them, then run this again."
    )
    assert tiny.answer() == (tiny.missing,)
    assert all(table.empty for table in _tables(tiny))
    assert list(tiny.nets()) == []
    assert not tiny.pareto("flops", tiny.task_names()[0]).data
    assert tiny.missing in repr(tiny)
    assert "--store elsewhere`" in results("tiny", "elsewhere").missing
    assert sorted(path.name for path in (project / "notebooks").iterdir()) == []


def test_an_unknown_study_is_a_mistake_that_suggests_a_name(project: Path):
    with pytest.raises(Mistakes, match=r"did you mean tiny\?"):
        results("tinny")


def test_a_wrong_argument_of_a_figure_is_an_error_in_one_line(project: Path, root: Path):
    tiny = results("tiny", root)
    with pytest.raises(
        ValueError, match=r"^model.kind is no numeric axis of tiny; use one of training.loops$"
    ):
        tiny.against_axis("model.kind")
    with pytest.raises(ValueError, match=r"no law of excess along loop; did you mean error along loop\?"):
        tiny.law("excess", "loop")
    with pytest.raises(ValueError, match="there is no task 'x'"):
        tiny.against_loops("x")
    with pytest.raises(ValueError, match=r"there is no cell 'loops=3'; did you mean"):
        list(tiny.nets("loops=3"))
    with pytest.raises(ValueError, match="there are several cells; use one of loops=1, loops=2"):
        list(tiny.nets())


def test_missing_weights_are_an_error(project: Path, root: Path):
    tiny = results("tiny", root)
    with pytest.raises(StoreError, match=r"were not kept here; a run keeps those of replicates"):
        list(tiny.nets("loops=1"))


def test_a_figure_shows_one_of_several_tasks(project: Path, root: Path):
    tiny = results("tiny", root)
    first, second = (cell["key"] for cell in tiny.study["cells"])
    noise = tiny.trials["cell"].map({first: 0.0, second: 0.5}).fillna(0.0)
    two = StudyResults(tiny.study, tiny.trials.assign(**{"task.noise": noise}), tiny.curves, tiny.history)
    assert two.task_names() == ["task.noise=0", "task.noise=0.5"]
    with pytest.raises(ValueError, match=r"there are several tasks; give task=, use one of task.noise=0, "):
        two.against_loops()
    drawn = two.against_loops("task.noise=0.5")
    assert {trace.legendgroup for trace in drawn.data} - {None} == {"loops=2"}


def test_the_front_of_models_is_a_figure_and_a_table():
    study = results("algoformer/reduced/figure2a", beside=DATA)
    for basis, unit in (("flops", "FLOPs"), ("seconds", "s")):
        table = study.pareto_table(basis)
        assert list(table.index) == ["gpt2", "algoformer"]
        assert set(table["cost"]) == {unit}
        front = next(study.pareto(basis).select_traces({"name": "Pareto front"}))
        assert min(front.x) == pytest.approx(table["from_cost"].min(), rel=1e-3)
        assert max(front.x) == pytest.approx(table["to_cost"].max(), rel=1e-3)


def test_the_answer_of_a_notebook_counts_the_verdicts_of_claims_and_laws_and_quotes_clear_claims():
    study = results("quickstart", DATA / "quickstart")
    claims, words = study.claims(), list(study.claims()["verdict"])
    of_claims, of_laws = answer(study)
    assert of_claims.startswith(f"Of {len(claims)} claims, ")
    assert f"{words.count('holds')} hold (first: “{claims.index[words.index('holds')]}”)" in of_claims
    assert of_laws.startswith(f"Of {len(study.laws())} laws beside theory, ")
    both = answer(study, results("algoformer/reduced/figure2b", DATA / "figure2b"))
    assert both[0].startswith(f"Of {len(claims) + 2} claims, {words.count('holds') + 2} hold (first: “")
    assert len(both) == 2


def test_the_answer_without_claims_and_laws_names_the_best_cell_and_studies_without_records(
    project: Path, root: Path
):
    tiny = results("tiny", root)
    tiny.study["laws"] = []
    (sentence,) = answer(tiny)
    assert sentence.startswith("Best is ")
    (missing,) = answer("tiny")
    assert missing.startswith("No trial of tiny has finished yet")
