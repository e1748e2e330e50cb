"""Hosts that go while a study runs: a host whose GPU vanishes, and the output of a trial whose host is gone.

No host has a GPU. Ray is told of one GPU of each training host, and all is real up to the first CUDA call of a trial.
"""

import os
import re
import signal
import sys
from collections.abc import Iterator

import pytest

from tests.cluster.hosts import Network, until
from tests.cluster.servers import KEYS, Cluster
from tests.cluster.studies import TREE, Study
from tests.runner.talkative import TALKATIVE
from tests.runner.told_gpus import TracedTrials

pytestmark = [pytest.mark.slow, pytest.mark.hosts, pytest.mark.timeout(900)]


@pytest.fixture(scope="module")
def network() -> Iterator[Network]:
    with Network(**KEYS) as network:
        variables = TracedTrials(network.root / "shared").environment()
        own = ("TRACE_SAVES", "OMP_NUM_THREADS")  # of each host
        network.more |= {name: value for name, value in variables.items() if name not in own}
        yield network


@pytest.fixture(scope="module")
def cluster(network: Network) -> Cluster:
    return Cluster(network, gpus=1)


def test_a_host_whose_gpu_vanishes_gets_no_more_trials_and_its_trial_goes_on_elsewhere(cluster: Cluster):
    trials = TracedTrials(cluster.network.root / "shared")
    study = Study(cluster, "vanish", TREE | {"resources": {"cpu": 1, "gpu": 1}})
    first, second = (ray.host for ray in cluster.workers)
    driver = study.drive()
    try:
        until(lambda: first.trainers() and len(trials.open()) == 2, 200, "both hosts train")
        study.until_saved(2, driver)
        (trials.folder / "no-gpu").write_text(first.name)
        for pid in first.trainers():  # as an error of CUDA would end the process
            os.kill(pid, signal.SIGKILL)
        study.finish(driver)
        study.check(repeatable=2)
    except BaseException:
        print(cluster.network.logs())
        raise
    reason = f"a trial on {first.name} got the GPU '0' (CUDA_VISIBLE_DEVICES), and torch sees no GPU there; "
    assert f"the host {first.name} got no more trials in this run: {reason}" in driver.output
    moved = [key for key, count in study.tags("lost_hosts").items() if count != "0"]
    assert moved
    assert {study.tags("host")[key] for key in moved} == {second.name}


def test_the_output_of_a_trial_is_read_after_its_host_is_gone(cluster: Cluster):
    shared = cluster.network.root / "shared"
    (shared / "talkative.py").write_text(TALKATIVE)
    (shared / "wait").touch()
    training = {"steps": 20, "loops": 2, "window": 1, "batch_size": 4, "eval_every": 10}
    fixed = {"task": {"kind": "talkative", "dim": 2, "points": 4}, "training": training}
    tree = TREE | {"plugins": ["./talkative.py"], "fixed": TREE["fixed"] | fixed, "replicates": 1}
    tree = {name: part for name, part in tree.items() if name not in ("scientific", "nuisance", "search")}
    study = Study(cluster, "talk", tree | {"baselines": []}, trials=1, baselines=0)
    driver = study.drive()

    def texts() -> list[str]:
        return [name for name in cluster.bucket.names() if name.startswith("talk/") and name.endswith(".log")]

    def log(key: str) -> str:
        words = (
            "logs",
            study.name,
            "--trial",
            key,
            "--store",
            "http://tracking:5000",
            "--storage",
            study.storage,
        )
        process = study.host.start("logs", sys.executable, "-m", "loopscale.cli.main", *words)
        assert process.wait(120) == 0, process.output
        return process.output

    def hosts(key: str) -> list[str]:
        """The hosts of the trial's processes, by the headings of its output."""
        return re.findall(r"^== process \d+ on (\S+), ", log(key), re.MULTILINE)

    try:
        until(texts, 200, "the storage has output of the trial")
        ((key, _, _),) = until(study.runs, 60, "the records follow the worker")
        (name,) = hosts(key)
        gone = next(ray for ray in cluster.workers if ray.host.name == name)
        before = log(key)
        gone.host.kill()
        until(lambda: gone.host.address not in cluster.alive(), 120, "Ray notices the dead host")
        assert log(key).startswith(before.rpartition("not over")[0]), (
            "nothing of the text is lost with its host"
        )
        until(lambda: len(hosts(key)) == 2, 200, "another host has sent its output")
        (shared / "wait").unlink()
        study.finish(driver)
    except BaseException:
        print(cluster.network.logs())
        raise
    assert gone.host.holder is None, "the host is still gone"
    other = next(ray.host.name for ray in cluster.workers if ray is not gone)
    assert hosts(key) == [name, other]
    lines = log(key).splitlines()
    assert [line.split(":")[0] for line in lines if line.startswith("step ")] == ["step 10", "step 20"]
    assert lines[-1] == f"finished on {other}"
    worker = int(before.partition("samples in process ")[2].split()[0])
    assert f"samples in process {worker}" in lines
