"""Ray dies, does not start, or does not answer: one line with a remedy, and nothing is left running in the records."""

import os
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
import yaml

from tests.processes import outcome, wait_until
from tests.runner.drivers import SURVIVAL, Driver

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]


@pytest.mark.parametrize(("process", "words"), [("raylet", "host process"), ("gcs_server", "head process")])
def test_the_death_of_a_process_of_ray_ends_the_run_with_one_line(tmp_path: Path, process: str, words: str):
    (study := tmp_path / "survival.yaml").write_text(yaml.safe_dump(SURVIVAL))
    driver = Driver(study, tmp_path, workers=1, overrides=("training.steps=100000",))
    running = driver.start()
    wait_until(lambda: driver.saves().total() >= 1, running)
    (victim,) = [
        each for each in psutil.Process(running.pid).children(recursive=True) if each.name() == process
    ]
    victim.kill()
    code, _, err = outcome(running)
    assert code == 1, err
    lines = [line for line in err.splitlines() if "has died" in line]
    assert len(lines) == 1, err
    assert f"the {words} of Ray ({process}) has died; look for a lack of memory" in lines[0]
    assert "Traceback" not in err
    assert driver.query("SELECT name FROM runs WHERE status = 'RUNNING'") == []


def test_a_ray_that_does_not_start_is_one_line(tmp_path: Path):
    """Ray finds no room for its session, in a mount namespace whose folder for temporary files is full."""
    if os.getuid() != 0:
        pytest.skip("only root mounts disks")
    (tmp_path / "survival.yaml").write_text(yaml.safe_dump(SURVIVAL))
    command = [
        sys.executable,
        "-m",
        "loopscale.cli.main",
        "run",
        "/mnt/survival.yaml",
        "--store",
        "/mnt/store",
    ]
    (tmp_path / "full").mkdir()
    full = f"mount --bind {tmp_path} /mnt && mount -t tmpfs -o size=64k tmpfs /mnt/full"
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", f'{full} && exec "$@"', "sh", *command],
        capture_output=True,
        text=True,
        cwd="/",
        env=os.environ | {"TMPDIR": "/mnt/full"},
    )
    assert done.returncode in (1, 2), done.stderr
    assert "Traceback" not in done.stderr
    assert "; " in done.stderr.strip().splitlines()[-1]


def test_an_address_that_nobody_answers_is_one_line_before_anything_is_recorded(tmp_path: Path):
    (study := tmp_path / "survival.yaml").write_text(yaml.safe_dump(SURVIVAL))
    command = [
        sys.executable,
        "-m",
        "loopscale.cli.main",
        "run",
        str(study),
        "--store",
        str(tmp_path / "store"),
    ]
    done = subprocess.run([*command, "--address", "127.0.0.1:1"], capture_output=True, text=True)
    assert (done.returncode, len(done.stderr.splitlines())) == (2, 1)
    assert "no Ray cluster answers at 127.0.0.1:1 (connection refused); start the cluster" in done.stderr
    assert not (tmp_path / "store").exists()
