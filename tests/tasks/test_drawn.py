"""Tasks that `task_from` makes of functions, in files that a study names."""

import pickle
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import loopscale
from loopscale.core.plugins import PluginError, find_plugin, load
from loopscale.core.seeds import stream
from loopscale.notation.mistakes import Mistakes
from loopscale.studies.spec import Study
from loopscale.tasks.base import Task

SIGNS = '''"""A task."""

import torch

from loopscale.tasks import task_from


def sign_weights(rng, batch: int, dim: int = 5, points: int = 10, noise: float = 0.1, scale: float = 2.0):
    """Linear regression whose weights are signs."""
    xs = torch.randn(batch, points, dim, generator=rng)
    w = torch.randint(0, 2, (batch, dim, 1), generator=rng) * 2.0 - 1
    return xs, scale * (xs @ w).squeeze(-1) + noise * torch.randn(batch, points, generator=rng)


task_from(sign_weights)
'''
STUDY = """question: Does a drawn task train?
plugins: [./my_signs.py]
fixed:
  task: {kind: sign_weights, dim: 2, points: 5}
  model: {kind: looped, width: 8, heads: 1}
  training: {steps: 20, loops: 2, window: 1}
scientific: {task.scale: [1.0, 2.0]}
replicates: 1
evaluate: {prompts: 16}
baselines: [least_squares]
"""


@pytest.fixture
def study(tmp_path: Path) -> Path:
    (tmp_path / "my_signs.py").write_text(SIGNS)
    (tmp_path / "mine.yaml").write_text(STUDY)
    return tmp_path / "mine.yaml"


def drawn(study: Path, **settings: object) -> Task:
    load(find_plugin("./my_signs.py", study.parent))
    return Task.model_validate({"kind": "sign_weights"} | settings)


def test_the_arguments_of_a_function_are_the_settings_of_its_task(study: Path):
    task = drawn(study, scale=3.0)
    assert task.model_dump() == {
        "kind": "sign_weights",
        "plugin": find_plugin("./my_signs.py", study.parent).text,
        "dim": 5,
        "points": 10,
        "active": None,
        "format": "decoder",
        "noise": 0.1,
        "scale": 3.0,
    }
    assert pickle.loads(pickle.dumps(task)) == task
    with pytest.raises(ValueError, match="greater than or equal to 0"):
        drawn(study, noise=-1.0)


def test_a_drawn_prompt_has_the_pairs_of_the_function(study: Path):
    batch = drawn(study).sample(3, stream(0))
    rng = stream(0)
    xs = torch.randn(3, 10, 5, generator=rng)
    torch.testing.assert_close(batch.tokens[:, ::2, :5], xs)
    torch.testing.assert_close(batch.problem.xs, xs)
    assert batch.targets.shape == (3, 10, 1)
    assert len(drawn(study, format="encoder").sample(3, stream(0)).queries) == 1


def test_the_scale_of_errors_follows_from_the_draws_and_the_noise(study: Path):
    """The variance is scale² dim + noise²."""
    assert drawn(study).variance == pytest.approx(4 * 5 + 0.01, rel=0.01)
    assert drawn(study, noise=3.0).variance - drawn(study, noise=0.0).variance == pytest.approx(9)
    assert isinstance(drawn(study).variances, float)
    assert (drawn(study).fixed_guess == 0).all()
    easier = drawn(study).easier(2, 6)
    assert easier.variance == pytest.approx(4 * 2 + 0.01, rel=0.02)
    tokens = easier.sample(3, stream(0)).tokens
    assert tokens.shape == (3, 12, 6)
    assert (tokens[:, :, 2:5] == 0).all()


def test_targets_that_grow_have_a_scale_and_a_guess_for_each_query(study: Path):
    text = SIGNS.replace(
        "    return xs, scale * ", "    grown = 1 + torch.arange(points)\n    return xs, grown * "
    )
    text = text.replace("squeeze(-1) + noise", "squeeze(-1) + grown + noise")
    (study.parent / "my_signs.py").write_text(text)
    task = drawn(study, points=3, noise=0.0)
    expected = torch.tensor([1.0, 4.0, 9.0])
    torch.testing.assert_close(task.variances, 6 * expected, rtol=0.03, atol=0)
    torch.testing.assert_close(task.fixed_guess[:, 0], expected.sqrt(), rtol=0.1, atol=0)
    last = drawn(study, points=3, noise=0.0, format="encoder")
    assert last.variance == pytest.approx(54, rel=0.03)


