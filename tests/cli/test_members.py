"""`loopscale check`, `new` and `show` with members from outside, in real processes."""

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.runner.drivers import python_path


def ask(folder: Path, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """The command in a folder. Entries of `environment` are set."""
    import os

    command = [sys.executable, "-m", "loopscale.cli.main", *words]
    return subprocess.run(
        command, cwd=folder, env=os.environ | environment, capture_output=True, text=True, check=False
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("what", "options"),
    [("model", []), ("task", []), ("solver", []), ("model", ["--full"]), ("task", ["--full"])],
)
def test_a_written_start_passes_the_contracts_unchanged(tmp_path: Path, what: str, options: list[str]):
    made = ask(tmp_path, "new", what, "my_first", *options)
    assert made.stdout.splitlines()[0] == "wrote my_first.py"
    done = ask(tmp_path, "check", "my_first.py")
    assert done.returncode == 0, done.stdout
    assert "failed" not in done.stdout
    assert f"{what} my_first" in done.stdout.splitlines()[0]
    assert int(done.stdout.split(" passed")[0].split()[-1]) > 35


@pytest.mark.parametrize(("what", "short"), [("model", "wrap("), ("task", "task_from(")])
def test_a_start_is_short_by_default_and_a_class_of_the_interface_on_request(
    loopscale: Callable[..., Any], elsewhere: Path, what: str, short: str
):
    assert loopscale("new", what, "first").code == loopscale("new", what, "second", "--full").code == 0
    texts = [(elsewhere / name).read_text() for name in ("first.py", "second.py")]
    assert [f"\n{short}" in text for text in texts] == [True, False]
    code = [line for line in texts[0].partition("\n\n\n")[2].splitlines() if line.strip() and line[0] != "#"]
    assert len(code) <= 20
    for text, name in zip(texts, ("first", "second"), strict=True):
        assert f"loopscale check {name}.py" in text
        assert f"my_{what}" not in text


def test_check_sends_a_study_to_plan(loopscale: Callable[..., Any]):
    answer = loopscale("check", "mine.yaml")
    assert answer.code == 2
    assert answer.err.splitlines() == ["mine.yaml is a study; `loopscale plan mine.yaml` checks a study"]


@pytest.mark.slow
def test_a_written_study_can_be_planned_unchanged(tmp_path: Path):
    (tmp_path / "studies").mkdir()
    assert ask(tmp_path, "new", "study", "mine").stdout.splitlines()[0].endswith("studies/mine.yaml")
    done = ask(tmp_path, "plan", "mine")
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("before", "after", "test"),
    [
        (
            "x.cumsum(1) / counts[:, None]",
            "x.mean(1, True) + 0 * counts[:, None]",
            "independent_of_later_tokens",
        ),
        ("self.mean(means)", "self.mean(means).detach()", "every_weight_is_initialised_and_trained"),
        (
            "return self.read_out(self.states(tokens))",
            "return self.read_out(self.states(tokens + torch.rand(()).to(tokens)))",
            "do_not_use_the_global_generator",
        ),
        (
            "return self.read_out(self.states(tokens))",
            "return self.read_out(self.states(tokens))[:, :-1]",
            "a_prediction_at_every_position",
        ),
    ],
)
def test_the_contracts_find_a_wrong_model(tmp_path: Path, before: str, after: str, test: str):
    ask(tmp_path, "new", "model", "my_model", "--full")
    file = tmp_path / "my_model.py"
    assert before in file.read_text()
    file.write_text(file.read_text().replace(before, after))
    done = ask(tmp_path, "check", "my_model.py", "-k", test)
    assert done.returncode == 1, done.stdout
    words = test.replace("_", " ")
    assert words in done.stdout, "a broken rule, or the rule under test of an error"
    assert re.search(r"^my_model\.py:\d+: model my_model( breaks the rule: |: )", done.stdout, re.MULTILINE)
    assert "\n  remedy: " in done.stdout
    traced = ask(tmp_path, "check", "my_model.py", "-k", test, "--trace")
    assert f"test_{test}" not in done.stdout
    assert test in traced.stdout


@pytest.mark.slow
def test_the_contracts_run_in_one_thread(tmp_path: Path):
    """On two threads the contracts of a task took ten times as long."""
    ask(tmp_path, "new", "model", "my_model", "--full")
    file = tmp_path / "my_model.py"
    line = "        return MyModelNet("
    file.write_text(file.read_text().replace(line, f"        assert torch.get_num_threads() == 1\n{line}"))
    done = ask(tmp_path, "check", "my_model.py", "-k", "depth_is_known", OMP_NUM_THREADS="2")
    assert done.returncode == 0, done.stdout


