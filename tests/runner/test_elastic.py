"""A cluster with no room announces what waits, so that it can grow, and the study starts where room appears."""

import subprocess
import time
from pathlib import Path

import pytest
import ray
import yaml
from ray.autoscaler.v2.sdk import get_cluster_status
from ray.cluster_utils import Cluster

from tests.runner.drivers import Driver

pytestmark = [pytest.mark.slow, pytest.mark.hosts, pytest.mark.timeout(600)]


def demanded(address: str) -> list[dict[str, float]]:
    """What an autoscaler is asked for, one entry a bundle."""
    status = get_cluster_status(address)
    return [
        bundle.bundle
        for group in status.resource_demands.placement_group_demand
        for bundles in group.bundles_by_count
        for bundle in [bundles] * bundles.count
    ]


@pytest.mark.filterwarnings("ignore")
def test_trials_that_wait_are_announced_and_start_on_the_machine_that_comes(tmp_path: Path):
    study = tmp_path / "elastic.yaml"
    tree = {
        "question": "Does it wait for a machine?",
        "fixed": {
            "task": {"kind": "linear_regression", "dim": 2, "points": 4},
            "model": {"kind": "looped", "width": 8, "heads": 2},
            "training": {"steps": 20, "loops": 3, "window": 2, "batch_size": 8, "eval_every": 10},
        },
        "replicates": 3,
        "evaluate": {"loops": 4, "prompts": 32},
    }
    study.write_text(yaml.safe_dump(tree))
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 0})
    process = None
    try:
        one = Driver(study, tmp_path, workers=3)
        process = one.start("--address", cluster.address)
        _until(lambda: len(demanded(cluster.address)) >= 3, process)
        wanted = demanded(cluster.address)
        assert {bundle["CPU"] for bundle in wanted} == {1.0}
        cluster.add_node(num_cpus=1)
        _, err = process.communicate(timeout=300)
        assert process.returncode == 0, err
        assert "no machine of the cluster has what a trial asks for (1 CPUs)" in err
        one.check(trials=3, baselines=0)
    finally:
        if process and process.poll() is None:
            process.kill()
        ray.shutdown()
        cluster.shutdown()


def _until(condition, process: subprocess.Popen, seconds: float = 120) -> None:
    began = time.monotonic()
    while not condition():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() - began < seconds
        time.sleep(0.5)
