"""The names of `import loopscale`: quick, declared, and documented."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import loopscale
from loopscale.cli.main import main
from loopscale.errors import LoopscaleError, StudyError
from loopscale.notation.files import SHIPPED, study_names

STUB = Path(loopscale.__file__).with_name("__init__.pyi")
FILE = Path(__file__).parents[2] / "studies/quickstart.yaml"
TREE = {
    "question": "Do more loops help?",
    "fixed": {
        "task": {"kind": "linear_regression", "dim": 2, "points": 4},
        "model": {"kind": "looped", "width": 8, "heads": 1},
        "training": {"steps": 4, "batch_size": 4, "window": 1, "eval_every": 2},
    },
    "scientific": {"training.loops": [1, 2]},
    "replicates": 2,
}


def test_import_loads_no_other_package_and_no_module_of_its_own():
    code = "import sys, loopscale; print(*(name for name in sys.modules if name[:9] in ('loopscale', 'pydantic')))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["loopscale"]


def test_the_stub_declares_every_name_that_the_package_offers():
    imports = [node for node in ast.parse(STUB.read_text()).body if isinstance(node, ast.ImportFrom)]
    modules = {alias.asname: node.module for node in imports for alias in node.names}
    declared = modules.keys() - {"errors"}
    assert declared == set(loopscale.__all__) - {"__version__", "errors"}
    for name in declared:
        assert modules[name] == loopscale._MODULES[name]


@pytest.mark.parametrize("name", sorted(set(loopscale.__all__) - {"__version__"}))
def test_every_name_exists_and_has_a_text(name: str):
    assert getattr(loopscale, name).__doc__
    assert name in dir(loopscale)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="frobnicate"):
        _ = loopscale.frobnicate  # pyright: ignore[reportAttributeAccessIssue]


def test_a_study_from_a_mapping_from_text_and_from_a_file_is_the_same_study(tmp_path: Path):
    from_mapping = loopscale.Study.parse(TREE, "mine")
    from_text = loopscale.Study.parse(from_mapping.text, "mine")
    (tmp_path / "mine.yaml").write_text(from_mapping.text)
    from_file = loopscale.Study.load(tmp_path / "mine.yaml")
    assert from_mapping.document() == from_text.document() == from_file.document()
    assert from_text.text == from_file.text == from_mapping.text


@pytest.mark.parametrize(
    ("content", "name", "message"),
    [
        (TREE, "my study", "cannot be a study's name"),
        (TREE | {"replicates": object()}, "mine", "no plain data"),
        (TREE | {"replicate": 2}, "mine", "did you mean replicates"),
        ("question: [", "mine", "not YAML"),
    ],
)
def test_a_mistake_of_a_study_is_one_line_with_a_remedy(content, name, message):
    with pytest.raises(StudyError, match=message) as caught:
        loopscale.Study.parse(content, name)
    assert "\n" not in str(caught.value)
    assert "; " in str(caught.value)


def test_every_error_of_the_hierarchy_is_a_loopscale_error():
    classes = [each for each in vars(loopscale.errors).values() if isinstance(each, type)]
    assert len(classes) > 10
    assert all(issubclass(each, LoopscaleError) for each in classes)


def test_errors_have_the_line_of_the_command_line(tmp_path: Path, capfd: pytest.CaptureFixture[str]):
    store = str(tmp_path / "none")
    for call, words in (
        (lambda: loopscale.query("SELECT 1", store), ["query", "SELECT 1"]),
        (lambda: loopscale.results("quickstart", "ftp://x"), ["best", "quickstart", "--store", "ftp://x"]),
        (lambda: loopscale.run("nosuch", store), ["run", "nosuch"]),
        (lambda: loopscale.plan("nosuch"), ["plan", "nosuch"]),
    ):
        with pytest.raises(LoopscaleError) as caught:
            call()
        capfd.readouterr()
        assert main(["--store", store, *words]) == 2
        assert capfd.readouterr().err == f"{caught.value}\n"


def test_a_plan_needs_no_store(tmp_path: Path):
    planned = loopscale.plan(loopscale.Study.parse(TREE, "mine"), tmp_path / "none", rate=1e9)
    assert (planned.study, planned.trials, len(planned.cells)) == ("mine", 4, 2)
    assert not list(tmp_path.iterdir())


def test_a_shipped_study_is_found_by_name_in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    assert loopscale.Study.load("quickstart").text == FILE.read_text()
    assert "algoformer/reduced/figure5" in study_names(SHIPPED)
    (tmp_path / "studies").mkdir()
    (tmp_path / "studies/quickstart.yaml").write_text(loopscale.Study.parse(TREE).text)
    assert loopscale.Study.load("quickstart").question == TREE["question"]
