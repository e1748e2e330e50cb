"""Starts of workers, which are expensive: Tune neither kills a starting worker nor stops a worker that is needed."""

from pathlib import Path

import pytest
import yaml

from tests.runner.drivers import SURVIVAL, Driver, python_path

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]


def test_a_study_of_two_workers_starts_only_two_workers(tmp_path: Path):
    """Tune itself would start more workers, for two reasons.

    - When a worker becomes idle, Tune kills a worker that is being started for a waiting trial. With short trials
      this happens again and again.
    - When the cell's last trial opens the replicates, Tune stops the trial's worker before it asks for them.
    """
    training = SURVIVAL["fixed"]["training"] | {"steps": 200, "window": 1, "eval_every": 50}
    fixed = SURVIVAL["fixed"] | {"training": training}
    tree = SURVIVAL | {"fixed": fixed, "scientific": {}, "search": {"kind": "random", "trials": 12}}
    (study := tmp_path / "short.yaml").write_text(yaml.safe_dump(tree))
    starts, processes = tmp_path / "starts", tmp_path / "processes"
    driver = Driver(study, tmp_path)
    driver.environment = {
        "PYTHONPATH": python_path(Path(__file__).parent / "starting"),
        "STARTS": str(starts),
        "PROCESSES": str(processes),
        "CHECKPOINTS": str(driver.store / "checkpoints"),
        "ENOUGH": "2",
    }
    code, out, err = driver.finish()
    assert code == 0, out + err
    assert len(starts.read_text().split()) == 2
    assert len(processes.read_text().split()) == 2, "Ray's first processes become the workers"
