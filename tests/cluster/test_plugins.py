"""A study of the example package and of a file that only the driver's host has, on two training hosts."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.cluster.hosts import Network
from tests.cluster.servers import KEYS, Cluster
from tests.cluster.studies import Study
from tests.examples.packages import EXAMPLE, install, python_path

pytestmark = [pytest.mark.slow, pytest.mark.hosts, pytest.mark.timeout(900)]

SOLVER = '''"""A baseline in a file."""

from loopscale.solvers.regression import LeastSquares


class OutsideSquares(LeastSquares, kind="outside_squares"):
    """Least squares under another name."""


def mean_miss(task, prediction, batch):
    """The mean distance of a prompt's predictions from the targets."""
    return (prediction - batch.targets).abs().mean((-2, -1))
'''


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Network]:
    target = install(tmp_path_factory.mktemp("package"))
    with Network(PYTHONPATH=python_path(Path(__file__).parent / "slow", target), **KEYS) as network:
        yield network


def test_workers_of_other_hosts_get_the_file_and_import_the_package(network: Network):
    cluster = Cluster(network)
    tree = yaml.safe_load((EXAMPLE / "fourier.yaml").read_text())
    plugin = cluster.head.host.home / "outside_squares.py"  # a path of the driver's host alone
    (cluster.head.host.folder / plugin.name).write_text(SOLVER)
    tree |= {"plugins": [str(plugin)], "baselines": ["outside_squares"]}
    tree["evaluate"]["measures"].append(f"{plugin}:mean_miss")
    tree["fixed"]["training"]["steps"] = 1000  # the study lasts until the slower host has its first trial
    study = Study(cluster, "fourier", tree, trials=2 * (2 + 2), baselines=1)
    try:
        first = study.drive()
        study.until_saved(3, first)
        study.settle()
        first.kill()
        study.finish(study.drive())
        study.check(repeatable=len(study.cluster.workers))
        hosts = set(study.tags("host").values())
        assert hosts == {"worker1", "worker2"}
        measured = study.metrics("evaluate/mean_miss")
        assert set(measured) == {key for key, _, _ in study.runs()}
        assert set(study.metrics("evaluate/wrong_sign")) == set(measured)
    except BaseException:
        print(network.logs())
        raise
