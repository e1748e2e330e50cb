"""A study's file that extends another file: the merged tree, its mistakes, and its way to records and clusters."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from loopscale.cli.main import main
from loopscale.cluster.base import Request
from loopscale.cluster.package import build_package, unpack
from loopscale.notation.files import dump_yaml, parse_yaml, read_study
from loopscale.notation.mistakes import Mistakes
from loopscale.notation.plugins import named_plugins, packed_files
from loopscale.questions.claim import read_claims
from loopscale.studies.spec import Study
from tests.core.test_plugins import MODEL, SOLVER

BASE = """\
source: "1e-4"
fixed:
  task: {kind: linear_regression, dim: 2, points: 5}
  model: {kind: looped, width: 8, heads: 1}
  training: {steps: 20, eval_every: 10}
nuisance:
  training.lr: {real: [1e-3, 1e-2], scale: log}
  model.init_std: {real: [0.01, 0.1]}
search: {trials: 2}
baselines: [least_squares, gradient_descent]
"""
OWN = """\
question: Does a base work?
base: ../common.yaml
fixed: {training: {steps: 30}}
scientific: {training.window: [1, 2]}
nuisance:
  training.lr: {choice: [1e-3, 2e-3]}
baselines: [least_squares]
"""
WHOLE = """\
question: Does a base work?
source: "1e-4"
fixed:
  task: {kind: linear_regression, dim: 2, points: 5}
  model: {kind: looped, width: 8, heads: 1}
  training: {steps: 30, eval_every: 10}
scientific: {training.window: [1, 2]}
nuisance:
  training.lr: {choice: [1e-3, 2e-3]}
  model.init_std: {real: [0.01, 0.1]}
search: {trials: 2}
baselines: [least_squares]
"""
Files = Callable[[str, str], Path]


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Files:
    """Write a base and the study that extends the base; gives the study's file."""
    (tmp_path / "studies").mkdir()
    monkeypatch.chdir(tmp_path)

    def write(base: str, own: str) -> Path:
        Path("common.yaml").write_text(base)
        Path("studies/mine.yaml").write_text(own)
        return Path("studies/mine.yaml")

    return write


def mistakes(file: Path, **overrides: str) -> list[str]:
    with pytest.raises(Mistakes) as caught:
        Study.load(file, overrides)
    return [str(mistake) for mistake in caught.value.items]


def keys(study: Study) -> list[tuple[str, str]]:
    return [(cell.key, study.at(cell, {}, 1).key) for cell in study.cells()]


def test_mappings_merge_key_by_key_and_lists_and_ranges_are_replaced(files: Files):
    study = Study.load(files(BASE, OWN))
    assert study.resolved == parse_yaml(WHOLE, "whole").tree
    assert study.document() == Study.parse(WHOLE, "mine").document()
    assert keys(study) == keys(Study.parse(WHOLE, "mine"))


def test_the_recorded_text_is_the_whole_study_without_its_base(files: Files):
    study = Study.load(files(BASE, OWN), {"training.steps": "40"})
    Path("common.yaml").unlink()
    again = Study.parse(study.text, "mine")
    assert again.resolved == parse_yaml(WHOLE, "whole").tree
    assert study.resolved["fixed"]["training"]["steps"] == 40
    assert study.text.startswith("# mine.yaml, with the keys of its base ../common.yaml\n")


@pytest.mark.parametrize(
    ("base", "own", "expected"),
    [
        (
            BASE.replace("heads: 1", "headds: 1"),
            OWN,
            "common.yaml:4: model has no setting 'headds'; did you mean heads?",
        ),
        (BASE.replace("0.1]", "none]"), OWN, "common.yaml:8: "),
        (BASE, OWN.replace("2e-3]", "2e-3}"), "studies/mine.yaml:6: not YAML"),
        (BASE + "x: [\n", OWN, "common.yaml:12: not YAML"),
        (BASE + "sedds: 3\n", OWN, "common.yaml:11: "),
        (BASE, OWN.replace("steps: 30", "stepps: 30"), "studies/mine.yaml:3: "),
        (
            BASE.replace("gradient_descent", "gradient"),
            OWN.replace("baselines: [least_squares]", ""),
            "common.yaml:10: ",
        ),
        (BASE, OWN.replace("least_squares", "squares"), "studies/mine.yaml:7: "),
        (
            BASE + "base: other.yaml\n",
            OWN,
            "common.yaml:11: a base extends no other file; copy the keys of the other file, and take base out",
        ),
        (
            BASE,
            OWN.replace("common", "comon"),
            "studies/mine.yaml:2: there is no file ../comon.yaml, seen from the study's file; did you mean "
            "../common.yaml?",
        ),
        (
            BASE,
            OWN.replace("../common.yaml", "3"),
            "studies/mine.yaml:2: base is 3; write the path of a YAML file, as in base: ../common.yaml",
        ),
        (
            BASE,
            OWN.replace("../common.yaml", "mine.yaml"),
            "studies/mine.yaml:2: a base extends no other file",
        ),
        ("- a list\n", OWN, "common.yaml:1: the file is a list, not a mapping"),
        (
            f"fixed: {{model: {[0] * 900}}}\nlaws: {[[0] * 900] * 3}",
            OWN + f"claims: {[[0] * 900] * 3}",
            "studies/mine.yaml:2: with its base, the file is too large (more than 5,000 values are written); ",
        ),
    ],
)
def test_a_mistake_names_the_file_and_the_line_that_hold_the_value(
    files: Files, base: str, own: str, expected: str
):
    (line,) = mistakes(files(base, own))
    assert line.startswith(expected)


