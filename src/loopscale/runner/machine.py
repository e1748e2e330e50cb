"""The machine of a study: provenance of its results, and the resources of its trials.

Ray waits without a message for resources that never come, so the resources are checked before Ray starts.
"""

import json
import os
import platform
import resource
import socket
import subprocess
import sys
from collections.abc import Iterable
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import torch

from loopscale.core.machine_share import main_memory, trials_per_machine, usable_cpus, usable_memory
from loopscale.errors import ClusterError, ResourcesError
from loopscale.models import linear
from loopscale.redaction import redacted_command
from loopscale.studies.schema import Resources

PACKAGES = ("loopscale", "torch", "ray", "optuna", "mlflow", "numpy", "pandas")
COMMIT_TAGS = ("git_commit", "git_changed")
"""Tags of the parent run and of every trial: the commit, and whether tracked files differ from the commit."""
ORIGIN = "origin.json"
"""File beside `studies/` in a package for a cluster, where no repository exists: provenance tags of the package."""
CONNECT_SECONDS = 5.0
"""Time for a connection to a cluster. A host that is off never answers."""
OBJECT_STORE_BYTES = 128 * 2**20
"""Size of a private Ray's object store, a file. Orders and reports are small; no data of a trial pass through Ray."""
LEAST_ADDRESS_BYTES = 4 * 2**30
"""Addresses of memory that a process of Ray needs: with 3.4 GiB its threads do not start, with 3.8 they do."""
PROCESS_LIMITS = {
    "v": (resource.RLIMIT_AS, LEAST_ADDRESS_BYTES, "processes of at most"),
    "f": (resource.RLIMIT_FSIZE, OBJECT_STORE_BYTES, "files of at most"),
}
"""Limits by their letter for `ulimit`, with the bytes that Ray needs. Below them Ray dies without a message."""
OUT_OF_MEMORY_TEXTS = ("can't allocate memory", "not enough memory", "bad_alloc", "Cannot allocate memory")
"""Texts of out-of-memory errors of torch and its libraries that have no exception type of their own."""


def provenance_tags(folder: Path) -> dict[str, str]:
    """Tags for the parent run of a study whose file lies in `folder`. Unknown values are left out."""
    tags = {f"version.{name}": number for name, number in versions(PACKAGES).items()}
    tags |= {"version.python": platform.python_version(), "platform": platform.platform()}
    tags |= {"command": redacted_command(sys.argv)[:500], "hardware": describe_machine()}
    if gpus := _describe_gpus():
        tags["gpus"] = gpus
    if origin := _origin_tags(folder):
        return tags | origin
    if commit := git(folder, "rev-parse", "HEAD").strip():
        changed = git(folder, "status", "--porcelain", "--untracked-files=no")
        tags |= {"git_commit": commit, "git_changed": "yes" if changed else "no"}
    return tags


def versions(packages: Iterable[str]) -> dict[str, str]:
    """Versions of the packages that are installed."""
    numbers = {}
    for name in packages:
        try:
            numbers[name] = version(name)
        except PackageNotFoundError:
            continue
    return numbers


@cache
def describe_machine() -> str:
    """Processor, number of threads, and main memory. Unknown parts are left out."""
    memory = main_memory()
    parts = [processor(), f"{os.cpu_count() or 1} threads", f"{memory:.0f} GiB" if memory else ""]
    return ", ".join(part for part in parts if part)


def training_hardware(gpu: bool) -> str:
    """Hardware that a trial of this process trains on: the worker's GPU, else the machine and the library of products.

    Records of earlier versions do not name the library.
    """
    if gpu and torch.cuda.is_available():
        return torch.cuda.get_device_name(torch.cuda.current_device())
    return f"{describe_machine()}, products by {linear.used()}"


@cache
def _describe_gpus() -> str:
    """GPUs that torch sees, with the number of each model. Empty without a GPU."""
    if not torch.cuda.is_available():
        return ""
    names = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
    return ", ".join(f"{names.count(name)} x {name}" for name in dict.fromkeys(names))


