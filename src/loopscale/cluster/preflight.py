"""Problems of a cluster that are found before a study is queued there."""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, requires
from typing import Any

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.version import Version

from loopscale.cluster.base import Cluster, ClusterError, ClusterProblem, HostGroup, Request
from loopscale.runner.machine import PACKAGES, versions

SKEW_NOTED, SKEW_FATAL = 5.0, 300.0
"""Seconds between two clocks: worth a note; and enough to make signed requests to a bucket fail."""


def preflight(name: str, cluster: Cluster, request: Request) -> list[ClusterProblem]:
    """All problems, the fatal ones first. Raises ClusterError if the cluster does not answer."""
    problems = cluster.queue_problems(name, request)
    before = time.time()
    report = cluster.machine_report(name, request)
    if report is None:  # the machines start with the study, and its job checks them in its first minute
        remarks = remarks_on_hosts(name, cluster, request.resources)
        problems += [ClusterProblem(False, text) for text in remarks]
    else:
        problems += check_report(
            report,
            request.resources,
            (before, time.time()),
            store=cluster.store,
            storage=cluster.storage,
            grows=cluster.grows,
        )
    return fatal_first(problems)


def fatal_first(problems: Sequence[ClusterProblem]) -> list[ClusterProblem]:
    return sorted(problems, key=lambda problem: not problem.fatal)


def known_hosts(
    name: str, cluster: Cluster, trial: Mapping[str, float]
) -> tuple[tuple[HostGroup, ...], list[str]]:
    """The hosts of a cluster, and remarks on them for a plan."""
    try:
        hosts, reason = cluster.hosts(name, trial), f"nothing tells the hosts of {name}"
    except ClusterError as problem:
        hosts, reason = (), str(problem).partition("; ")[0]
    if hosts:
        return hosts, list(host_remarks(name, hosts, trial))
    if cluster.workers:
        return (), []
    count = "the plan counts one trial at a time; give --workers, or write workers: in the cluster's file"
    return (), [f"{reason}: {count}"]


def remarks_on_hosts(name: str, cluster: Cluster, trial: Mapping[str, float]) -> list[str]:
    """Remarks on the hosts of a cluster; none if its hosts are unknown here."""
    try:
        return list(host_remarks(name, cluster.hosts(name, trial), trial))
    except ClusterError:
        return []


def host_remarks(name: str, hosts: Sequence[HostGroup], trial: Mapping[str, float]) -> Iterator[str]:
    """One sentence if the study and the hosts disagree on GPUs, or if no host holds a trial."""
    asked = trial.get("gpu", 0.0)
    most = max((group.gpus for group in hosts), default=0.0)
    if asked and not most:
        yield (
            f"a trial asks for {asked:g} GPU, and the hosts of {name} have none; "
            f"take a cluster with GPUs, or --set resources.gpu=0"
        )
    elif most and not asked:
        yield (
            f"the study asks for no GPU, and a host of {name} has {most:g}: its GPUs idle; "
            f"set resources.gpu in the study, or take a cluster without GPUs"
        )
    elif hosts and not any(group.slots for group in hosts):
        yield f"no host of {name} holds a trial ({_amounts(trial)}); make its hosts larger, or ask for less"


def _amounts(trial: Mapping[str, float]) -> str:
    names = {"cpu": "CPU", "gpu": "GPU", "memory": "GiB"}
    return ", ".join(f"{amount:g} {names[name]}" for name, amount in trial.items() if amount)


@dataclass(frozen=True)
class Submitter:
    """The machine that submits the study. The results of other versions than its own may differ."""

    name: str
    versions: Mapping[str, str]