def test_an_option_that_changes_a_value_of_the_base_is_named_itself(files: Files):
    file = files(BASE, OWN)
    assert mistakes(file, **{"model.heads": "-1"})[0].startswith("--set model.heads=-1: ")
    assert mistakes(file, base="x.yaml") == [
        "--set base=x.yaml: --set cannot change the base; write base: into the study's file"
    ]


@pytest.mark.parametrize(
    "text", ["1e-4", "08", "0x1f", "no", "~", "", "1_000", "a: b", "# a", "2020-01-01", "two\nlines", "λ"]
)
def test_every_text_and_number_is_read_back_as_written(text: str):
    tree = {"text": text, "numbers": [1e-5, 1e22, -3, 0.1, True, None], text or "empty": {"a": [{"b": text}]}}
    assert parse_yaml(dump_yaml(tree), "a test").tree == tree


@pytest.fixture
def with_plugins(files: Files) -> Path:
    """A study whose base, in a folder of its own, names a plugin and a measure beside the base."""
    parts = Path("studies/parts")
    parts.mkdir()
    (parts / "my_model.py").write_text(
        MODEL + "\n\ndef miss(task, prediction, batch):\n    return prediction.mean((-2, -1))\n"
    )
    (parts / "nets").mkdir()
    (parts / "nets" / "__init__.py").write_text(SOLVER)
    named = "plugins: [./my_model.py, ./nets]\nevaluate: {measures: [./my_model.py:miss]}\n"
    file = files("", OWN.replace("../common.yaml", "parts/base.yaml"))
    model = "model: {kind: outside_lstm, width: 8}"
    changed = BASE.replace("model: {kind: looped, width: 8, heads: 1}", model)
    changed = changed.replace("  model.init_std: {real: [0.01, 0.1]}\n", "")
    (parts / "base.yaml").write_text(named + changed)
    file.write_text(file.read_text().replace("training.window", "model.gates"))
    return file


def test_plugins_of_a_base_are_files_beside_the_base(with_plugins: Path):
    study = Study.load(with_plugins)
    assert study.resolved["plugins"] == ["./parts/my_model.py", "./parts/nets"]
    assert study.resolved["evaluate"] == {"measures": ["./parts/my_model.py:miss"]}
    assert [plugin.name for plugin in named_plugins(with_plugins)] == ["my_model.py", "nets"]


def test_a_cluster_gets_the_whole_study_and_the_plugins_of_its_base(with_plugins: Path, tmp_path: Path):
    study = Study.load(with_plugins)
    files = packed_files("studies/mine.yaml", with_plugins.parent, study.sources)
    package = build_package("mine", study.text, files)
    request = Request("mine", study.text, package=package.write(tmp_path / "sent"), plugins=files)
    there = tmp_path / "there"
    unpack(request, there)
    assert not list(there.rglob("base.yaml"))
    arrived = Study.load(there / "studies/mine.yaml")
    assert arrived.resolved == study.resolved
    assert keys(arrived) == keys(study)


def test_claims_of_a_base_count_for_older_records(files: Files):
    claims = "claims: [{text: A holds, first: {training.window: 1}, second: {training.window: 2}}]\n"
    file = files(BASE + claims, OWN)
    assert read_claims(file) == read_claims_of_whole(file)
    assert [claim["text"] for claim in read_claims(file)] == ["A holds"]


def read_claims_of_whole(file: Path) -> list[dict[str, Any]]:
    whole = Path("whole.yaml")
    whole.write_text(read_study(file).text)
    return read_claims(whole)


def test_plan_resolved_prints_the_study_that_runs(files: Files, capsys: pytest.CaptureFixture[str]):
    file = files(BASE, OWN)
    assert main(["plan", str(file), "--resolved", "--set", "training.steps=50"]) == 0
    printed = parse_yaml(capsys.readouterr().out, "printed").tree
    expected = parse_yaml(WHOLE.replace("steps: 30", "steps: 50"), "whole").tree
    assert printed == expected
    assert main(["plan", str(file), "--resolved", "--set", "training.steps=50", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == expected
