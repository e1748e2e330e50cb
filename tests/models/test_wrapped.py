"""Models that `wrap` makes of module classes, in files that a study names."""

import json
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import loopscale
from loopscale.core import plugins
from loopscale.core.plugins import PluginError, find_plugin, load
from loopscale.core.prompt import Prompt
from loopscale.core.seeds import stream
from loopscale.models.base import Model
from loopscale.models.plain import PlainModel
from loopscale.notation.mistakes import Mistakes
from loopscale.studies.spec import Study
from loopscale.training import cost
from loopscale.training.loop import Learner
from loopscale.training.trial import Trial

PROMPT = Prompt(length=10, dim_in=4, dim_out=2, pairs="interleaved")
MIXER = '''"""An idea."""

from typing import Literal

from torch import Tensor, nn

from loopscale.models import wrap


class GRUMixer(nn.Module):
    """Recurrent layers."""

    def __init__(self, dim: int, layers: int = 2, gate: Literal["on", "off"] = "on") -> None:
        super().__init__()
        self.gru = nn.GRU(dim, dim, num_layers=layers, batch_first=True)
        self.gate = gate

    def forward(self, states: Tensor) -> Tensor:
        return states + self.gru(states)[0]


wrap(GRUMixer)
'''
STUDY = """question: Does a wrapped module learn?
plugins: [./my_mixer.py]
fixed:
  task: {kind: linear_regression, dim: 2, points: 5}
  model: {kind: gru_mixer, dim: 8}
  training: {steps: 20}
scientific: {model.layers: [1, 2]}
replicates: 1
evaluate: {prompts: 16}
"""


@pytest.fixture
def study(tmp_path: Path) -> Path:
    (tmp_path / "my_mixer.py").write_text(MIXER)
    (tmp_path / "mine.yaml").write_text(STUDY)
    return tmp_path / "mine.yaml"


def trial(study: Path) -> Trial:
    loaded = Study.load(study)
    return loaded.at(loaded.cells()[1], {}, 0)


def test_the_arguments_of_a_module_are_the_settings_of_its_model(study: Path):
    model = trial(study).model
    digest = find_plugin("./my_mixer.py", study.parent).text
    assert model.model_dump() == {
        "kind": "gru_mixer",
        "plugin": digest,
        "dim": 8,
        "layers": 2,
        "gate": "on",
    }
    assert Model.choices()["gru_mixer"].model_validate({}).model_dump()["dim"] == 64
    with pytest.raises(ValueError, match="greater than 0"):
        Model.model_validate({"kind": "gru_mixer", "dim": 0})
    with pytest.raises(ValueError, match="'on' or 'off'"):
        Model.model_validate({"kind": "gru_mixer", "gate": "half"})


def test_a_wrapped_module_stands_between_a_read_in_and_a_read_out(study: Path):
    net = trial(study).model.build(PROMPT, stream(0))
    tokens = torch.randn(3, 10, 4, generator=stream("tokens"))
    assert net(tokens, 1).shape == (1, 3, 10, 2)
    assert net.states(tokens, 1).shape == (1, 3, 10, 8)
    assert net.hidden_matrices() == {
        f"module.inner.gru.weight_{way}_l{n}" for way in ("ih", "hh") for n in (0, 1)
    }
    square = trial(study).model.build(Prompt(length=10, dim_in=8, dim_out=8), stream(0))
    assert square.hidden_matrices() == net.hidden_matrices()


def test_a_wrapped_module_trains_and_its_costs_are_counted(study: Path):
    learner = Learner(trial(study))
    losses = [learner.learn(step).item() for step in range(1, 21)]
    assert losses[-1] < losses[0]
    counted = cost.cost(trial(study))
    assert counted.parameters == sum(weight.numel() for weight in learner.net.parameters())
    assert counted.flops_forward > 0


def test_a_wrapped_model_survives_pickling(study: Path):
    model = trial(study).model
    assert pickle.loads(pickle.dumps(model)) == model
    net = model.build(PROMPT, stream(0))
    again = pickle.loads(pickle.dumps(net))
    assert all(
        torch.equal(weight, other) for weight, other in zip(net.parameters(), again.parameters(), strict=True)
    )


@pytest.mark.slow
def test_another_process_trains_a_wrapped_module_from_its_source_alone(study: Path):
    sources, text = Study.load(study).sources, trial(study).model_dump_json()
    expected = Learner(trial(study)).learn(1).item()
    (study.parent / "sources.pickle").write_bytes(pickle.dumps(sources))
    (study.parent / "my_mixer.py").unlink()
    lines = [
        "import pickle, sys",
        "from loopscale.core.plugins import load",
        "[load(each) for each in pickle.load(open(sys.argv[1], 'rb'))]",
        "from loopscale.training.loop import Learner",
        "from loopscale.training.trial import Trial",
        "print(Learner(Trial.model_validate_json(sys.argv[2])).learn(1).item())",
    ]
    command = [sys.executable, "-c", "\n".join(lines), str(study.parent / "sources.pickle"), text]
    done = subprocess.run(command, cwd="/", capture_output=True, text=True, check=False)
    assert float(done.stdout) == pytest.approx(expected), done.stderr


