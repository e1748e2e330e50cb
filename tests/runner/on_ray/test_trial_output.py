"""What a trial of a user's own task prints can be read while the trial runs, and after its worker was killed."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from tests.processes import outcome, wait_until
from tests.runner.drivers import Driver
from tests.runner.talkative import TALKATIVE

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def verb(*words: object) -> str:
    command = [sys.executable, "-m", "loopscale.cli.main", *map(str, words)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_output_of_a_trial_outlives_its_worker(tmp_path: Path):
    (tmp_path / "talkative.py").write_text(TALKATIVE)
    (tmp_path / "wait").touch()
    tree = {
        "question": "What does it say?",
        "plugins": ["./talkative.py"],
        "fixed": {
            "task": {"kind": "talkative", "dim": 2, "points": 4},
            "model": {"kind": "looped", "width": 8, "heads": 1},
            "training": {"steps": 20, "loops": 2, "window": 1, "batch_size": 4, "eval_every": 10},
        },
        "replicates": 1,
        "evaluate": {"loops": 2, "prompts": 16},
    }
    study = tmp_path / "talk.yaml"
    study.write_text(yaml.safe_dump(tree))
    driver = Driver(study, tmp_path, workers=1)
    process = driver.start()

    def running() -> list[dict[str, object]]:
        return json.loads(verb("status", "talk", "--store", driver.store, "--json"))["running"]

    def log(key: str) -> str:
        return verb("logs", "talk", "--trial", key, "--store", driver.store)

    wait_until(lambda: list((driver.store / "checkpoints").glob("*.log")), process)
    wait_until(running, process)  # the records follow the worker
    (trial,) = running()
    key = str(trial["id"])
    first = log(key)
    assert "samples in process " in first
    assert first.endswith("not over\n"), "no validation has named the host"
    worker = int(first.partition("samples in process ")[2].split()[0])
    os.kill(worker, signal.SIGKILL)
    wait_until(lambda: log(key).count("== process ") == 2, process)
    (tmp_path / "wait").unlink()
    code, _, err = outcome(process)
    assert code == 0, err
    last = log(key)
    assert f"samples in process {worker}\n" in last
    assert last.splitlines()[1].startswith("step 10: error ")
    assert last.splitlines()[-1] == f"finished on {os.uname().nodename}"
    driver.check(1, 0)
