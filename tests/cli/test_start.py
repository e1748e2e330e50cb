"""The imports of a start of the program, its help and its completion."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

import loopscale

CODE = """
import sys
from loopscale.cli.main import main
code = main(sys.argv[1:])
heavy = sorted({"torch", "mlflow", "ray", "optuna"} & set(sys.modules))
print(code, *heavy, file=sys.stderr)
"""

PRINTING = {"typer", "rich", "markdown_it", "mdurl", "pygments", "attr", "annotated_doc", "shellingham"}
"""Packages that typer imports to print help."""


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize(
    "words",
    [["best", "tiny"], ["query", "SELECT count(*) FROM curves"], ["list"], ["--help"], ["run", "--help"]],
    ids=" ".join,
)
def test_reading_verbs_import_neither_torch_nor_mlflow_nor_ray(store, elsewhere, words):
    command = [sys.executable, "-W", "error", "-c", CODE, "--store", str(store), *words]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.stderr == "0\n"


@pytest.mark.slow
def test_best_needs_no_torch_for_a_study_of_several_tasks(tmp_path):
    store = Path(__file__).parents[2] / "notebooks/data/scaling_dimension"
    words = ["best", "scaling/reduced/dimension", "--store", str(store), "--storage", str(tmp_path)]
    done = subprocess.run([sys.executable, "-c", CODE, *words], capture_output=True, text=True)
    assert done.stderr == "0\n"
    assert "dim=1, noise=0.25" in done.stdout
    assert "dim=2, noise=0.25" in done.stdout


def test_help_imports_only_the_printing_packages():
    code = (
        "import sys; from loopscale.cli.main import main; main(['--help']);"
        "print(*{name.partition('.')[0] for name in sys.modules}, file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    ours = set(done.stderr.split()) - sys.stdlib_module_names - PRINTING
    assert {name for name in ours if not name.startswith(("_", "mdit"))} == {"loopscale"}


def test_every_verb_has_help_with_an_example(loopscale):
    verbs = ["run", "plan", "best", "query", "report", "ui", "list", "show", "predict", "export", "import"]
    for verb in verbs:
        answer = loopscale(verb, "--help")
        assert answer.code == 0
        assert f"Example  loopscale {verb}" in answer.out


def test_without_a_verb_the_help_is_shown(loopscale):
    answer = loopscale()
    assert answer.code == 0
    assert "Usage: loopscale" in answer.out


def test_the_shell_completes_studies(study_file):
    environment = os.environ | {
        "_LOOPSCALE_COMPLETE": "complete_bash",
        "COMP_WORDS": "loopscale run ti",
        "COMP_CWORD": "2",
    }
    done = subprocess.run(
        [sys.executable, "-m", "loopscale.cli.main"],
        env=environment,
        cwd=study_file.parent.parent,
        capture_output=True,
        text=True,
    )
    assert done.stdout.split() == ["tiny"]


@pytest.mark.parametrize(
    "start", ["from loopscale.cli.main import main; main(['--version'])", "import loopscale.runner.on_ray"]
)
def test_the_end_of_a_process_searches_no_objects_for_cycles(start):
    # The last function at the end of the process is the one that was registered first.
    code = f"import atexit, gc; atexit.register(lambda: print(gc.get_freeze_count() > 1000)); {start}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split()[-1] == "True"


def test_python_runs_the_package_as_the_program():
    command = [sys.executable, "-m", "loopscale", "--version"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == f"loopscale {loopscale.__version__}\n"
