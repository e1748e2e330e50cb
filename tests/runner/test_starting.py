"""Workers are dear to start: one that is being started is left to start, one that will be needed at once is kept."""

from pathlib import Path

import pytest
import yaml

from tests.runner.drivers import Driver
from tests.runner.test_killed import TREE

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def test_a_study_of_two_workers_starts_two(tmp_path: Path):
    """Tune would start more, twice over.

    Whenever a worker comes free, it kills one that is being started for the trial that waits: for ever, if trials are
    short. And when the cell's last trial opens the replicates, it stops that trial's worker before it asks for them.
    """
    fixed = TREE["fixed"] | {"training": TREE["fixed"]["training"] | {"steps": 400, "window": 1}}
    tree = TREE | {"fixed": fixed, "scientific": {}, "search": {"kind": "random", "trials": 12}}
    (study := tmp_path / "short.yaml").write_text(yaml.safe_dump(tree))
    starts = tmp_path / "starts"
    driver = Driver(study, tmp_path)
    driver.environment = {
        "PYTHONPATH": str(Path(__file__).parent / "starting"),
        "STARTS": str(starts),
        "CHECKPOINTS": str(driver.store / "checkpoints"),
        "ENOUGH": "2",
    }
    code, out, err = driver.finish()
    assert code == 0, out + err
    assert len(starts.read_text().split()) == 2