def test_a_study_with_a_drawn_task_can_be_planned(study: Path):
    plan = loopscale.plan(study)
    assert (plan.trials, plan.baselines) == (2, 2)


@pytest.mark.slow
def test_a_study_with_a_drawn_task_runs(study: Path, tmp_path: Path):
    summary = loopscale.run(study, tmp_path / "records", [], workers=1)
    assert summary.outcomes == {"finished": 2}
    assert summary.baselines == {"finished": 2}


@pytest.mark.slow
def test_a_drawn_task_passes_the_contracts(study: Path):
    command = [sys.executable, "-m", "loopscale.cli.main", "check", "my_signs.py"]
    done = subprocess.run(command, cwd=study.parent, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout


CALL = "task_from(sign_weights)"
HEAD = "dim: int = 5, points: int = 10, noise: float = 0.1, scale: float = 2.0"


@pytest.mark.parametrize(
    ("before", "after", "where", "what"),
    [
        (
            CALL,
            "task_from(torch.randn)",
            "task_from(torch",
            "randn is no function of Python; write def my_task(rng, ",
        ),
        (
            HEAD,
            HEAD.replace("dim", "d"),
            "def sign",
            "takes (rng, batch, d, points, noise, scale), and the task gives",
        ),
        (
            HEAD,
            HEAD.replace("scale: float", "scale"),
            "def sign",
            "the argument scale of sign_weights has no annot",
        ),
        (
            HEAD,
            HEAD.replace("scale", "variance"),
            "def sign",
            "the argument variance of sign_weights has a name that",
        ),
        (
            HEAD,
            HEAD.replace("int = 5", "int = 0"),
            "def sign",
            "the argument dim of sign_weights has the default 0",
        ),
    ],
)
def test_a_function_that_cannot_be_a_task_is_one_line(
    study: Path, before: str, after: str, where: str, what: str
):
    file = study.parent / "my_signs.py"
    file.write_text(SIGNS.replace(before, after))
    line = next(n for n, text in enumerate(file.read_text().splitlines(), 1) if where in text)
    with pytest.raises(Mistakes) as caught:
        Study.load(study)
    message = str(caught.value)
    assert message.startswith(f"{file}:{line}: "), message
    assert what in message
    assert len(message.splitlines()) == 1


@pytest.mark.parametrize(
    ("before", "after", "what"),
    [
        ("return xs, ", "return ", "sign_weights returns Tensor, not two tensors x and y"),
        ("return xs, ", "return xs.double(), ", "returns x of (1, 5, 2) and torch.float64, not (1, 5, 2) and torch.fl"),
        (".squeeze(-1) + noise", " + noise", "returns y of (1, 5, 5) and torch.float32, not (1, 5) and torch.float32"),
        ("points, generator=rng)\n", "points)\n", "returns other pairs for the same rng, so some number is not from"),
        ("    xs = ", "    rng.manual_seed(0)\n    xs = ", "returns the same pairs for every rng"),
        ("return xs, ", "return xs, 0 * noise * ", "returns y of 0 in every prompt, which leaves nothing to predict"),
    ],
)  # fmt: skip
def test_a_function_that_draws_wrong_pairs_is_one_line_before_any_training(
    study: Path, before: str, after: str, what: str
):
    file = study.parent / "my_signs.py"
    text = SIGNS.replace(before, after)
    if "0 * noise" in after:
        text = text.replace("squeeze(-1) + noise * ", "squeeze(-1) + 0 * ")
    file.write_text(text)
    line = next(n for n, text in enumerate(file.read_text().splitlines(), 1) if "def sign" in text)
    with pytest.raises(PluginError) as caught:
        loopscale.plan(study)
    message = str(caught.value)
    assert message.startswith(f"{file}:{line}: sign_weights returns "), message
    assert what in message
    assert message.endswith("; correct the function; `loopscale check " + str(file) + "` tests the task")