def check_report(
    report: Mapping[str, Any],
    trial: Mapping[str, float],
    asked: tuple[float, float],
    *,
    store: str | None,
    storage: str | None,
    grows: bool,
    submitter: Submitter | None = None,
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
    store, storage, grows
        The settings of the cluster.
    submitter
        The machine that submits; by default this machine.
    """
    nodes = report["nodes"]
    problems = [ClusterProblem(True, report["store"])] if report["store"] else []
    if not store:
        text = "the cluster has no store; write store: http://TRACKING-SERVER:5000 in its file"
        problems.append(ClusterProblem(True, text))
    if not storage and len(nodes) > 1:
        text = (
            "its machines share no storage; write storage: s3://BUCKET/PREFIX or a shared folder in its file"
        )
        problems.append(ClusterProblem(True, text))
    problems += _clock("the head", max(asked[0] - report["time"], report["time"] - asked[1], 0.0))
    problems += _versions("the head", report, submitter)
    for node in nodes:
        problems += _node(node, report, submitter)
    problems += _capacity(nodes, trial, grows)
    problems += _without_cuda(nodes, trial)
    most = max((node["resources"].get("GPU", 0.0) for node in nodes), default=0.0)
    if most and not trial.get("gpu"):
        text = f"the study asks for no GPU, and a machine of the cluster has {most:g}; set resources.gpu in the study"
        problems.append(ClusterProblem(False, text))
    return fatal_first(problems)


def check_machine(
    host: str, report: Mapping[str, Any], submitter: Submitter | None = None
) -> list[ClusterProblem]:
    """The problems of one machine that has reported on itself: its storage and its versions."""
    problems = list(_versions(host, report, submitter))
    if report["storage"]:
        problems.append(ClusterProblem(True, f"{host} cannot write checkpoints: {report['storage']}"))
    return fatal_first(problems)


def _node(
    node: Mapping[str, Any], head: Mapping[str, Any], submitter: Submitter | None
) -> Iterator[ClusterProblem]:
    host = f"{node['address']}"
    if "problem" in node:
        text = f"{host} cannot run loopscale ({node['problem']}); take it out of the cluster or repair it"
        yield ClusterProblem(True, text)
        return
    if node["storage"]:
        yield ClusterProblem(True, f"{host} cannot write checkpoints: {node['storage']}")
    yield from _clock(host, node["skew"])
    if (node["python"], node["versions"]) != (head["python"], head["versions"]):
        yield from _versions(host, node, submitter)


def _clock(host: str, skew: float) -> Iterator[ClusterProblem]:
    if skew > SKEW_NOTED:
        text = f"the clock of {host} is {skew:.0f} s off; synchronise it, with chrony or ntp"
        yield ClusterProblem(skew > SKEW_FATAL, text)


def _versions(host: str, report: Mapping[str, Any], submitter: Submitter | None) -> Iterator[ClusterProblem]:
    """A missing or too old package is fatal. A version that differs from the submitter's may change results."""
    known = submitter or Submitter("this machine", versions(PACKAGES))
    own = known.versions
    for package, needed in _requirements().items():
        version = report["versions"].get(package)
        if version is None:
            yield ClusterProblem(True, f"{host} has no {package}; install {package}{needed} there")
        elif not needed.contains(Version(version), prereleases=True):
            yield ClusterProblem(True, f"{host} has {package} {version}; install {package}{needed} there")
        elif package in own and version != own[package]:
            text = f"{host} has {package} {version}, and {known.name} has {own[package]}; results may differ"
            yield ClusterProblem(False, text)


def _requirements() -> dict[str, SpecifierSet]:
    """The versions that loopscale requires, of the packages that a study depends on."""
    try:
        requirements = [Requirement(text) for text in requires("loopscale") or []]
    except PackageNotFoundError:
        return {}
    return {each.name: each.specifier for each in requirements if each.name in PACKAGES and not each.marker}


def _without_cuda(nodes: Sequence[Mapping[str, Any]], trial: Mapping[str, float]) -> Iterator[ClusterProblem]:
    """A problem for each machine with a GPU whose torch cannot use a GPU. PyTorch marks such builds by +cpu."""
    for node in nodes:
        version = node.get("versions", {}).get("torch", "")
        if trial.get("gpu") and node["resources"].get("GPU") and version.endswith("+cpu"):
            what = f"{node['address']} has torch {version}, which is built without CUDA"
            yield ClusterProblem(True, f"{what}; install a build with CUDA there")


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
