"""A report on the machines of a cluster, for the preflight of a submission. It runs on the cluster's head.

    python -m loopscale.cluster.machine_report --store URL --storage URL --study NAME

The report is one line of JSON. It covers the needs of the study's driver and workers, so that `submit` names a
missing part before anything is queued.
"""

import argparse
import json
import logging
import platform
import socket
import sys
import time
from typing import Any

from loopscale.runner.machine import versions

MARK = "loopscale-probe "
"""The start of the report's line. Ray prints other lines around it."""
NODE_SECONDS = 60.0
"""Time for every node to answer."""


def report_on_machine(packages: tuple[str, ...], storage: str | None) -> dict[str, Any]:
    """This machine: its clock, its versions, and the reason why it cannot write checkpoints (empty if it can)."""
    return {
        "host": socket.gethostname(),
        "python": platform.python_version(),
        "versions": versions(packages),
        "time": time.time(),
        "storage": _storage_problem(storage) if storage else "",
    }


def describe_cluster(
    packages: tuple[str, ...], store: str | None, storage: str | None, study: str, address: str = "auto"
) -> dict[str, Any]:
    """The head, and every node of the Ray cluster at `address`, by default the cluster that runs on the head."""
    import ray  # here, because a look-up of a cluster's kind imports this module
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    ray.init(address=address, logging_level=logging.ERROR, log_to_driver=False)
    task = ray.remote(num_cpus=0)(report_on_machine)
    pending = []
    for node in ray.nodes():
        if node["Alive"]:
            place: Any = NodeAffinitySchedulingStrategy(node_id=node["NodeID"], soft=False)
            remote = task.options(scheduling_strategy=place)
            pending.append((node, time.time(), remote.remote(packages, storage)))
    nodes = []
    for node, asked, answer in pending:
        about = {"address": node["NodeManagerAddress"], "resources": node["Resources"]}
        try:
            machine: Any = ray.get(answer, timeout=NODE_SECONDS)
            # A clock without error lies between the question and the answer.
            skew = max(asked - machine["time"], machine["time"] - time.time(), 0.0)
            nodes.append(about | machine | {"skew": skew})
        except Exception as problem:
            reason = f"{type(problem).__name__}: {str(problem).strip().splitlines()[-1]}"
            nodes.append(about | {"problem": reason})
    head = report_on_machine(packages, None)
    return head | {"nodes": nodes, "store": _store_problem(store, storage, study) if store else ""}


def _store_problem(store: str, storage: str | None, study: str) -> str:
    """The reason why a driver cannot record the study; empty if it can."""
    # Imported here because the import takes a second.
    from loopscale.records.model import StoreError
    from loopscale.records.stores.opening import open_store

    try:
        open_store(store, storage, create=True).make_experiment(study)
    except StoreError as problem:
        return str(problem)
    return ""


def _storage_problem(storage: str) -> str:
    """The reason why a worker cannot write checkpoints; empty if it can."""
    # Imported here because the package imports torch, which the other answers do without.
    from loopscale.training.checkpoint_stores import open_checkpoint_store
    from loopscale.training.storage import StorageUnavailable

    try:
        open_checkpoint_store(storage).check()
    except (StorageUnavailable, OSError, ValueError) as problem:
        return str(problem)
    return ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    for option in ("--store", "--storage", "--study", "--packages"):
        parser.add_argument(option)
    options = parser.parse_args()
    packages = tuple(options.packages.split(","))
    report = describe_cluster(packages, options.store, options.storage, options.study)
    print(f"\n{MARK}{json.dumps(report)}", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
