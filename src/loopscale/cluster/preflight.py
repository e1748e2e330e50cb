"""Problems of a cluster that are found before a study is queued there."""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, requires
from typing import Any

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from loopscale.cluster.base import Cluster, Request
from loopscale.runner.machine import PACKAGES, versions

SKEW_NOTED, SKEW_FATAL = 5.0, 300.0
"""Seconds between two clocks: worth a note; and enough to make signed requests to a bucket fail."""


@dataclass(frozen=True)
class ClusterProblem:
    """A problem of a cluster. A fatal problem would keep the study from running."""

    fatal: bool
    text: str


def preflight(name: str, cluster: Cluster, request: Request) -> list[ClusterProblem]:
    """All problems, the fatal ones first. Raises ClusterError if the cluster does not answer."""
    before = time.time()
    report = cluster.machine_report(name, request)
    if report is None:  # the machines start with the study, and the driver checks them
        return []
    return check_report(report, cluster, request.resources, (before, time.time()))


def check_report(
    report: Mapping[str, Any], cluster: Cluster, trial: Mapping[str, float], asked: tuple[float, float]
) -> list[ClusterProblem]:
    """The problems in a report of the cluster's machines, the fatal ones first.

    Parameters
    ----------
    report
        The answer of `machine_report.py`.
    trial
        Resources of one trial: cpu, gpu.
    asked
        Times of this machine before and after the report, in seconds since 1970.
    """
    nodes = report["nodes"]
    problems = [ClusterProblem(True, report["store"])] if report["store"] else []
    if not cluster.store:
        text = "the cluster has no store; write store: http://TRACKING-SERVER:5000 in its file"
        problems.append(ClusterProblem(True, text))
    if not cluster.storage and len(nodes) > 1:
        text = (
            "its machines share no storage; write storage: s3://BUCKET/PREFIX or a shared folder in its file"
        )
        problems.append(ClusterProblem(True, text))
    problems += _clock("the head", max(asked[0] - report["time"], report["time"] - asked[1], 0.0))
    problems += _versions("the head", report)
    for node in nodes:
        problems += _node(node, report)
    problems += _capacity(nodes, trial, cluster.grows)
    return sorted(problems, key=lambda problem: not problem.fatal)


def _node(node: Mapping[str, Any], head: Mapping[str, Any]) -> Iterator[ClusterProblem]:
    host = f"{node['address']}"
    if "problem" in node:
        text = f"{host} cannot run loopscale ({node['problem']}); take it out of the cluster or repair it"
        yield ClusterProblem(True, text)
        return
    if node["storage"]:
        yield ClusterProblem(True, f"{host} cannot write checkpoints: {node['storage']}")
    yield from _clock(host, node["skew"])
    if (node["python"], node["versions"]) != (head["python"], head["versions"]):
        yield from _versions(host, node)


def _clock(host: str, skew: float) -> Iterator[ClusterProblem]:
    if skew > SKEW_NOTED:
        text = f"the clock of {host} is {skew:.0f} s off; synchronise it, with chrony or ntp"
        yield ClusterProblem(skew > SKEW_FATAL, text)


def _versions(host: str, report: Mapping[str, Any]) -> Iterator[ClusterProblem]:
    """A missing or too old package is fatal. A version that differs from this machine's may change results."""
    own = versions(PACKAGES)
    for package, needed in _requirements().items():
        version = report["versions"].get(package)
        if version is None:
            yield ClusterProblem(True, f"{host} has no {package}; install {package}{needed} there")
        elif not needed.contains(Version(version), prereleases=True):
            yield ClusterProblem(True, f"{host} has {package} {version}; install {package}{needed} there")
        elif package in own and version != own[package]:
            text = f"{host} has {package} {version}, and this machine has {own[package]}; results may differ"
            yield ClusterProblem(False, text)


def _requirements() -> dict[str, SpecifierSet]:
    """The versions that loopscale requires, of the packages that a study depends on."""
    try:
        requirements = [Requirement(text) for text in requires("loopscale") or []]
    except PackageNotFoundError:
        return {}
    return {each.name: each.specifier for each in requirements if each.name in PACKAGES and not each.marker}


def _capacity(
    nodes: Sequence[Mapping[str, Any]], trial: Mapping[str, float], grows: bool
) -> Iterator[ClusterProblem]:
    """A problem if no present machine can hold a trial."""
    names = {"cpu": "CPU", "gpu": "GPU"}
    needed = {names[name]: amount for name, amount in trial.items() if name in names and amount}
    if any(
        all(node["resources"].get(name, 0) >= amount for name, amount in needed.items()) for node in nodes
    ):
        return
    largest = {name: max((node["resources"].get(name, 0) for node in nodes), default=0) for name in needed}
    asked, most = (
        " and ".join(f"{amount:g} {name}" for name, amount in amounts.items())
        for amounts in (needed, largest)
    )
    remedy = "it waits until the cluster grows" if grows else "ask for less under resources in the study"
    text = f"a trial needs {asked}, and no present machine has that; the most is {most}; {remedy}"
    yield ClusterProblem(not grows, text)
