"""`loopscale run` through real Ray, killed anywhere, and run again: nothing lost, doubled or left running."""

import os
import random
import signal
import subprocess
import time
from pathlib import Path

import pytest
import yaml

from tests.runner.drivers import Driver

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1500)]

KILLS = int(os.environ.get("LOOPSCALE_KILLS", "3"))
"""How often the killed study is killed: 3 in CI, more in `make soak`."""

TREE = {
    "question": "Does a study survive?",
    "fixed": {
        "task": {"kind": "linear_regression", "dim": 2, "points": 5},
        "model": {"kind": "looped", "width": 16, "heads": 2},
        "training": {"steps": 1200, "loops": 4, "window": 2, "batch_size": 16, "eval_every": 100},
    },
    "scientific": {"training.window": [1, 4]},
    "nuisance": {"training.lr": {"real": [1e-4, 1e-1], "scale": "log"}},
    "search": {"kind": "random", "trials": 3},
    "replicates": 2,
    "evaluate": {"loops": 6, "prompts": 128},
    "baselines": ["least_squares"],
}
TRIALS, BASELINES = 2 * (3 + 2), 1


def driver(folder: Path, **changes: object) -> Driver:
    folder.mkdir(exist_ok=True)
    study = folder / "survival.yaml"
    study.write_text(yaml.safe_dump(TREE | changes))
    return Driver(study, folder)


def test_a_study_killed_at_random_moments_equals_the_uninterrupted_one(tmp_path: Path):
    killed, whole = driver(tmp_path / "killed"), driver(tmp_path / "whole")
    moments = random.Random(7)
    kills = 0
    while kills < KILLS and killed.killed_after(moments.uniform(6, 22)):
        kills += 1
    assert kills == KILLS, "the study was over before it was killed often enough"
    assert killed.finish()[0] == whole.finish()[0] == 0
    for each in (killed, whole):
        each.check(TRIALS, BASELINES)
    assert killed.ends() == whole.ends()
    again = sum(times - 1 for times in killed.saves().values())
    assert again <= 2 * kills, f"{again} checkpoint intervals were repeated in {kills} kills of two workers"
    assert set(killed.saves()) == set(whole.saves())


def test_a_finished_study_trains_nothing_and_a_larger_one_only_what_is_new(tmp_path: Path):
    one = driver(tmp_path)
    assert one.finish()[0] == 0
    before = one.saves()
    assert one.finish()[0] == 0
    assert one.saves() == before
    one.overrides = ("replicates=3",)
    assert one.finish()[0] == 0
    one.check(TRIALS + 2, BASELINES)
    assert all(one.saves()[key] == before[key] for key in before)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_stops_within_seconds_and_says_how_to_go_on(tmp_path: Path, number: signal.Signals):
    one = driver(tmp_path)
    process = one.start()
    _until(lambda: (tmp_path / "saves").exists(), process)
    process.send_signal(number)
    began = time.monotonic()
    _, err = process.communicate(timeout=60)
    assert process.returncode == 3
    assert time.monotonic() - began < 15
    assert f"loopscale run {one.study}" in err
    assert "Traceback" not in err
    assert one.query("SELECT name FROM runs WHERE status = 'RUNNING'") == []
    assert one.finish()[0] == 0
    one.check(TRIALS, BASELINES)
    assert max(one.saves().values()) == 1 or sum(n - 1 for n in one.saves().values()) <= 2


def test_of_two_drivers_one_runs_and_the_other_says_who_holds_the_study(tmp_path: Path):
    one = driver(tmp_path)
    first = one.start()
    _until(lambda: (tmp_path / "saves").exists(), first)
    code, _, err = one.finish()
    assert code == 2
    assert f"is being run by process {first.pid}" in err
    assert first.communicate(timeout=300)
    assert first.returncode == 0
    one.check(TRIALS, BASELINES)


def test_a_killed_worker_is_replaced_and_its_trial_goes_on(tmp_path: Path):
    one = driver(tmp_path)
    process = one.start()
    _until(lambda: (tmp_path / "saves").exists() and len(one.saves()) > 3, process)
    (victim, *_) = _workers(process.pid)
    os.kill(victim, signal.SIGKILL)
    assert process.communicate(timeout=300)
    assert process.returncode == 0
    one.check(TRIALS, BASELINES)
    assert sum(times - 1 for times in one.saves().values()) <= 1


def _until(condition, process: subprocess.Popen, seconds: float = 120) -> None:
    began = time.monotonic()
    while not condition():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() - began < seconds
        time.sleep(0.2)


def _workers(session: int) -> list[int]:
    """The processes of the driver's session that train, as Ray titles them."""
    listed = subprocess.run(
        ["ps", "-s", str(session), "-o", "pid=,args="], capture_output=True, text=True, check=True
    )
    return [
        int(line.split()[0])
        for line in listed.stdout.splitlines()
        if "ImplicitFunc" in line or "in_actor" in line
    ]
