"""`until: decided` on the command line: what `plan` and `simulate` print."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

STUDY = """\
question: Does it decide?
fixed:
  task: {kind: linear_regression, dim: 2, points: 4}
  model: {kind: looped, width: 8, heads: 1}
  training: {steps: 90, window: 1}
scientific: {training.loops: [2, 4]}
replicates: 3
claims: [{text: four, first: {training.loops: 4}, second: {training.loops: 2}, margin: null}]
until: {looks: [3, 5], futile: 0.0}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "deciding.yaml"
    path.write_text(STUDY)
    return path


def printed(*words: str) -> str:
    command = [
        sys.executable,
        "-c",
        "from loopscale.cli.main import main; import sys; sys.exit(main())",
        *words,
    ]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | {"COLUMNS": "200"})
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_plan_prints_the_least_and_the_most(file: Path):
    text = printed("plan", str(file), "--rate", "1e9", "--workers", "1")
    assert "until decided: looks at 3, 5 replicates of 2 cells with a question" in text
    assert "at least 6 trials" in text
    assert "at most 10 trials" in text


def test_simulate_prints_a_line_for_every_effect(file: Path):
    words = ("simulate", str(file), "--workers", "2", "--courses", "2", "--noise", "0.01")
    text = printed(*words)
    assert "until decided: 2 courses of each line, with a noise of 0.01 between replicates" in text
    assert "effect 0.5: 6 trials" in text
    document = json.loads(printed(*words, "--json"))
    assert [each["effect"] for each in document["until"]] == [0.0, 0.05, 0.1, 0.2, 0.5]
    assert document["until"][-1]["words"] == {"holds": 1.0}
