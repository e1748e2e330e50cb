"""What a study does with plugins: further measures, packages for clusters, and clusters' files."""

import zipfile
from pathlib import Path

import pytest
import torch

from loopscale.cluster.base import Request
from loopscale.cluster.files import load_cluster
from loopscale.cluster.package import build_package, unpack
from loopscale.core import plugins
from loopscale.core.plugins import MissingPlugin
from loopscale.evaluate import Evaluation, evaluate
from loopscale.notation.mistakes import Mistakes
from loopscale.notation.plugins import packed_files, require_recorded_plugins
from loopscale.records.tables import decode_curve, encode_curve
from loopscale.solvers.base import Solver
from loopscale.studies.spec import Study
from loopscale.tasks.base import Task

MEASURES = '''"""Measures."""


def largest_miss(task, prediction, batch):
    """The largest squared error of a prompt."""
    return (prediction - batch.targets).square().amax((-2, -1))


def whole_batch(task, prediction, batch):
    return prediction.mean()


def needs_more(task, prediction):
    return prediction.mean()


NUMBER = 3
'''
STUDY = """question: Is the largest miss small?
fixed:
  task: {kind: linear_regression, dim: 2, points: 5}
  model: {kind: looped, width: 8, heads: 1}
  training: {steps: 20, loops: 2, window: 1}
replicates: 1
evaluate:
  prompts: 16
  measures: [MEASURE]
"""


@pytest.fixture
def study(tmp_path: Path) -> Path:
    (tmp_path / "my_measures.py").write_text(MEASURES)
    file = tmp_path / "mine.yaml"
    file.write_text(STUDY.replace("MEASURE", "./my_measures.py:largest_miss"))
    return file


def test_a_further_measure_is_evaluated_at_every_loop(study: Path):
    evaluation = Study.load(study).evaluate
    assert evaluation.names == ("largest_miss",)
    task = Task.model_validate({"kind": "linear_regression", "dim": 2, "points": 5})
    solver = Solver.model_validate({"kind": "gradient_descent"})
    again = Evaluation.model_validate_json(evaluation.model_dump_json())  # as in an order for a worker
    curve = evaluate(solver, task, again)
    assert curve.measures["largest_miss"].shape == curve.error.shape[:1]
    assert (curve.measures["largest_miss"] >= curve.raw.mean(1)).all()
    content = encode_curve(
        curve.error, curve.sem, curve.raw, measures={"largest_miss": curve.measures["largest_miss"]}
    )
    column = decode_curve(content)["largest_miss"]
    torch.testing.assert_close(torch.tensor(column[:, 0]), torch.tensor(curve.measures["largest_miss"]))


def test_a_changed_measure_is_evaluated_again_and_not_trained_again(study: Path):
    before = Study.load(study)
    (study.parent / "my_measures.py").write_text(MEASURES + "CHANGED = 1\n")
    after = Study.load(study)
    assert after.evaluate.key != before.evaluate.key
    assert [cell.key for cell in after.cells()] == [cell.key for cell in before.cells()]


@pytest.fixture
def recorded(study: Path) -> tuple[str, ...]:
    """The plugins of a recorded study, which this process has not loaded."""
    recorded = Study.load(study).used_plugins
    plugins._unload(plugins.loaded["my_measures.py"])
    plugins.load_installed.cache_clear()
    return recorded


def test_readers_find_the_file_of_a_measure_by_the_study(study: Path, recorded: tuple[str, ...]):
    require_recorded_plugins(study, "mine", recorded)
    (study.parent / "my_measures.py").write_text(MEASURES + "CHANGED = 1\n")
    with pytest.raises(MissingPlugin, match=r"but the plugin has changed, .*; restore the file"):
        require_recorded_plugins(study, "mine", recorded)


def test_readers_find_the_file_of_a_measure_by_the_environment(
    study: Path, recorded: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
):
    with pytest.raises(
        MissingPlugin, match=r"which is not loaded; .* set LOOPSCALE_PLUGINS to my_measures.py$"
    ):
        require_recorded_plugins("elsewhere", "mine", recorded)
    monkeypatch.setenv("LOOPSCALE_PLUGINS", str(study.parent / "my_measures.py"))
    plugins.load_installed.cache_clear()
    require_recorded_plugins("elsewhere", "mine", recorded)


def test_studies_without_measures_keep_the_keys_of_their_evaluations():
    assert Evaluation().key == "cfbb694d"
    assert Evaluation(task={"condition": 9}).key == "9d421df2"
    assert "measures" not in Study.parse(PLAIN).document()["evaluate"]
    assert "plugins" not in Study.parse(PLAIN).document()


