"""Plugins: files and modules with members from outside, their hashes, their mistakes and their identity."""

import hashlib
import importlib
import pickle
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import loopscale
from loopscale.core import plugins
from loopscale.core.config import Family
from loopscale.core.plugins import MissingPlugin, NoPlugin, PluginError, find_plugin, load
from loopscale.evaluate import canonical
from loopscale.models.base import Model
from loopscale.models.lstm import Lstm
from loopscale.notation.mistakes import Mistakes
from loopscale.notation.plugins import changed_plugins, packed_files, require_recorded_plugins
from loopscale.studies.spec import Study
from loopscale.tasks.base import Task
from loopscale.training.trial import Trial

MODEL = '''"""An LSTM under another name."""

from loopscale.models.lstm import Lstm


class OutsideLstm(Lstm, kind="outside_lstm"):
    """An LSTM."""

    gates: int = 3
    """A further setting."""
'''
PLAIN = '''from loopscale.models.plain import PlainModel
from torch import nn


class Mine(PlainModel, kind="mine"):
    """A linear map."""

    def module(self, prompt):
        return nn.Linear(prompt.dim_in, prompt.dim_out)
'''
"""A model around a module of PyTorch."""
TASK = '''"""Linear regression under another name."""

from loopscale.tasks.linear_regression import LinearRegression


class OutsideRegression(LinearRegression, kind="outside_regression"):
    """Linear regression."""
'''
SOLVER = '''"""Least squares under another name."""

from loopscale.solvers.regression import LeastSquares


class OutsideSquares(LeastSquares, kind="outside_squares"):
    """Least squares."""
'''
STUDY = """question: Does a plugin work?
plugins: [{plugins}]
fixed:
  task: {{kind: outside_regression, dim: 2, points: 5}}
  model: {{kind: outside_lstm, width: 8}}
  training: {{steps: 20}}
nuisance: {{training.lr: {{real: [1e-3, 1e-2], scale: log}}}}
search: {{trials: 2}}
baselines: [outside_squares]
"""


@pytest.fixture
def study(tmp_path: Path) -> Path:
    """A study whose task, model and baseline come from two files and a package beside the study."""
    (tmp_path / "my_model.py").write_text(MODEL)
    (tmp_path / "my_tasks.py").write_text(TASK)
    package = tmp_path / "my_solvers"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "squares.py").write_text("from my_solvers.names import UNUSED\n" + SOLVER)
    (package / "names.py").write_text("UNUSED = 1\n")
    file = tmp_path / "mine.yaml"
    file.write_text(STUDY.format(plugins="./my_model.py, my_tasks.py, my_solvers.squares"))
    return file


def trial(study: Path) -> Trial:
    loaded = Study.load(study)
    return loaded.at(loaded.cells()[0], {}, 0)


def mistake(study: Path) -> str:
    with pytest.raises(Mistakes) as caught:
        Study.load(study)
    assert len(caught.value.items) == 1
    return str(caught.value)


def test_a_study_finds_the_members_of_files_and_packages_beside_it(study: Path):
    loaded = Study.load(study)
    assert (trial(study).task.kind, trial(study).model.kind) == ("outside_regression", "outside_lstm")
    assert [solver.kind for solver in loaded.baselines] == ["outside_squares"]
    assert [text.split(" ")[0] for text in loaded.used_plugins] == [
        "my_model.py",
        "my_solvers",
        "my_tasks.py",
    ]
    assert loaded.document()["plugins"] == loaded.used_plugins


