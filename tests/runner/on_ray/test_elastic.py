"""A cluster without free slots announces waiting trials, so that it can grow. The study starts on the new machine."""

from pathlib import Path

import pytest
import ray
import yaml
from ray.cluster_utils import Cluster

from tests import processes
from tests.runner.drivers import Driver
from tests.runner.told_gpus import pending_bundles

pytestmark = [pytest.mark.slow, pytest.mark.hosts, pytest.mark.timeout(1800)]


@pytest.mark.filterwarnings("ignore")
def test_waiting_trials_are_announced_and_start_on_a_new_machine(tmp_path: Path):
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
        driver = Driver(study, tmp_path, workers=3)
        process = driver.start("--address", cluster.address)
        processes.wait_until(lambda: len(pending_bundles(cluster.address)) >= 3, process)
        bundles = pending_bundles(cluster.address)
        assert {bundle["CPU"] for bundle in bundles} == {1.0}
        cluster.add_node(num_cpus=1)
        code, _, err = processes.outcome(process)
        assert code == 0, err
        assert "no machine of the cluster has the resources of a trial (1 CPUs)" in err
        driver.check(trials=3, baselines=0)
    finally:
        if process:
            processes.end(process)
        ray.shutdown()
        cluster.shutdown()
