"""What must not change unnoticed: trials' identities, first losses. A commit that rewrites them says why."""

import json
import platform
import re
from pathlib import Path
from typing import Any

import pytest
import torch

from loopscale.training.loop import Learner
from loopscale.training.trial import Trial

HERE = Path(__file__).parent
LINE = {"kind": "linear_regression", "dim": 2, "points": 5}
TRIALS: dict[str, dict[str, Any]] = {
    "gpt2": {"task": LINE, "model": {"kind": "gpt2", "width": 16, "heads": 2, "layers": 2}},
    "looped": {"task": LINE, "model": {"kind": "looped", "width": 16, "heads": 2}},
    "algoformer": {
        "task": LINE,
        "model": {"kind": "algoformer", "width": 16, "heads": 2},
        "training": {"loops": 4, "window": 2, "schedule": "cosine", "warmup": 10, "clip": 1.0, "steps": 20},
        "seed": 7,
    },
    "representation": {"task": {"kind": "representation_regression"}, "model": {"kind": "algoformer"}},
}


def processor() -> str:
    """Make and instructions: two makes with the same instructions were seen to round differently in the last digit."""
    told = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else platform.processor()
    made = [
        re.search(rf"^{field}\s*: (.*)$", told, re.MULTILINE)
        for field in ("vendor_id", "cpu family", "model")
    ]
    return ", ".join([torch.backends.cpu.get_cpu_capability(), *(found[1] for found in made if found)])


def kept(name: str, found: dict[str, Any], request: pytest.FixtureRequest) -> dict[str, Any]:
    path = HERE / name
    if request.config.getoption("--update-golden"):
        path.write_text(json.dumps(found, indent=1) + "\n")
    return json.loads(path.read_text())


def test_keys_of_trials_are_as_released(request: pytest.FixtureRequest):
    found = {name: Trial.model_validate(settings).key for name, settings in TRIALS.items()}
    assert found == kept("keys.json", found, request)


def test_the_first_losses_are_as_released(request: pytest.FixtureRequest):
    """Exact on the torch version, and the kind of processor, that wrote them; else to 1e-3."""
    found: dict[str, Any] = {"torch": torch.__version__, "cpu": processor()}
    for name in ("gpt2", "looped", "algoformer"):
        learner = Learner(Trial.model_validate(TRIALS[name]))
        found[name] = [learner.learn(step).item() for step in range(1, 21)]
    golden = kept("losses.json", found, request)
    same = all(golden[name] == found[name] for name in ("torch", "cpu"))
    for name in ("gpt2", "looped", "algoformer"):
        assert found[name] == (golden[name] if same else pytest.approx(golden[name], rel=1e-3))