def processor() -> str:
    """Model name of the processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())


def _origin_tags(folder: Path) -> dict[str, str]:
    """Provenance tags of the package that contains the study; empty outside a package."""
    for parent in (folder.absolute(), *folder.absolute().parents):
        if parent.name == "studies" and (file := parent.parent / ORIGIN).is_file():
            return {str(name): str(value) for name, value in json.loads(file.read_text()).items()}
    return {}


def git(folder: Path, *words: str) -> str:
    """The output of git; empty if git is not installed, hangs or fails."""
    try:
        done = subprocess.run(["git", "-C", folder, *words], capture_output=True, text=True, timeout=30)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout if done.returncode == 0 else ""


def require_resources(resources: Resources, address: str | None) -> None:
    """Raises ResourcesError if this machine lacks the resources of one trial. A cluster may grow and passes.

    Raises ClusterError if nobody answers at the address of a cluster.
    """
    if address:
        _check_address(address)
        return
    for letter, (limit, needed, what) in PROCESS_LIMITS.items():
        if 0 <= (allowed := resource.getrlimit(limit)[0]) < needed:
            raise ResourcesError(
                f"this shell allows {what} {allowed // 2**10:,} KiB, and Ray needs {needed // 2**10:,}; "
                f"raise the limit, for example `ulimit -{letter} unlimited`"
            )
    cpus, gpus = max(1.0, usable_cpus()), torch.cuda.device_count()
    if resources.gpu > gpus:
        raise ResourcesError(
            f"a trial needs {resources.gpu:g} GPU and this machine has {gpus or 'none'}; "
            "give the --address of a cluster with GPUs, or train on the CPU with --set resources.gpu=0"
        )
    if resources.cpu > cpus:
        raise ResourcesError(
            f"a trial needs {resources.cpu:g} CPUs and this process may use {cpus:g}; "
            f"give the --address of a larger cluster, or --set resources.cpu={cpus:g}"
        )
    memory = usable_memory()
    if resources.memory and memory and resources.memory > memory:
        raise ResourcesError(
            f"a trial needs {resources.memory:g} GiB of memory and this process may use {memory:.3g}; "
            f"give the --address of a larger cluster, or a smaller resources.memory"
        )


def _check_address(address: str) -> None:
    """Raises ClusterError if no program listens at `HOST:PORT`. Ray itself would ask for minutes."""
    host, colon, port = address.removeprefix("ray://").rpartition(":")
    if not colon:  # auto and local, which Ray answers at once
        return
    remedy = "start the cluster, or give --address the HOST:PORT that `ray start` has printed"
    if not (port.isascii() and port.isdecimal() and 0 < int(port) < 65536 and host):
        raise ClusterError(f"{address} is no address of a Ray cluster", remedy)
    try:
        socket.create_connection((host.strip("[]"), int(port)), CONNECT_SECONDS).close()
    except (OSError, UnicodeError) as problem:
        reason = getattr(problem, "strerror", None) or str(problem)
        raise ClusterError(f"no Ray cluster answers at {address} ({reason.lower()})", remedy) from problem


def local_workers(resources: Resources) -> int:
    """Number of trials that fit on the CPUs and GPUs that this process may use, and in its memory; at least 1."""
    memory = usable_memory() or None
    return max(1, trials_per_machine(resources.amounts, usable_cpus(), torch.cuda.device_count(), memory))


def is_out_of_memory(error: Exception) -> bool:
    """Whether the error says that main memory or GPU memory is full."""
    return isinstance(error, MemoryError | torch.OutOfMemoryError) or any(
        text in str(error) for text in OUT_OF_MEMORY_TEXTS
    )


def count_memory_kills() -> int:
    """Number of processes that this machine's kernel has killed for lack of memory since it started."""
    try:
        lines = Path("/proc/vmstat").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), 0)
