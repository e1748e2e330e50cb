"""The quotas of a namespace, beside the resources of a study."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from loopscale.cluster.base import (
    ClusterProblem,
)
from loopscale.cluster.kuberay_settings import KubeRaySettings

QUANTITIES = {"": 1.0, "m": 1e-3, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}
QUANTITIES |= {"Ki": 2.0**10, "Mi": 2.0**20, "Gi": 2.0**30, "Ti": 2.0**40}
"""Factors of the suffixes of Kubernetes' quantities."""


def quota_problems(cluster: KubeRaySettings, quotas: Sequence[Mapping[str, Any]]) -> Iterator[ClusterProblem]:
    """The quotas of the namespace that the head and one worker exceed, or all workers."""
    least, most = (_requests(cluster, count) for count in (max(1, cluster.min_workers), cluster.max_workers))
    for quota in quotas:
        status, name = quota.get("status", {}), quota["metadata"]["name"]
        for key, hard in status.get("hard", {}).items():
            amount = key.removeprefix("requests.").removeprefix("limits.")
            left = quantity(hard) - quantity(status.get("used", {}).get(key, "0"))
            if least.get(amount, 0.0) > left:
                what = f"the quota {name} leaves {key} {left:g}, and the head and one worker need {least[amount]:g}"
                yield ClusterProblem(True, f"{what}; make the pods smaller, or ask for a larger quota")
            elif most.get(amount, 0.0) > left:
                what = f"the quota {name} leaves {key} {left:g}, and all {cluster.max_workers} workers need "
                yield ClusterProblem(False, f"{what}{most[amount]:g}; some of them will not start")


def _requests(cluster: KubeRaySettings, workers: int) -> dict[str, float]:
    """The resources of the head and some workers, by the names of a quota."""
    sums = {"pods": 1.0 + workers}
    for machine, count in ((cluster.head, 1), (cluster.worker, workers)):
        for key, amount in machine.amounts().items():
            sums[key] = sums.get(key, 0.0) + count * quantity(amount)
    return sums


def quantity(text: str) -> float:
    """A quantity of Kubernetes: 500m, 8, 16Gi, 2k."""
    number, suffix = re.fullmatch(r"([\d.eE+-]*\d)([A-Za-z]*)", str(text).strip()).groups()  # pyright: ignore
    return float(number) * QUANTITIES[suffix]
