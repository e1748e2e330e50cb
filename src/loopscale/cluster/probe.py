"""What a cluster's machines are like, seen from themselves: run there by a preflight, as JSON on one line.

    python -m loopscale.cluster.probe --store URL --storage URL --study NAME

It asks what the study's driver and workers will need, so that what is missing is said before anything is queued.
"""

import argparse
import json
import logging
import platform
import socket
import sys
import time
from typing import Any

from loopscale.runner.machine.provenance import versions

MARK = "loopscale-probe "
"""Before the line that is meant: Ray prints beside it."""
PATIENCE = 60.0
"""Seconds for every node to answer."""


def examine(packages: tuple[str, ...], storage: str | None) -> dict[str, Any]:
    """One machine: its clock, the versions that it has, and whether it can write where checkpoints go."""
    return {
        "host": socket.gethostname(),
        "python": platform.python_version(),
        "versions": versions(packages),
        "time": time.time(),
        "storage": _storage(storage) if storage else "",
    }


def probe(packages: tuple[str, ...], store: str | None, storage: str | None, study: str) -> dict[str, Any]:
    """The head, and every node of the cluster that Ray finds at `auto`."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    ray.init(address="auto", logging_level=logging.ERROR, log_to_driver=False)
    ask = ray.remote(num_cpus=0)(examine)
    alive = [node for node in ray.nodes() if node["Alive"]]
    asked = [
        (node, time.time(), ask.options(scheduling_strategy=_on(NodeAffinitySchedulingStrategy, node)))
        for node in alive
    ]
    answers = [(node, at, remote.remote(packages, storage)) for node, at, remote in asked]
    nodes = []
    for node, at, answer in answers:
        about = {"address": node["NodeManagerAddress"], "resources": node["Resources"]}
        try:
            found = ray.get(answer, timeout=PATIENCE)
            # Its clock is between asking and answering if it is ours.
            late = max(at - found["time"], found["time"] - time.time(), 0.0)
            nodes.append(about | found | {"skew": late})
        except Exception as problem:
            nodes.append(
                about | {"problem": f"{type(problem).__name__}: {str(problem).strip().splitlines()[-1]}"}
            )
    return examine(packages, None) | {"nodes": nodes, "store": _store(store, storage, study) if store else ""}


def _on(strategy: Any, node: dict[str, Any]) -> Any:
    return strategy(node_id=node["NodeID"], soft=False)


def _store(store: str, storage: str | None, study: str) -> str:
    """What keeps a driver from recording the study; nothing if it can."""
    from loopscale.records.model.errors import StoreError
    from loopscale.records.stores.opening import open_store

    try:
        open_store(store, storage, create=True).make_experiment(study)
    except StoreError as problem:
        return str(problem)
    return ""


def _storage(storage: str) -> str:
    """What keeps a worker from writing checkpoints; nothing if it can."""
    from loopscale.training.storage import CheckpointStore, StorageUnavailable

    try:
        CheckpointStore.open(storage).check()
    except (StorageUnavailable, OSError, ValueError) as problem:
        return str(problem)
    return ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    for option in ("--store", "--storage", "--study", "--packages"):
        parser.add_argument(option)
    asked = parser.parse_args()
    found = probe(tuple(asked.packages.split(",")), asked.store, asked.storage, asked.study)
    print(f"\n{MARK}{json.dumps(found)}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
