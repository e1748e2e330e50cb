"""Small studies with each search and each scheduler, through real Ray, Optuna and MLflow."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.runner.drivers import Driver

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

TREE: dict[str, Any] = {
    "question": "Do the engines carry it?",
    "fixed": {
        "task": {"kind": "linear_regression", "dim": 2, "points": 4},
        "model": {"width": 8, "heads": 2},
        "training": {"steps": 60, "loops": 3, "window": 2, "batch_size": 8, "eval_every": 5},
    },
    "scientific": {"model": [{"kind": "looped"}, {"kind": "gpt2", "layers": 2}]},
    "evaluate": {"loops": 4, "prompts": 32},
}
LR = {"training.lr": {"real": [1e-4, 1e-1], "scale": "log"}}

STUDIES: dict[str, dict[str, Any]] = {
    "grid_median": {
        "nuisance": {
            "training.lr": {"real": [1e-4, 1e-1], "scale": "log", "points": 6},
            "training.window": {"choice": [1, 3]},  # a setting of looped nets only
        },
        "search": {"kind": "grid"},
        "scheduler": {"kind": "median", "first_rung": 5},
    },
    "gp_hyperband": {
        "nuisance": LR,
        "search": {"kind": "gp", "trials": 6},
        "scheduler": {"kind": "hyperband", "first_rung": 5, "reduction": 3},
    },
    "nsga2": {
        "nuisance": LR | {"model.width": {"choice": [4, 8, 16]}},
        "search": {"kind": "nsga2", "trials": 6, "objectives": ["error", "flops"]},
    },
}
TRIALS = {"grid_median": (6 * 2 + 1) + (6 + 1), "gp_hyperband": 2 * (6 + 1), "nsga2": 2 * (6 + 1)}


@pytest.mark.parametrize("name", STUDIES)
def test_a_study_with_this_search_and_scheduler_runs_to_its_end(tmp_path: Path, name: str):
    path = tmp_path / f"{name}.yaml"
    path.write_text(yaml.safe_dump(TREE | STUDIES[name]))
    driver = Driver(path, tmp_path)
    code, out, err = driver.finish("--json")
    assert code == 0, err
    driver.check(TRIALS[name], baselines=0)
    result = json.loads(out)
    assert all(cell["error"] is not None for cell in result["best"])
    if name == "nsga2":
        assert any(cell["front"] for cell in result["best"])
        assert (
            len({values for (values,) in driver.query("SELECT value FROM metrics WHERE key = 'flops'")}) > 2
        )
    else:
        assert result["outcomes"]["pruned"] > 0