def test_settings_of_records_name_the_plugin_and_its_hash(study: Path):
    settings = trial(study).settings
    digest = find_plugin("./my_model.py", study.parent).digest
    assert settings["model"]["plugin"] == f"my_model.py {digest}"
    assert Trial.model_validate(trial(study).model_dump(mode="json")) == trial(study)


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("file", ["my_model.py", "my_tasks.py"])
def test_a_changed_file_makes_another_trial_and_the_same_file_elsewhere_the_same_trial(
    study: Path, file: str
):
    key = trial(study).key
    (study.parent / file).rename(study.parent / f"other_{file}")
    text = study.read_text()
    study.write_text(text.replace(file, f"other_{file}"))
    Study.load(study)
    assert trial(study).key == key
    study.write_text(text)
    (study.parent / file).write_text((study.parent / f"other_{file}").read_text() + "CHANGED = 1\n")
    (study.parent / f"other_{file}").unlink()
    plugins._unload(plugins.loaded[f"other_{file}"])
    assert trial(study).key != key


@pytest.mark.slow
def test_a_change_of_any_file_of_a_package_changes_the_baseline(study: Path):
    before = Study.load(study).baselines[0].plugin
    (study.parent / "my_solvers" / "names.py").write_text("UNUSED = 2\n")
    assert Study.load(study).baselines[0].plugin != before


def test_a_changed_plugin_replaces_its_earlier_version_in_the_process(study: Path):
    Study.load(study)
    (study.parent / "my_model.py").write_text(MODEL.replace("gates: int = 3", "gates: int = 4"))
    assert trial(study).model.gates == 4  # pyright: ignore[reportAttributeAccessIssue]


@pytest.mark.slow
def test_all_versions_of_a_task_are_evaluated_on_prompts_of_one_stream(study: Path):
    before, old = canonical(trial(study).task), trial(study).task.plugin
    (study.parent / "my_tasks.py").write_text(TASK + "CHANGED = 1\n")
    assert canonical(trial(study).task) == before
    assert trial(study).task.plugin != old


def test_members_of_the_package_have_no_plugin_in_their_settings():
    assert Trial(task=Task.choices()["linear_regression"](), model=Model.choices()["looped"]()).settings[
        "model"
    ]["kind"]
    for family in plugins.families:
        for member in family.choices().values():
            if member.__module__.startswith("loopscale."):
                assert member.plugin == ""


def test_records_of_a_missing_plugin_name_the_file_and_the_hash(study: Path):
    settings = trial(study).settings
    plugin = plugins.loaded["my_model.py"]
    plugins._unload(plugin)
    with pytest.raises(
        MissingPlugin, match=f"'outside_lstm' .* my_model.py with the hash {plugin.digest}, .* not loaded"
    ):
        Model.model_validate(settings["model"])


def test_one_line_names_all_missing_plugins_of_the_records(study: Path):
    recorded = Study.load(study).used_plugins
    for plugin in list(plugins.loaded.values()):
        plugins._unload(plugin)
    with pytest.raises(MissingPlugin, match=r"LOOPSCALE_PLUGINS to my_model.py:my_solvers:my_tasks.py$"):
        require_recorded_plugins("elsewhere", "elsewhere", recorded)


def test_records_of_an_earlier_version_name_both_hashes(study: Path):
    settings = trial(study).settings
    old = plugins.loaded["my_model.py"].digest
    (study.parent / "my_model.py").write_text(MODEL + "CHANGED = 1\n")
    new = trial(study).model.plugin.split(" ")[1]
    with pytest.raises(MissingPlugin, match=f"the hash {old}, .* its hash is {new} now; restore the file"):
        Trial.model_validate(settings)


def hash_of_bytes(file: Path) -> str:
    """The hash of one file in records of versions up to 0.2.0."""
    content = file.read_bytes()
    return hashlib.sha256(f"\0{len(content)}\0".encode() + content).hexdigest()[:16]


