"""Provenance of a study's results: git commit, package versions, and hardware."""

import json
import os
import platform
import subprocess
import sys
from collections.abc import Iterable
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

PACKAGES = ("loopscale", "torch", "ray", "optuna", "mlflow", "numpy", "pandas")
COMMIT_TAGS = ("git_commit", "git_changed")
"""Tags of the parent run and of every trial: the commit, and whether tracked files differ from the commit."""
ORIGIN = "origin.json"
"""File beside `studies/` in a package for a cluster, where no repository exists: provenance tags of the package."""


def provenance_tags(folder: Path) -> dict[str, str]:
    """Tags for the parent run of a study whose file lies in `folder`. Unknown values are left out."""
    tags = {f"version.{name}": number for name, number in versions(PACKAGES).items()}
    tags |= {"version.python": platform.python_version(), "platform": platform.platform()}
    tags |= {"command": " ".join(sys.argv)[:500], "hardware": describe_machine()}
    if gpus := _describe_gpus():
        tags["gpus"] = gpus
    if origin := _origin_tags(folder):
        return tags | origin
    if commit := _git(folder, "rev-parse", "HEAD"):
        changed = _git(folder, "status", "--porcelain", "--untracked-files=no")
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
    parts = [_processor(), f"{os.cpu_count() or 1} threads", _memory()]
    return ", ".join(part for part in parts if part)


def training_hardware(gpu: bool) -> str:
    """Hardware that a trial of this process trains on: the worker's GPU, else the machine."""
    import torch  # slow to import, and a machine that only submits a study needs no torch

    if gpu and torch.cuda.is_available():
        return torch.cuda.get_device_name(torch.cuda.current_device())
    return describe_machine()


@cache
def _describe_gpus() -> str:
    """GPUs that torch sees, with the number of each model. Empty without a GPU."""
    import torch  # slow, as above

    if not torch.cuda.is_available():
        return ""
    names = [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())]
    return ", ".join(f"{names.count(name)} x {name}" for name in dict.fromkeys(names))


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())


def _memory() -> str:
    try:
        size = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (ValueError, OSError):
        return ""
    return f"{size / 2**30:.0f} GiB"


def _origin_tags(folder: Path) -> dict[str, str]:
    """Provenance tags of the package that contains the study; empty outside a package."""
    for parent in (folder.absolute(), *folder.absolute().parents):
        if parent.name == "studies" and (file := parent.parent / ORIGIN).is_file():
            return {str(name): str(value) for name, value in json.loads(file.read_text()).items()}
    return {}


def _git(folder: Path, *words: str) -> str:
    try:
        done = subprocess.run(["git", "-C", folder, *words], capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
