"""A real Ray that is told of GPUs that are not there, and the traces of its trials."""

import os
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import ray
import yaml
from ray.autoscaler.v2.sdk import get_cluster_status
from ray.cluster_utils import Cluster

from tests.runner.drivers import Driver, python_path

GPUS = Path(__file__).parent / "gpus"
"""On PYTHONPATH of drivers and workers."""
QUICK_TO_NOTICE = {
    "RAY_health_check_initial_delay_ms": "1000",
    "RAY_health_check_period_ms": "500",
    "RAY_health_check_timeout_ms": "5000",
    "RAY_health_check_failure_threshold": "3",
}
"""The head notices a dead node within seconds."""
TREE: dict[str, Any] = {
    "question": "Which GPU does it get?",
    "fixed": {
        "task": {"kind": "linear_regression", "dim": 2, "points": 4},
        "model": {"kind": "looped", "width": 8, "heads": 2},
        "training": {"steps": 60, "loops": 3, "window": 2, "batch_size": 8, "eval_every": 10},
    },
    "evaluate": {"loops": 4, "prompts": 32},
}
SAVES = 6
"""Checkpoints of a trial of TREE."""


def pending_bundles(address: str) -> list[dict[str, float]]:
    """Resources that trials without a worker wait for, as an autoscaler sees them."""
    status = get_cluster_status(address)
    return [
        bundle.bundle
        for group in status.resource_demands.placement_group_demand
        for bundles in group.bundles_by_count
        for bundle in [bundles] * bundles.count
    ]


@dataclass(frozen=True)
class Place:
    """A device on a node of Ray. A worker sees no other device."""

    node: str
    devices: str


@dataclass
class TracedTrials:
    """The trials of a study on Ray, each with the place where it trains."""

    folder: Path

    def environment(self) -> dict[str, str]:
        """The variables of workers."""
        names = {"GPU_TRACE": "trials", "HOLD": "hold", "NO_GPU": "no-gpu", "TRACE_SAVES": "saves"}
        names |= {"MOST_SAVES": "most-saves", "SAVE_SECONDS": "save-seconds"}
        variables = {name: str(self.folder / file) for name, file in names.items()}
        return variables | {"PYTHONPATH": python_path(GPUS), "OMP_NUM_THREADS": "1"}

    @contextmanager
    def held(self) -> Iterator[None]:
        """Trials wait at their first CUDA call, until the end of the context."""
        (file := self.folder / "hold").touch()
        try:
            yield
        finally:
            file.unlink()

    def events(self) -> list[tuple[str, str, int, Place]]:
        """Event, key, process and place, in order."""
        file = self.folder / "trials"
        lines = file.read_text().split("\n")[:-1] if file.exists() else []
        rows = [line.split(" ") for line in lines]
        return [(what, key, int(pid), Place(node, devices)) for what, key, pid, node, devices in rows]

    def begun(self) -> dict[str, list[Place]]:
        """The places where each trial has begun or has been resumed."""
        places: dict[str, list[Place]] = {}
        for what, key, _, place in self.events():
            if what == "begin":
                places.setdefault(key, []).append(place)
        return places

    def open(self) -> dict[tuple[str, int], Place]:
        """The processes that train now, by node and number, and their places."""
        processes: dict[tuple[str, int], Place] = {}
        for what, _, pid, place in self.events():
            if what == "begin":
                processes[place.node, pid] = place
            else:
                del processes[place.node, pid]
        return processes

    def most_at_once(self) -> Counter[Place]:
        """The largest number of trials that trained on each device at the same time."""
        now, most = Counter[Place](), Counter[Place]()
        for what, _, _, place in self.events():
            now[place] += 1 if what == "begin" else -1
            most[place] = max(most[place], now[place])
        return most


@dataclass
class GpuCluster:
    """A head without CPUs, and nodes with GPUs. Every test has its own folder for traces."""

    cluster: Cluster
    current: Path
    """A link to the folder of the running test, because workers inherit the variables of their node."""
    nodes: dict[str, Any] = field(default_factory=dict[str, Any])

    @property
    def address(self) -> str:
        return self.cluster.address

    def add(self, name: str, devices: str, memory: float) -> None:
        """Start a node that may use the `devices` of its machine, as in `CUDA_VISIBLE_DEVICES`. `memory` is in GiB."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("CUDA_VISIBLE_DEVICES", devices)
            gpus = len(devices.split(","))
            amounts = {"num_cpus": 1, "num_gpus": gpus, "memory": int(memory * 2**30)}
            self.nodes[name] = self.cluster.add_node(**amounts)

    def kill(self, name: str) -> None:
        """All processes of the node die without warning."""
        self.cluster.remove_node(self.nodes.pop(name), allow_graceful=False)

    def place(self, name: str, devices: str) -> Place:
        return Place(self.nodes[name].node_id, devices)

    def driver(
        self, folder: Path, resources: Mapping[str, float], trials: int, workers: int | None
    ) -> tuple[Driver, TracedTrials]:
        """A driver of a study with so many equal trials, and the traces of its trials."""
        with suppress(FileNotFoundError):
            self.current.unlink()
        self.current.symlink_to(folder)
        return told_driver(folder, resources, trials, workers), TracedTrials(folder)


def told_driver(
    folder: Path, resources: Mapping[str, float], trials: int, workers: int | None = None
) -> Driver:
    study = folder / "told.yaml"
    study.write_text(yaml.safe_dump(TREE | {"resources": dict(resources), "replicates": trials}))
    return Driver(study, folder, workers=workers)


@contextmanager
def gpu_cluster(folder: Path) -> Iterator[GpuCluster]:
    """A head, which holds no trial."""
    current = folder / "current"
    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory(prefix="ls", dir="/tmp") as short:
        for name, value in (TracedTrials(current).environment() | QUICK_TO_NOTICE).items():
            patch.setenv(name, value)
        arguments = {"num_cpus": 0, "memory": 2**28, "temp_dir": short, "include_dashboard": False}
        cluster = Cluster(initialize_head=True, head_node_args=arguments)
        try:
            yield GpuCluster(cluster, current)
        finally:
            ray.shutdown()
            cluster.shutdown()
            os.environ.pop("RAY_ADDRESS", None)
