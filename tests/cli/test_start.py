"""How quickly the program answers, and what it leaves unimported."""

import os
import resource
import subprocess
import sys

import pytest

CODE = """
import sys
from loopscale.cli.main import main
code = main(sys.argv[1:])
heavy = sorted({"torch", "mlflow", "ray", "optuna"} & set(sys.modules))
print(code, *heavy, file=sys.stderr)
"""


@pytest.mark.parametrize(
    "words",
    [["best", "tiny"], ["query", "SELECT count(*) FROM curves"], ["list"], ["--help"], ["run", "--help"]],
    ids=" ".join,
)
def test_reading_needs_neither_torch_nor_mlflow_nor_ray(store, elsewhere, words):
    command = [sys.executable, "-W", "error", "-c", CODE, "--store", str(store), *words]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.stderr == "0\n"


def test_help_takes_no_time():
    """In processor time, which a busy machine does not stretch as it does the wall's."""
    spent = []
    for _ in range(3):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(
            [sys.executable, "-m", "loopscale.cli.main", "--help"], check=True, capture_output=True
        )
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        spent.append(after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime)
    assert min(spent) < 0.3


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
