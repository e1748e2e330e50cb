"""GPUs that are not there: the real Ray is told of GPUs, and all is real up to the first CUDA call of a trial."""

import json
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.processes import outcome, wait_until
from tests.runner.told_gpus import (
    SAVES,
    GpuCluster,
    Place,
    TracedTrials,
    gpu_cluster,
    pending_bundles,
    told_driver,
)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800), pytest.mark.filterwarnings("ignore")]

LITTLE = 0.25
"""CPUs of a trial. Only GPUs and memory limit the number of trials."""


@pytest.fixture(scope="module")
def there(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GpuCluster]:
    """Two nodes. `one` has one GPU and much memory, and `two` has two GPUs and little memory."""
    with gpu_cluster(tmp_path_factory.mktemp("told")) as made:
        made.add("one", "5", memory=8)
        made.add("two", "4,6", memory=0.5)
        yield made


def test_quarters_of_a_gpu_pack_four_processes_on_one_device_and_the_others_wait(
    there: GpuCluster, tmp_path: Path
):
    driver, trials = there.driver(tmp_path, {"cpu": LITTLE, "gpu": 0.25, "memory": 2}, trials=6, workers=6)
    with trials.held():
        process = driver.start("--address", there.address)
        wait_until(lambda: len(trials.open()) == 4, process)
        wait_until(lambda: len(pending_bundles(there.address)) == 2, process)
        shared = there.place("one", "5")
        assert list(trials.open().values()) == [shared] * 4
    code, _, err = outcome(process)
    assert code == 0, err
    assert trials.most_at_once() == {shared: 4}
    driver.check(trials=6, baselines=0)


def test_a_share_above_a_half_takes_its_own_device_and_the_driver_starts_as_many_trials_as_fit(
    there: GpuCluster, tmp_path: Path
):
    """With 0.6 of a GPU one trial fits a GPU, though 3 GPUs are 5 times 0.6."""
    driver, trials = there.driver(tmp_path, {"cpu": LITTLE, "gpu": 0.6}, trials=4, workers=None)
    with trials.held():
        process = driver.start("--address", there.address)
        wait_until(lambda: len(trials.open()) == 3, process)
        running = driver.query("SELECT count(*) FROM tags WHERE key = 'outcome' AND value = 'running'")
        assert pending_bundles(there.address) == []
    code, _, err = outcome(process)
    assert code == 0, err
    assert running == [(3,)]
    devices = [there.place("one", "5"), there.place("two", "4"), there.place("two", "6")]
    assert trials.most_at_once() == dict.fromkeys(devices, 1)
    driver.check(trials=4, baselines=0)


def test_trials_leave_gpus_that_vanish_and_the_study_says_when_no_gpu_is_left(
    there: GpuCluster, tmp_path: Path
):
    driver, trials = there.driver(tmp_path, {"cpu": LITTLE, "gpu": 1}, trials=4, workers=4)
    one, two = there.place("one", "5"), {there.place("two", "4"), there.place("two", "6")}
    with driver.held_after(4):
        process = driver.start("--address", there.address)
        wait_until(lambda: len({key for key, _ in driver.saves()}) == 3, process)
        assert set(trials.open().values()) == {one, *two}
        assert len(pending_bundles(there.address)) == 1
        lost = {key for key, places in trials.begun().items() if places[0] in two}
        there.kill("two")
    with trials.held():  # a trial that begins now waits
        wait_until(lambda: sum(places.count(one) for places in trials.begun().values()) == 2, process)
        there.kill("one")
        assert process.stderr
        notice = next(line for line in process.stderr if "no machine of the cluster" in line)
        assert (
            "has the resources of a trial (0.25 CPUs, 1 GPUs); the study waits for such a machine" in notice
        )
    there.add("one", "7", memory=8)
    code, _, err = outcome(process)
    assert code == 0, err
    assert "no machine of the cluster" not in err, "said once"
    assert len(lost) == 2
    assert {trials.begun()[key][-1] for key in lost} == {there.place("one", "7")}
    assert set(trials.most_at_once().values()) == {1}
    assert Counter(driver.saves().values()) == {1: 4 * SAVES}, "no step is trained twice"
    assert driver.query("SELECT value FROM tags WHERE key = 'retries' AND value != '0'") == []
    driver.check(trials=4, baselines=0)


def test_a_share_that_no_node_can_give_is_one_line_before_a_study_is_queued(
    there: GpuCluster, tmp_path: Path
):
    trial = json.dumps({"cpu": 64.0, "gpu": 0.25})
    words = [
        "--address",
        there.address,
        "--study",
        "told",
        "--store",
        str(tmp_path),
        "--storage",
        str(tmp_path),
    ]
    command = [sys.executable, "-m", "loopscale.cluster.job_check", *words, "--trial", trial]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2, done.stderr
    (line,) = [line for line in done.stdout.splitlines() if "a trial needs" in line]
    assert line.startswith(
        "a trial needs 64 CPU and 0.25 GPU, and no present machine has that; the most is 1 CPU"
    )


def test_the_private_ray_runs_as_many_trials_as_the_gpus_of_this_machine_hold(tmp_path: Path):
    driver, trials = told_driver(tmp_path, {"cpu": LITTLE, "gpu": 0.5}, trials=5), TracedTrials(tmp_path)
    driver.environment = trials.environment() | {"TORCH_COUNT": "2", "NVML_COUNT": "2"}
    with trials.held():
        process = driver.start()
        wait_until(lambda: len(trials.open()) == 4, process)
        running = driver.query("SELECT count(*) FROM tags WHERE key = 'outcome' AND value = 'running'")
    code, _, err = outcome(process)
    assert code == 0, err
    assert running == [(4,)], "no trial waits for a GPU"
    (node,) = {place.node for place in trials.most_at_once()}
    assert trials.most_at_once() == {Place(node, "0"): 2, Place(node, "1"): 2}
    driver.check(trials=5, baselines=0)


def test_a_gpu_that_torch_counts_and_ray_does_not_is_one_line(tmp_path: Path):
    driver = told_driver(tmp_path, {"cpu": LITTLE, "gpu": 1}, trials=2)
    driver.environment = TracedTrials(tmp_path).environment() | {"TORCH_COUNT": "1", "NVML_COUNT": "0"}
    code, _, err = driver.finish()
    assert code == 2, err
    (line,) = [line for line in err.splitlines() if "Ray counts" in line]
    assert "a trial needs 0.25 CPUs, 1 GPUs, and Ray counts" in line
    assert line.endswith("as in `ray start --head --num-gpus=1`, and give its --address")
    assert driver.query("SELECT name FROM runs WHERE status = 'RUNNING'") == []


def test_a_worker_without_its_gpu_stops_the_study_of_one_host_with_one_line(tmp_path: Path):
    """Another worker on the only host would see no GPU either."""
    driver, trials = told_driver(tmp_path, {"cpu": LITTLE, "gpu": 1}, trials=2), TracedTrials(tmp_path)
    (tmp_path / "no-gpu").write_text(socket.gethostname())
    driver.environment = trials.environment() | {"TORCH_COUNT": "1", "NVML_COUNT": "1"}
    code, _, err = driver.finish()
    assert code == 1, err
    here = f"a trial on {socket.gethostname()} got the GPU '0' (CUDA_VISIBLE_DEVICES), and torch sees no GPU there; "
    assert here in err
    assert not driver.saves()
    assert driver.query("SELECT name FROM runs WHERE status = 'RUNNING'") == []
    (tmp_path / "no-gpu").unlink()
    code, _, err = driver.finish()
    assert code == 0, err
    driver.check(trials=2, baselines=0)
