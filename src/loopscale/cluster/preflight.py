"""What would go wrong on a cluster, found before anything is queued there."""

import json
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, requires
from typing import Any

from packaging.requirements import Requirement
from packaging.version import Version

from loopscale.cluster.base import Cluster, ClusterError, Request
from loopscale.cluster.probe import MARK
from loopscale.cluster.ray import Ray
from loopscale.runner.machine.provenance import PACKAGES, versions

TIMEOUT = 120.0
"""Seconds that a cluster may take to answer: the first job of a cluster unpacks the code on every machine."""
SKEW, HOPELESS = 5.0, 300.0
"""Seconds between two clocks that are worth a word; and that make signed requests to a bucket fail."""


@dataclass(frozen=True)
class Finding:
    """One thing that was seen. What is fatal would keep the study from running."""

    fatal: bool
    text: str


def preflight(name: str, cluster: Cluster, request: Request) -> list[Finding]:
    """All that is wrong, the fatal first. Raises ClusterError where the cluster does not answer."""
    if not isinstance(cluster, Ray):
        return []  # its machines are not up before the study is, and the driver looks for itself
    words = [
        "python",
        "-m",
        "loopscale.cluster.probe",
        "--packages",
        ",".join(PACKAGES),
        "--study",
        request.study,
    ]
    for option, value in (("--store", cluster.store), ("--storage", cluster.storage)):
        words += [option, value] if value else []
    before = time.time()
    said = cluster.ask(name, request, words, TIMEOUT)
    line = next((line for line in said.splitlines() if line.startswith(MARK)), None)
    if line is None:
        raise ClusterError(f"{name} did not answer as it should ({said[-300:].strip()})", "see its dashboard")
    return judge(json.loads(line.removeprefix(MARK)), cluster, request.resources, (before, time.time()))


def judge(
    seen: Mapping[str, Any], cluster: Cluster, wanted: Mapping[str, float], when: tuple[float, float]
) -> list[Finding]:
    """What a probe's answer means for a study; `when` is the time here before and after it was asked."""
    found = [Finding(True, seen["store"])] if seen["store"] else []
    if not cluster.store:
        found.append(
            Finding(True, "the cluster has no store; write store: http://TRACKING-SERVER:5000 in its file")
        )
    if not cluster.storage and len(seen["nodes"]) > 1:
        found.append(
            Finding(
                True,
                "its machines share no storage; write storage: s3://BUCKET/PREFIX or a shared folder in its file",
            )
        )
    found += _clock("the head", max(when[0] - seen["time"], seen["time"] - when[1], 0.0))
    found += _versions("the head", seen)
    for node in seen["nodes"]:
        found += _node(node, seen)
    found += _room(seen["nodes"], wanted, cluster.grows)
    return sorted(found, key=lambda each: not each.fatal)


def _node(node: Mapping[str, Any], head: Mapping[str, Any]) -> Iterator[Finding]:
    where = f"{node['address']}"
    if "problem" in node:
        yield Finding(
            True, f"{where} cannot run loopscale ({node['problem']}); take it out of the cluster or mend it"
        )
        return
    if node["storage"]:
        yield Finding(True, f"{where} cannot write checkpoints: {node['storage']}")
    yield from _clock(where, node["skew"])
    if (node["python"], node["versions"]) != (head["python"], head["versions"]):
        yield from _versions(where, node)


def _clock(where: str, skew: float) -> Iterator[Finding]:
    if skew > SKEW:
        yield Finding(
            skew > HOPELESS, f"the clock of {where} is {skew:.0f} s off; synchronise it, with chrony or ntp"
        )


def _versions(where: str, seen: Mapping[str, Any]) -> Iterator[Finding]:
    """What is missing there or too old is fatal; what only differs from here is said, for results may differ."""
    ours = versions(PACKAGES)
    for package, needed in _needed().items():
        there = seen["versions"].get(package)
        if there is None:
            yield Finding(True, f"{where} has no {package}; install {package}{needed} there")
        elif not needed.contains(Version(there), prereleases=True):
            yield Finding(True, f"{where} has {package} {there}; install {package}{needed} there")
        elif package in ours and there != ours[package]:
            yield Finding(
                False, f"{where} has {package} {there}, and here is {ours[package]}; results may differ"
            )


def _needed() -> dict[str, Any]:
    """What our own package asks for, of what a study depends on."""
    try:
        asked = [Requirement(text) for text in requires("loopscale") or []]
    except PackageNotFoundError:
        return {}
    return {each.name: each.specifier for each in asked if each.name in PACKAGES and not each.marker}


def _room(nodes: list[Mapping[str, Any]], wanted: Mapping[str, float], grows: bool) -> Iterator[Finding]:
    """Whether any machine that is up could hold a trial."""
    names = {"cpu": "CPU", "gpu": "GPU"}
    need = {names[name]: amount for name, amount in wanted.items() if name in names and amount}
    if any(all(node["resources"].get(each, 0) >= amount for each, amount in need.items()) for node in nodes):
        return
    asked = " and ".join(f"{amount:g} {name}" for name, amount in need.items())
    most = {name: max((node["resources"].get(name, 0) for node in nodes), default=0) for name in need}
    there = " and ".join(f"{amount:g} {name}" for name, amount in most.items())
    what = f"a trial is to have {asked}, and no machine that is up has that; the most is {there}"
    remedy = "it waits until the cluster grows" if grows else "ask for less under resources in the study"
    yield Finding(not grows, f"{what}; {remedy}")
