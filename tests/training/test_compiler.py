import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from loopscale.models import linear
from loopscale.training.compiler import CACHE, NOMINAL_RATE, START_UP, cache_of_processor, compiles


@pytest.fixture
def mkl(monkeypatch: pytest.MonkeyPatch) -> None:
    """A host where MKL is the faster library of products."""
    monkeypatch.setattr(linear, "fastest", lambda: "mkl")


@pytest.mark.usefixtures("mkl")
def test_auto_compiles_trials_that_take_ten_times_as_long_as_the_compilation():
    limit = 10 * START_UP * NOMINAL_RATE
    assert not compiles("auto", 0.9 * limit)
    assert compiles("auto", 1.1 * limit)
    assert compiles("on", 1.0)
    assert not compiles("off", 100 * limit)


def test_auto_does_not_compile_where_onednn_computes_the_products(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(linear, "fastest", lambda: "onednn")
    assert not compiles("auto", 1e18)


@pytest.mark.usefixtures("mkl")
def test_auto_does_not_compile_without_a_cpp_compiler(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PATH", "")
    monkeypatch.delenv("CXX", raising=False)
    assert not compiles("auto", 1e18)


def test_a_curriculum_is_not_compiled(make):
    with pytest.raises(
        ValueError, match="needs prompts of one shape, but a curriculum changes it; write off"
    ):
        make(compile="on", curriculum={"dim": 1, "points": 3, "every": 2})


def test_compilation_is_no_part_of_a_trials_identity(make):
    assert make(compile="on").key == make(compile="off").key == make().key


TRAININGS = """
import json, sys
from loopscale.training.loop import train
from loopscale.training.trial import Trial

trial = Trial.model_validate_json(sys.argv[1])
plain = [progress.metrics["loss"] for progress in train(trial)]
whole = [progress.metrics["loss"] for progress in train(trial, compiled=True)]
state = next(train(trial, compiled=True)).state()
resumed = [progress.metrics["loss"] for progress in train(trial, state)]
print(json.dumps([plain, whole, resumed, state.compiled]))
"""


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["algoformer", "lstm"])
def test_a_compiled_net_learns_the_same_to_rounding_and_resumes_exactly(make, kind: str):
    """A process of its own, because the compiler cannot trace the checks of shapes that tests add to every function.

    Width 64 also compiles products of the other library, where that library is faster. Of two loops, one has
    gradients.
    """
    trial = make(kind, compile="on", **({} if kind == "lstm" else {"width": 64, "loops": 2, "window": 1}))
    command = [sys.executable, "-c", TRAININGS, trial.model_dump_json()]
    answer = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    plain, whole, resumed, compiled = json.loads(answer)
    assert compiled
    assert whole == pytest.approx(plain, rel=1e-4)
    assert resumed == whole[1:]


FOLDER = """
import sys
from pathlib import Path
from loopscale.training.compiler import cache_of_processor

print(cache_of_processor(Path(sys.argv[1])))
"""


@pytest.mark.slow
def test_compiled_code_lies_in_a_folder_of_the_processor(tmp_path: Path):
    own = cache_of_processor(tmp_path)
    assert own.parent == tmp_path
    assert cache_of_processor(own) == own

    def folder(capability: str) -> str:
        environment = os.environ | {"ATEN_CPU_CAPABILITY": capability}
        command = [sys.executable, "-c", FOLDER, str(tmp_path)]
        return subprocess.run(
            command, env=environment, check=True, stdout=subprocess.PIPE, text=True
        ).stdout.strip()

    assert len({folder("avx2"), folder("default"), folder("avx2")}) == 2


LOSSES = """
import json, sys
from loopscale.training.loop import train
from loopscale.training.trial import Trial

trial = Trial.model_validate_json(sys.argv[1])
plain, compiled = ([progress.metrics["loss"] for progress in train(trial, compiled=how)] for how in (False, True))
print(json.dumps([plain, compiled]))
"""


@pytest.mark.slow
def test_processors_with_one_cache_of_compiled_code_learn_the_same_to_rounding(make, tmp_path: Path):
    trial = make("looped", compile="on", width=8, heads=1, loops=1, window=1, steps=4, eval_every=1)

    def losses(**kernels: str) -> list[list[float]]:
        environment = os.environ | {CACHE: str(tmp_path)} | kernels
        command = [sys.executable, "-c", LOSSES, trial.model_dump_json()]
        return json.loads(
            subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True).stdout
        )

    plain, *others = [*losses(), *losses(ATEN_CPU_CAPABILITY="default")]
    for other in others:
        assert other == pytest.approx(plain, rel=1e-4)
    assert len(list(tmp_path.iterdir())) == 2