@pytest.fixture
def by_code() -> Iterator[None]:
    """Leave no plugin with the hash of its bytes to other tests."""
    yield
    plugins.hashed_by_bytes.clear()


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize(
    ("text", "equal"),
    [
        (MODEL.replace("class Out", "# A comment.\nclass Out") + "\n\n# The end.\n", True),
        (MODEL.replace('kind="outside_lstm"', "kind='outside_lstm',\n").replace("= 3", "=  (3)"), True),
        (MODEL.replace("\n", "\r\n"), True),
        (MODEL.replace("gates: int = 3", "gates: int = 4"), False),
        (MODEL.replace("gates: int = 3", "gates: int = True"), False),
        (MODEL.replace("gates: int = 3", "gates: float = 3"), False),
        (MODEL.replace("A further setting.", "Another text."), False),
        (MODEL + "\n\nif False:\n    X = 1\n", False),
    ],
)
def test_comments_and_formatting_make_no_other_plugin(study: Path, text: str, equal: bool):
    key, file = trial(study).key, study.parent / "my_model.py"
    assert find_plugin("./my_model.py", study.parent).digest != hash_of_bytes(file)
    file.write_text(text)
    assert (trial(study).key == key) is equal
    assert plugins.loaded["my_model.py"].sources[0].content == text.encode()


def test_a_file_that_does_not_parse_has_the_hash_of_its_bytes(tmp_path: Path):
    for text in ("def broken(:\n", "x = '\0'\n", f"x = {'(' * 500}1{')' * 500}\n"):
        (tmp_path / "broken.py").write_text(text)
        assert find_plugin("./broken.py", tmp_path).digest == hash_of_bytes(tmp_path / "broken.py")


@pytest.mark.slow
@pytest.mark.usefixtures("by_code")
def test_records_with_the_hash_of_the_bytes_belong_to_the_same_bytes(study: Path):
    file = study.parent / "my_model.py"
    new, old = find_plugin("./my_model.py", study.parent).digest, hash_of_bytes(file)
    settings = trial(study).settings
    settings["model"]["plugin"] = f"my_model.py {old}"
    assert Trial.model_validate(settings).model.kind == "outside_lstm"
    description = {"plugins": [f"my_model.py {old}"]}
    require_recorded_plugins(study, "mine", description["plugins"])
    assert changed_plugins(str(study), description) == []

    loaded = Study.load(study)
    recorded = loaded.as_recorded(description["plugins"])
    model = recorded.at(recorded.cells()[0], {}, 0).settings["model"]
    assert model["plugin"] == f"my_model.py {old}"
    assert f"my_model.py {old}" in recorded.used_plugins
    assert recorded.text == loaded.text
    assert recorded.words == loaded.words
    (sent,) = [each for each in recorded.sources if each.name == "my_model.py"]
    assert pickle.loads(pickle.dumps(sent)).digest == old
    assert recorded.as_recorded([f"my_model.py {new}"]).used_plugins == loaded.used_plugins

    file.write_text(MODEL + "# changed\n")
    assert changed_plugins(str(study), description) == ["my_model.py"]
    with pytest.raises(MissingPlugin, match=f"the hash {old}, but the plugin has changed"):
        require_recorded_plugins(study, "mine", description["plugins"])
    again = Study.load(study)
    assert again.as_recorded(description["plugins"]) is again
    assert changed_plugins(str(study), {"plugins": [f"my_model.py {new}"]}) == []


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize(
    ("text", "line", "what"),
    [
        (
            MODEL.replace("outside_lstm", "looped"),
            6,
            "the kind 'looped' is taken by Looped of loopscale.models.looped",
        ),
        (
            MODEL.replace("outside_lstm", "outside_regression_model") + "\nimport absent_module\n",
            12,
            "ModuleNotFoundError",
        ),
        (MODEL + "\ndef broken(:\n", 12, "SyntaxError"),
        (MODEL + "\n1 / 0\n", 12, "ZeroDivisionError: division by zero"),
        (MODEL + "\nimport sys\nsys.exit(0)\n", 13, "the import of the file ends the program (SystemExit)"),
        (MODEL + "\nx = '\0'\n", 1, "source code string cannot contain null bytes"),
        (
            MODEL.replace('"outside_lstm"', "3"),
            6,
            "the kind 3 is no name; write letters, digits and _, as in kind=",
        ),
        (
            MODEL + "\n\nclass Again(OutsideLstm, kind='outside_lstm'):\n    pass\n",
            13,
            "the kind 'outside_lstm' is taken by OutsideLstm of my_model.py; choose another kind",
        ),
        (MODEL.replace("gates: int", "gates"), 6, "PydanticUserError: A non-annotated attribute"),
        ("X = 1\n", 1, "the plugin registers no member of any family"),
        (
            'from loopscale.models.base import Model\n\n\nclass Bare(Model, kind="bare"):\n    """Nothing."""\n',
            4,
            "the model Bare has no build; write def build(self, prompt, rng)",
        ),
        (
            MODEL + "\n    def build(self, prompt):\n        return super().build(prompt, None)\n",
            12,
            "OutsideLstm.build takes (self, prompt), not (self, prompt, rng)",
        ),
        (
            MODEL + "\n    def build(self, prompt, rng, width):\n        return super().build(prompt, rng)\n",
            12,
            "OutsideLstm.build needs width, which no caller gives",
        ),
        (
            MODEL + "\n    def depth(self):\n        return 3\n",
            12,
            "OutsideLstm.depth is a method, not a property",
        ),
        (
            PLAIN.replace("module(self, prompt)", "module(self)"),
            8,
            "Mine.module takes (self), not (self, prompt); write def module(self, prompt)",
        ),
        (
            PLAIN.replace("(PlainModel, ", "(PlainModel, nn.Module, "),
            5,
            "the model Mine is a torch.nn.Module too, but a model holds settings and no weights; derive Mine from",
        ),
        (
            PLAIN + "\n    def __init__(self, width=3):\n        super().__init__()\n",
            11,
            "the model Mine has its own __init__, but its settings are its annotated attributes; write each setting",
        ),
        (
            "from loopscale.solvers.base import Solver\n\n\n"
            'class Bare(Solver, kind="bare"):\n    def predict(self, batch, steps):\n        return batch.targets\n',
            4,
            "the solver Bare has no solves",
        ),
    ],
)
def test_a_mistake_in_a_plugin_is_one_line_with_file_and_line(study: Path, text: str, line: int, what: str):
    file = study.parent / "my_model.py"
    file.write_text(text)
    message = mistake(study)
    assert message.startswith(f"{file}:{line}: ")
    assert what in message
    assert "; " in message
    assert "bare" not in Model.choices()
    file.write_text(MODEL)  # a corrected file loads in the same process
    Study.load(study)


