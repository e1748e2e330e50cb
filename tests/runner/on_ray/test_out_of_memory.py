"""A study through real Ray with trials that need more memory than they may have."""

import json
from pathlib import Path

import pytest
import yaml

from tests.runner.drivers import Driver


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_trials_over_the_memory_limit_end_and_the_other_trials_finish(tmp_path: Path):
    path = tmp_path / "full.yaml"
    tree = {
        "question": "Does a large batch fit?",
        "fixed": {
            "task": {"kind": "linear_regression", "dim": 2, "points": 4},
            "model": {"kind": "looped", "width": 32, "heads": 2},
            "training": {"steps": 20, "loops": 3, "window": 3, "eval_every": 10},
        },
        "scientific": {"training.batch_size": [8, 200_000]},
        "replicates": 2,
        "evaluate": {"loops": 4, "prompts": 32},
        "resources": {"memory": 1.5},
    }
    path.write_text(yaml.safe_dump(tree))
    driver = Driver(path, tmp_path, workers=1)
    for _ in range(2):
        code, out, err = driver.finish("--json")
        assert code == 0, err
        driver.check(trials=4, baselines=0)
        assert json.loads(out)["outcomes"] == {"finished": 2, "out_of_memory": 2}