@pytest.mark.slow
def test_the_contracts_find_a_wrong_floor_and_a_wrong_variance(tmp_path: Path):
    ask(tmp_path, "new", "task", "my_task", "--full")
    file, text = tmp_path / "my_task.py", (tmp_path / "my_task.py").read_text()
    file.write_text(text.replace('"reference", {"kind": "ridge"}', '"bayes", {"kind": "averaging"}'))
    done = ask(tmp_path, "check", "my_task.py", "-k", "bayes_predictor")
    assert done.returncode == 1, done.stdout
    file.write_text(text.replace("return self.at_work +", "return 2 * self.at_work +"))
    done = ask(tmp_path, "check", "my_task.py", "-k", "predicting_zero")
    assert done.returncode == 1, done.stdout


@pytest.mark.slow
def test_a_start_replaces_no_file_and_takes_no_kind_of_the_package(tmp_path: Path):
    (tmp_path / "mine.py").write_text("kept")
    for words, what in (
        (("model", "mine"), "there is a file mine.py already; choose another name"),
        (("model", "looped"), "there is a model 'looped' already; choose another name"),
        (("solver", "ridge"), "there is a solver 'ridge' already; choose another name"),
        (("study", "mine", "--full"), "a study has one form; leave --full out"),
        (("task", "My-Task"), "'My-Task' cannot be a name here"),
    ):
        done = ask(tmp_path, "new", *words)
        assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
        assert what in done.stderr
    assert (tmp_path / "mine.py").read_text() == "kept"


def test_check_without_pytest_says_what_to_install(tmp_path: Path):
    """An environment in which `import pytest` finds nothing."""
    (tmp_path / "sitecustomize.py").write_text(
        "import sys\n"
        "class Hidden:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'pytest':\n"
        "            raise ModuleNotFoundError(name, name=name)\n"
        "sys.meta_path.insert(0, Hidden())\n"
    )
    done = ask(tmp_path, "check", "my_model.py", PYTHONPATH=python_path(tmp_path))
    assert done.returncode == 2
    assert "pip install 'loopscale[check]'" in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.slow
def test_show_lists_and_describes_members_of_the_environment(tmp_path: Path):
    ask(tmp_path, "new", "model", "my_model", "--full")
    (tmp_path / "broken.py").write_text("1 / 0\n")
    named = {"LOOPSCALE_PLUGINS": "my_model.py:broken.py"}
    done = ask(tmp_path, "show", "models", **named)
    assert "my_model" in done.stdout
    assert "the members of broken.py are missing (broken.py:1: the file does not import" in done.stderr
    done = ask(tmp_path, "show", "models", "my_model", **named)
    assert "my_model (my_model.py.MyModel)" in done.stdout
    assert "Coordinates of the state of a token." in done.stdout


def test_check_of_a_file_with_a_mistake_is_one_line(tmp_path: Path):
    (tmp_path / "wrong.py").write_text("import absent_module\n")
    done = ask(tmp_path, "check", "wrong.py")
    assert done.returncode == 2
    assert done.stderr.startswith("wrong.py:1: the file does not import (ModuleNotFoundError: ")
    assert len(done.stderr.splitlines()) == 1


NOISY_OR_ENDING = """question: P?
plugins: [./mine.py]
fixed:
  task: {kind: mine, dim: 2, points: 4}
  model: {kind: looped, width: 8, heads: 1}
  training: {steps: 40, batch_size: 8, loops: 1, window: 1, eval_every: 20}
replicates: 2
evaluate: {loops: 2, prompts: 16}
"""


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize(
    ("line", "code"), [("raise SystemExit(0)", 2), ("print('a word of the task')", 0)], ids=["ends", "prints"]
)
def test_a_task_that_ends_the_program_is_a_mistake_and_a_task_that_prints_leaves_json_alone(
    tmp_path: Path, line: str, code: int
):
    assert ask(tmp_path, "new", "task", "mine", "--full").returncode == 0
    (tmp_path / "study.yaml").write_text(NOISY_OR_ENDING)
    file = tmp_path / "mine.py"
    head, found, rest = file.read_text().partition('        """Fresh prompts.')
    assert found
    file.write_text(f"{head}        {line}\n{found}{rest}")
    done = ask(tmp_path, "plan", "study.yaml", "--json")
    assert done.returncode == code, done.stderr
    if code:
        assert done.stdout == ""
        assert "mine.py:" in done.stderr
        assert "sample ends the program (SystemExit)" in done.stderr
        assert "Traceback" not in done.stderr
    else:
        assert json.loads(done.stdout)["study"] == "study"
        assert "a word of the task" in done.stderr