def test_a_plugin_that_prints_leaves_standard_output_to_the_command(
    study: Path, capsys: pytest.CaptureFixture[str]
):
    (study.parent / "my_model.py").write_text(MODEL + "print('hello')\n")
    Study.load(study)
    assert capsys.readouterr() == ("", "hello\n")


def test_a_module_with_the_name_of_an_imported_module_is_refused(study: Path):
    (study.parent / "random.py").write_text(MODEL)
    study.write_text(study.read_text().replace("./my_model.py", "random"))
    assert mistake(study).startswith(
        f"{study.parent / 'random.py'}: the name random belongs to another module"
    )


@pytest.mark.parametrize("named", ["./my_net.py", "my_net"])
def test_a_file_that_a_notebook_has_imported_is_read_again_for_a_study(
    study: Path, named: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.syspath_prepend(study.parent)
    file = study.parent / "my_net.py"
    file.write_text(MODEL.replace("gates: int = 3", "gates: int = 2"))
    importlib.invalidate_caches()
    importlib.import_module("my_net")
    file.write_text(MODEL)
    study.write_text(study.read_text().replace("./my_model.py", named))
    assert trial(study).model.settings_beside({})
    assert Model.choices()["outside_lstm"].model_validate({}).model_dump()["gates"] == 3


def test_a_class_of_a_notebook_is_refused_because_no_worker_knows_the_class(study: Path):
    class Here(Lstm, kind="here_lstm"):
        """Defined in a cell."""

    study.write_text(study.read_text().replace("outside_lstm", "here_lstm"))
    try:
        message = mistake(study)
    finally:
        del Model._choices["here_lstm"]
    assert message.startswith(f"{study}:5: 'here_lstm' is the class ")
    assert "which is no plugin; write the class into a file, and name the file under plugins" in message


EXAMPLE = Path(__file__).parents[2] / "examples/loopscale_fourier/src/loopscale_fourier/model.py"
STEPS = EXAMPLE.read_text().replace("gated_rnn", "my_model").replace("Gated", "My")
"""A model with a prediction after every layer."""
START = (Path(loopscale.__file__).parent / "cli/templates/model_full.txt").read_text()
"""The start of a model around a plain module."""
LAST = "return torch.stack([self.read_out(state) for state in self._run(state, first - 1, steps)])"


@pytest.mark.quick_cases(2)
@pytest.mark.parametrize(
    ("before", "after", "where", "what"),
    [
        (
            "class MyNet(Net)",
            "class MyNet(nn.Module)",
            "def build",
            "MyRnn.build returns MyNet",
        ),
        (
            LAST,
            "return self.read_out(state)",
            "def forward(self, tokens",
            "MyNet.forward ",
        ),
        (
            LAST,
            "return (self.read_out(state),)",
            "def forward(self, tokens",
            "does not fit its caller (TypeError",
        ),
        (
            "tokens: Tokens, steps: int, first: int = 1, truncate: bool = False",
            "tokens: Tokens",
            "def forward(self, tokens",
            "does not fit its caller (TypeError",
        ),
        (
            "self.gate(x).sigmoid()",
            "self.gate(x).sigmoidd()",
            "sigmoidd",
            "forward raises AttributeError: 'Tensor' object has no",
        ),
        (
            "        return fresh(",
            "        raise RuntimeError('boom')\n        return fresh(",
            "boom",
            "build raises Run",
        ),
        (
            "return self.read_out(self.states(tokens))",
            "return self.states(tokens)",
            "def module",
            "MyModel.module makes a module that gives (64, 10, 8), not (64, 10, 1) for [batch, length, dim_out]",
        ),
        (
            "        return MyModelNet(",
            "        MyModelNet(",
            "def module",
            "MyModel.module returns NoneType, which is no torch.nn.Module",
        ),
        (
            "return self.read_out(self.states(tokens))",
            "return self.read_outt(self.states(tokens))",
            "read_outt",
            "forward raises AttributeError: 'MyModelNet' object has no attribute 'read_outt'",
        ),
        (
            "def forward(self, tokens: Tensor)",
            "def forward(self, tokens: Tensor, mask: Tensor)",
            "def forward(self, tokens: Tensor, mask",
            "MyModelNet.forward takes (tokens, mask), and the caller gives one tensor alone (missing a required",
        ),
        (
            "    def forward(self, tokens: Tensor)",
            "    def predict(self, tokens: Tensor)",
            "def module",
            "MyModel.module makes a net that cannot predict (NotImplementedError: Module [MyModelNet] is missing",
        ),
        (
            "        return MyModelNet(prompt.dim_in, ",
            "        return nn.Sequential(nn.Linear(prompt.dim_in, 7), nn.Linear(8, 8)) or MyModelNet(prompt.dim_in, ",
            "def module",
            "MyModel.module makes a net that cannot predict (RuntimeError: ",
        ),
    ],
)
def test_a_method_that_breaks_the_contract_is_one_line_before_any_training(
    study: Path, before: str, after: str, where: str, what: str
):
    (text,) = [each for each in (STEPS, START) if before in each]
    file = study.parent / "my_model.py"
    file.write_text(text.replace(before, after))
    study.write_text(study.read_text().replace("outside_lstm", "my_model"))
    line = next(n for n, text in enumerate(file.read_text().splitlines(), 1) if where in text)
    with pytest.raises(PluginError) as caught:
        loopscale.plan(Study.load(study))
    message = str(caught.value)
    assert message.startswith(f"{file}:{line}: "), message
    assert what in message
    assert message.endswith("; correct the method; `loopscale check " + str(file) + "` tests the class")


def test_a_kind_of_another_plugin_is_taken(study: Path):
    (study.parent / "my_tasks.py").write_text(MODEL + "# another file\n")
    assert mistake(study).startswith(
        f"{study.parent / 'my_tasks.py'}:6: the kind 'outside_lstm' is taken by OutsideLstm of my_model.py; "
    )


@pytest.mark.parametrize(
    ("named", "what"),
    [
        ("./absent.py", "there is no Python file ./absent.py beside the study"),
        ("absent_module", "there is no module absent_module beside the study or in the environment"),
        ("my_solvers.absent", "the package my_solvers has no module my_solvers.absent"),
        ("loopscale.models.looped", "loopscale.models.looped is part of loopscale itself"),
        ("./empty", "the folder ./empty has no file __init__.py; add the file, which imports the members"),
        ("./my-package", "the folder my-package cannot be a package; use letters, digits and _"),
        ("my-model", "'my-model' is neither a file nor a module"),
        ("3", "a plugin is 3"),
    ],
)
def test_a_plugin_that_does_not_exist_is_a_mistake_in_the_line_of_the_study(
    study: Path, named: str, what: str
):
    (study.parent / "empty").mkdir()
    (study.parent / "my-package").mkdir()
    (study.parent / "my-package" / "__init__.py").touch()
    study.write_text(study.read_text().replace("my_tasks.py", named))
    assert mistake(study).startswith(f"{study}:2: {what}")


@pytest.mark.quick_cases(1)
@pytest.mark.parametrize("named", ["./my_nets", "my_nets/", "../FOLDER/my_nets", "./my_nets/__init__.py"])
def test_a_folder_with_several_files_is_a_plugin(study: Path, named: str):
    folder = study.parent / "my_nets"
    folder.mkdir()
    (folder / "__init__.py").write_text(
        MODEL.replace("import Lstm", "import Lstm\n\nfrom .parts import GATES")
    )
    (folder / "parts.py").write_text("GATES = 3\n")
    named = named.replace("FOLDER", study.parent.name)
    study.write_text(study.read_text().replace("./my_model.py", named))
    assert trial(study).settings["model"]["plugin"].startswith("my_nets ")
    files = packed_files("studies/mine.yaml", study.parent, Study.load(study).sources)
    place = "studies" if "FOLDER" not in named and not named.startswith("..") else study.parent.name
    assert {f"{place}/my_nets/__init__.py", f"{place}/my_nets/parts.py"} <= files.keys()
    before = trial(study).key
    (folder / "parts.py").write_text("GATES = 2\n")
    assert trial(study).key != before


def test_two_files_of_one_name_are_a_mistake(study: Path):
    other = study.parent / "other"
    other.mkdir()
    (other / "my_model.py").write_text(MODEL.replace("outside_lstm", "another_lstm"))
    study.write_text(study.read_text().replace("my_tasks.py", "other/my_model.py"))
    assert "two plugins are called my_model.py; rename one of the files" in mistake(study)


@pytest.mark.slow
def test_a_worker_needs_only_the_sources(study: Path):
    """In another process and another folder, after the files are gone."""
    import pickle

    loaded = Study.load(study)
    sources, text, key = loaded.sources, trial(study).model_dump_json(), trial(study).key
    pickled = study.parent / "sources.pickle"
    pickled.write_bytes(pickle.dumps(sources))
    for name in ("my_model.py", "my_tasks.py", "my_solvers/squares.py"):
        (study.parent / name).unlink()
    lines = [
        "import pickle, sys",
        "from loopscale.core.plugins import load",
        "[load(each) for each in pickle.load(open(sys.argv[1], 'rb'))]",
        "from loopscale.training.trial import Trial",
        "trial = Trial.model_validate_json(sys.argv[2])",
        "print(trial.key, type(trial.net()).__name__)",
    ]
    command = [sys.executable, "-c", "\n".join(lines), str(pickled), text]
    done = subprocess.run(command, cwd="/", capture_output=True, text=True, check=False)
    assert done.stdout.split() == [key, "LstmNet"], done.stderr


def test_the_hash_belongs_to_the_code_that_runs_even_if_the_file_changes_in_between(tmp_path: Path):
    (tmp_path / "my_model.py").write_text(MODEL)
    plugin = find_plugin("./my_model.py", tmp_path)
    (tmp_path / "my_model.py").write_text("raise SystemError\n")
    load(plugin)
    assert Model.choices()["outside_lstm"].plugin == plugin.text


@pytest.mark.slow
def test_only_an_unknown_name_or_a_listing_searches_the_installed_packages():
    code = """
import importlib.metadata, sys
asked = []
real = importlib.metadata.entry_points
def entry_points(**words):
    if words == {"group": "loopscale.members"}:  # others ask for their own groups
        asked.append(words)
    return real(**words)
importlib.metadata.entry_points = entry_points
from loopscale.models.base import Model
Model.model_validate({"kind": "looped"})
Model.choices()
assert not asked, asked
assert Model.member("absent") is None
assert len(asked) == 1, asked
"""
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.slow
def test_the_environment_names_further_plugins(study: Path):
    code = "from loopscale.models.base import Model; print(Model.member('outside_lstm').plugin)"
    for named in ("my_model.py", str(study.parent / "my_model.py")):
        done = subprocess.run(
            [sys.executable, "-c", code],
            cwd=study.parent,
            env={
                "LOOPSCALE_PLUGINS": f"./{named}" if "/" not in named else named,
                "PYTHONPATH": ":".join(sys.path),
            },
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.stdout.startswith("my_model.py "), done.stderr


@pytest.mark.slow
def test_a_plugin_can_be_loaded_before_the_package_has_imported_its_members():
    """A kind of the package is taken even then."""
    code = """
from loopscale.models.base import Model
try:
    type("Mine", (Model,), {"__module__": "mine"}, kind="gpt2")
except TypeError as problem:
    print(problem)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "the kind 'gpt2' is taken by Gpt2 of loopscale.models.gpt2" in done.stdout


def test_a_failed_plugin_leaves_no_member_behind(tmp_path: Path):
    (tmp_path / "half.py").write_text(MODEL + "\nraise ValueError('half')\n")
    with pytest.raises(PluginError, match=r"half.py:12: .*ValueError: half"):
        load(find_plugin("half.py", tmp_path))
    assert Model.member("outside_lstm") is None
    with pytest.raises(NoPlugin):
        find_plugin("./absent.py", tmp_path)
    assert all(isinstance(family, type) and issubclass(family, Family) for family in plugins.families)


@pytest.mark.parametrize("base", ["Exception", "BaseException", "GeneratorExit"])
def test_an_exception_of_any_class_and_without_a_text_is_one_line(tmp_path: Path, base: str):
    (tmp_path / "odd.py").write_text(
        f"class Odd({base}):\n    def __str__(self):\n        raise ValueError('no text')\n\nraise Odd\n"
    )
    with pytest.raises(
        PluginError, match=r"odd.py:5: .* \(Odd: no text, because __str__ raises ValueError\)"
    ):
        load(find_plugin("odd.py", tmp_path))


@pytest.mark.parametrize(("wrapped", "named"), [("Tensor", "Tensor"), ("nn.Linear(2, 2)", "Linear(")])
def test_what_is_no_class_of_modules_cannot_be_wrapped(tmp_path: Path, wrapped: str, named: str):
    file = tmp_path / "mine.py"
    file.write_text(f"from torch import Tensor, nn\n\nfrom loopscale.models import wrap\n\nwrap({wrapped})\n")
    with pytest.raises(PluginError) as caught:
        load(find_plugin("./mine.py", tmp_path))
    message = str(caught.value)
    assert message.startswith(f"{file}:5: ")
    assert named in message
    assert message.endswith("is no class of modules; wrap a class that derives from torch.nn.Module")