@pytest.mark.slow
def test_a_study_with_a_wrapped_module_runs(study: Path, tmp_path: Path):
    summary = loopscale.run(study, tmp_path / "records", [], workers=1)
    assert summary.outcomes == {"finished": 2}


@pytest.mark.slow
def test_a_wrapped_module_passes_the_contracts(study: Path):
    command = [sys.executable, "-m", "loopscale.cli.main", "check", "my_mixer.py"]
    done = subprocess.run(command, cwd=study.parent, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert int(done.stdout.split(" passed")[0].split()[-1]) > 35


def test_kind_the_name_of_the_width_and_looking_ahead_can_be_given(study: Path):
    text = MIXER.replace("dim: int", "width: int").replace("GRU(dim, dim", "GRU(width, width")
    text = text.replace("wrap(GRUMixer)", 'wrap(GRUMixer, kind="mine", dim="width", looks_ahead=True)')
    (study.parent / "my_mixer.py").write_text(text)
    load(find_plugin("./my_mixer.py", study.parent))
    model = Model.model_validate({"kind": "mine", "width": 4})
    assert model.looks_ahead
    assert isinstance(model, PlainModel)
    assert model.build(PROMPT, stream(0)).states(torch.zeros(1, 10, 4), 1).shape[-1] == 4


INIT = 'dim: int, layers: int = 2, gate: Literal["on", "off"] = "on"'
FORWARD = "def forward(self, states: Tensor)"


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize(
    ("before", "after", "where", "what"),
    [
        (
            INIT,
            'width: int, layers: int = 2, gate: Literal["on", "off"] = "on"',
            "def __init__",
            "GRUMixer.__init__ has no argument dim, the coordinates of a state; add dim: int, or name the argument, "
            'as in wrap(GRUMixer, dim="width")',
        ),
        (INIT, INIT.replace("layers: int", "layers"), "def __init__", "the argument layers of GRUMixer.__init__ has"),
        (INIT, INIT.replace(": int = 2", ": int"), "def __init__", "has no default; write a default, as in layers:"),
        (
            INIT,
            INIT.replace("layers: int = 2", "layers: nn.Module | None = None"),
            "def __init__",
            "has the annotation torch.nn.modules.module.Module | None, which no study can write; write int,",
        ),
        (INIT, INIT.replace("int = 2", "'Absent' = 2"), "def __init__", "cannot be read (NameError: name 'Absent'"),
        (INIT, INIT.replace("int = 2", "int = 'two'"), "def __init__", "has the default 'two', which is no int"),
        (INIT, INIT.replace("layers:", "depth:"), "def __init__", "the argument depth of GRUMixer.__init__ has a name"),
        (FORWARD, "def forward(self, x, mask)", "def forward", "GRUMixer.forward takes (self, x, mask), and the"),
    ],
)  # fmt: skip
def test_a_module_that_cannot_be_wrapped_is_one_line(
    study: Path, before: str, after: str, where: str, what: str
):
    file = study.parent / "my_mixer.py"
    file.write_text(MIXER.replace(before, after))
    line = next(n for n, text in enumerate(file.read_text().splitlines(), 1) if where in text)
    with pytest.raises(Mistakes) as caught:
        Study.load(study)
    message = str(caught.value)
    assert message.startswith(f"{file}:{line}: "), message
    assert what in message
    assert len(message.splitlines()) == 1
    file.write_text(MIXER)  # a corrected file loads in the same process
    Study.load(study)


def test_a_module_that_changes_the_shape_of_states_is_one_line_before_any_training(study: Path):
    file = study.parent / "my_mixer.py"
    file.write_text(MIXER.replace("return states + self.gru(states)[0]", "return states[..., :3]"))
    line = next(n for n, text in enumerate(file.read_text().splitlines(), 1) if "def forward" in text)
    with pytest.raises(PluginError) as caught:
        loopscale.plan(study)
    assert str(caught.value).startswith(
        f"{file}:{line}: GRUMixer.forward gives (64, 10, 3), not (64, 10, 8) for [batch, tokens, dim]; "
    )


def test_a_module_of_another_file_of_the_folder_is_named_with_its_file(study: Path):
    folder = study.parent / "my_nets"
    folder.mkdir()
    text = MIXER.replace("wrap(GRUMixer)\n", "")
    (folder / "mixer.py").write_text(text.replace("return states + self", "return self"))
    (folder / "__init__.py").write_text(
        "from loopscale.models import wrap\n\nfrom .mixer import GRUMixer\n\nwrap(GRUMixer)\n"
    )
    study.write_text(study.read_text().replace("./my_mixer.py", "./my_nets/"))
    assert loopscale.plan(study).trials == 2
    (folder / "mixer.py").write_text(text.replace("return states + self.gru(states)[0]", "return states[0]"))
    with pytest.raises(PluginError, match=r"my_nets/mixer.py:\d+: GRUMixer.forward gives \(10, 8\), not"):
        loopscale.plan(study)


def test_a_schema_and_the_table_of_settings_have_the_arguments(study: Path):
    load(find_plugin("./my_mixer.py", study.parent))
    schema = json.dumps(Model.choices()["gru_mixer"].model_json_schema())
    assert "The argument layers of GRUMixer.__init__." in schema
    assert plugins.loaded["my_mixer.py"].members == [Model.choices()["gru_mixer"]]
