"""Workers that take longer to start than a trial takes to train."""

from pathlib import Path

import pytest
import yaml

from tests.runner.drivers import Driver
from tests.runner.test_killed import TREE

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def test_a_worker_that_is_being_started_is_left_to_start(tmp_path: Path):
    """Tune would kill it whenever another comes free, and begin to start it again: for ever, if trials are short."""
    starts, fixed = (
        tmp_path / "starts",
        TREE["fixed"] | {"training": TREE["fixed"]["training"] | {"steps": 200}},
    )
    tree = TREE | {"fixed": fixed, "search": {"kind": "random", "trials": 5}}
    (study := tmp_path / "short.yaml").write_text(yaml.safe_dump(tree))
    places = {"PYTHONPATH": str(Path(__file__).parent / "starting"), "STARTS": str(starts)}
    code, out, err = Driver(study, tmp_path, environment=places).finish()
    assert code == 0, out + err
    assert len(starts.read_text().split()) == 2
