"""Values that must not change by accident: keys of trials, first losses. A commit that changes them says why."""

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
    """Vendor, model and instruction set. Two vendors with the same instructions rounded the last digit differently."""
    text = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else platform.processor()
    matches = [
        re.search(rf"^{field}\s*: (.*)$", text, re.MULTILINE)
        for field in ("vendor_id", "cpu family", "model")
    ]
    return ", ".join([torch.backends.cpu.get_cpu_capability(), *(match[1] for match in matches if match)])


def golden_values(name: str, values: dict[str, Any], request: pytest.FixtureRequest) -> dict[str, Any]:
    """The recorded values. With --update-golden, `values` replace them first."""
    path = HERE / name
    if request.config.getoption("--update-golden"):
        path.write_text(json.dumps(values, indent=1) + "\n")
    return json.loads(path.read_text())


def test_keys_of_trials_equal_the_released_keys(request: pytest.FixtureRequest):
    keys = {name: Trial.model_validate(settings).key for name, settings in TRIALS.items()}
    assert keys == golden_values("keys.json", keys, request)


def test_the_first_losses_equal_the_released_losses(request: pytest.FixtureRequest):
    """Exactly with the recorded torch version and processor, otherwise to 1e-3."""
    losses: dict[str, Any] = {"torch": torch.__version__, "cpu": processor()}
    for name in ("gpt2", "looped", "algoformer"):
        learner = Learner(Trial.model_validate(TRIALS[name]))
        losses[name] = [learner.learn(step).item() for step in range(1, 21)]
    golden = golden_values("losses.json", losses, request)
    same_machine = all(golden[name] == losses[name] for name in ("torch", "cpu"))
    for name in ("gpt2", "looped", "algoformer"):
        assert losses[name] == (golden[name] if same_machine else pytest.approx(golden[name], rel=1e-3))