PLAIN = {
    "question": "?",
    "fixed": {
        "task": {"kind": "linear_regression", "dim": 2, "points": 5},
        "model": {"kind": "looped", "width": 8, "heads": 1},
        "training": {"steps": 20, "loops": 2, "window": 1},
    },
}


@pytest.mark.parametrize(
    ("named", "what"),
    [
        ("./my_measures.py", "names no function"),
        ("./absent.py:f", "there is no Python file ./absent.py beside the study"),
        ("./my_measures.py:absent", "my_measures.py:1: there is no function absent"),
        ("./my_measures.py:NUMBER", "my_measures.py:1: there is no function NUMBER"),
        ("./my_measures.py:whole_batch", "whole_batch gives values of shape () for 1 step and 2 prompts"),
        ("./my_measures.py:needs_more", "needs_more fails on linear_regression (TypeError"),
    ],
)
def test_a_wrong_measure_is_one_line(study: Path, named: str, what: str):
    study.write_text(study.read_text().replace("./my_measures.py:largest_miss", named))
    with pytest.raises(Mistakes) as caught:
        Study.load(study)
    assert len(caught.value.items) == 1
    assert what in str(caught.value)


def test_a_measure_cannot_have_the_name_of_another_measure(study: Path):
    (study.parent / "my_measures.py").write_text(MEASURES.replace("largest_miss", "raw_error"))
    study.write_text(study.read_text().replace("largest_miss", "raw_error"))
    with pytest.raises(
        Mistakes, match=r"mine.yaml:9: there is a measure raw_error already; give the function"
    ):
        Study.load(study)


MODEL = (
    "from loopscale.models.lstm import Lstm\n\n\nclass Mine(Lstm, kind='packed_lstm'):\n    '''An LSTM.'''\n"
)


def with_plugins(tmp_path: Path) -> Study:
    """A study below studies/ with a file above it and a package beside it."""
    (tmp_path / "studies" / "inner").mkdir(parents=True)
    (tmp_path / "my_model.py").write_text(MODEL)
    package = tmp_path / "studies" / "inner" / "my_measures"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "misses.py").write_text(MEASURES)
    file = tmp_path / "studies" / "inner" / "mine.yaml"
    text = STUDY.replace("MEASURE", "my_measures.misses:largest_miss")
    text = text.replace("{kind: looped, width: 8, heads: 1}", "{kind: packed_lstm}")
    file.write_text(f"plugins: [../../my_model.py]\n{text}")
    return Study.load(file)


def test_a_package_for_a_cluster_holds_the_plugins_where_the_study_names_them(tmp_path: Path):
    study = with_plugins(tmp_path)
    assert study.path
    files = packed_files(f"studies/{study.name}.yaml", study.path.parent, study.sources)
    assert sorted(files) == [
        "my_model.py",
        "studies/inner/my_measures/__init__.py",
        "studies/inner/my_measures/misses.py",
    ]
    archive = build_package(study.name, study.text, files).write(tmp_path / "archives")
    with zipfile.ZipFile(archive) as content:
        assert {*files, "studies/inner/mine.yaml"} <= set(content.namelist())
    for request in (
        Request(study.name, study.text, package=archive, plugins=files),
        Request(study.name, study.text, plugins=files),  # without code
    ):
        folder = tmp_path / f"unpacked{bool(request.package)}"
        unpack(request, folder)
        again = Study.load(folder / request.file)
        assert again.used_plugins == study.used_plugins
        assert [cell.key for cell in again.cells()] == [cell.key for cell in study.cells()]


def test_a_plugin_outside_of_the_package_for_a_cluster_is_a_mistake(tmp_path: Path):
    study = with_plugins(tmp_path)
    assert study.path
    with pytest.raises(
        Mistakes, match=r"the plugin ../../my_model.py lies outside of .*; put the file beside"
    ):
        packed_files("mine.yaml", study.path.parent, study.sources)


def test_a_clusters_file_may_name_a_plugin(tmp_path: Path):
    (tmp_path / "my_cluster.py").write_text(
        "from loopscale.cluster.local import Local\n\n\nclass Mine(Local, kind='my_cluster'):\n    '''Here.'''\n"
    )
    file = tmp_path / "here.yaml"
    file.write_text("plugins: [./my_cluster.py]\nkind: my_cluster\n")
    name, cluster = load_cluster(str(file))
    assert (name, cluster.kind) == ("here", "my_cluster")
