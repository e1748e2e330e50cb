"""Nets of plugins that are no function of seed and prompt. A plan and a run refuse these nets."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

import loopscale
from loopscale.core.plugins import PluginError
from loopscale.studies.spec import Study
from loopscale.training.sound_nets import _examine, require_sound_net
from loopscale.training.trial import Trial

NET = '''"""A model around a module of PyTorch."""

from itertools import count

import numpy as np
import torch
from torch import Tensor, nn

from loopscale.models.plain import PlainModel

PASSES = count()


class MyModel(PlainModel, kind="my_model"):
    """A recurrent net."""

    share: float = 0.5
    """A number."""

    @property
    def looks_ahead(self) -> bool:
        return False

    def module(self, prompt):
        return MyNet(prompt.dim_in, prompt.dim_out, self.share)


class MyNet(nn.Module):
    def __init__(self, dim_in, dim_out, share):
        super().__init__()
        self.gru = nn.GRU(dim_in, 8, batch_first=True)
        self.read_out = nn.Linear(8, dim_out)
        self.share = share

    def forward(self, tokens: Tensor) -> Tensor:
        states = self.gru(tokens)[0]
        return self.read_out(states)
'''
STATES = "states = self.gru(tokens)[0]"
SUPER = "        super().__init__()\n"
STUDY = """question: Does a net of a plugin learn?
plugins: [./my_model.py]
fixed:
  task: {kind: linear_regression, dim: 2, points: 5}
  model: {kind: my_model}
  training: {steps: 20}
scientific: {model.share: [0.0, 0.5]}
replicates: 1
evaluate: {prompts: 16}
"""


@pytest.fixture
def study(tmp_path: Path) -> Path:
    (tmp_path / "mine.yaml").write_text(STUDY)
    (tmp_path / "my_model.py").write_text(NET)
    return tmp_path / "mine.yaml"


UNSOUND = [
    pytest.param(
        SUPER,
        SUPER + "        torch.manual_seed(3)\n",
        "def module",
        "MyModel.module makes nets of two seeds with the same weights",
        id="own-seed",
    ),
    pytest.param(
        "        self.share = share\n",
        "        self.share = share\n        nn.init.constant_(self.read_out.bias, np.random.randn())\n",
        "def module",
        "MyModel.module makes two nets of one seed with different weights module.read_out.bias",
        id="numpy",
    ),
    pytest.param(
        STATES,
        "states = nn.functional.dropout(self.gru(tokens)[0], self.share, self.training)",
        "def forward",
        "MyNet.forward gives other predictions in a second pass over the same prompts, as dropout or noise does",
        id="dropout",
    ),
    pytest.param(
        STATES,
        "states = self.gru(tokens)[0] + next(PASSES)",
        "def forward",
        "MyNet.forward gives other predictions in a second pass",
        id="passes",
    ),
    pytest.param(
        STATES,
        "states = self.gru(tokens)[0] + self.share * tokens.mean((1, 2))[:, None, None]",
        "def forward",
        "MyNet.forward looks ahead: tokens after a query change the prediction at this query",
        id="mean",
    ),
    pytest.param(
        STATES,
        "states = self.gru(tokens.roll(-1, 1))[0]",
        "def forward",
        "MyNet.forward looks ahead",
        id="one-token",
    ),
]


def message(study: Path, before: str, after: str, where: str, refused: Callable[[], object]) -> str:
    file = study.parent / "my_model.py"
    assert before in NET
    file.write_text(NET.replace(before, after))
    line = next(n for n, text in enumerate(file.read_text().splitlines(), 1) if where in text)
    with pytest.raises(PluginError) as caught:
        refused()
    text = str(caught.value)
    assert text.startswith(f"{file}:{line}: "), text
    assert text.endswith("; correct the method; `loopscale check " + str(file) + "` tests the class")
    assert len(text.splitlines()) == 1
    return text


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize(("before", "after", "where", "what"), UNSOUND)
def test_a_plan_refuses_a_net_that_is_no_function_of_seed_and_prompt(
    study: Path, before: str, after: str, where: str, what: str
):
    assert what in message(study, before, after, where, lambda: loopscale.plan(study))


def test_a_run_refuses_such_a_net_before_a_store_is_made(study: Path, tmp_path: Path):
    """Dropout has an effect in the second cell alone."""
    before, after, where, what = UNSOUND[2].values
    store = tmp_path / "records"
    assert what in message(study, before, after, where, lambda: loopscale.run(study, store, []))
    assert not store.exists()


def test_a_sound_net_can_be_planned_and_leaves_the_global_generator(study: Path):
    before = torch.get_rng_state()
    assert loopscale.plan(study).trials == 2
    assert torch.equal(before, torch.get_rng_state())


def test_a_net_with_constant_initial_weights_is_sound(study: Path):
    file = study.parent / "my_model.py"
    share = "        self.share = share\n"
    file.write_text(
        NET.replace(
            share, share + "        for weight in self.parameters():\n            nn.init.ones_(weight)\n"
        )
    )
    assert loopscale.plan(study).trials == 2


@pytest.mark.parametrize("declared", ["task", "model and task"])
def test_a_net_may_look_ahead_where_the_prompt_has_no_answer(study: Path, declared: str):
    text = NET.replace(STATES, "states = self.gru(tokens.flip(1))[0].flip(1)")
    if "model" in declared:
        text = text.replace("return False", "return True")
    (study.parent / "my_model.py").write_text(text)
    study.write_text(STUDY.replace("points: 5", "points: 5, format: encoder"))
    assert loopscale.plan(study).trials == 2


def test_nets_of_the_package_are_sound_and_equal_models_are_examined_once(study: Path):
    for kind in ("looped", "gpt2", "lstm"):
        trial = Trial.model_validate(
            {
                "task": {"kind": "linear_regression", "dim": 2, "points": 5},
                "model": {"kind": kind, "width": 8},
                "training": {"steps": 2},
            }
        )
        require_sound_net(trial, 1)
    (study.parent / "my_model.py").write_text(
        NET + "\nOF_THIS_TEST = True  # other code, so that no other test has examined the net\n"
    )
    before = _examine.cache_info()
    loaded = Study.load(study)
    loopscale.plan(loaded)
    once = _examine.cache_info()
    assert once.misses - before.misses == 2  # one for each cell
    loopscale.plan(loaded)
    assert _examine.cache_info().misses == once.misses
