"""Where a study's results come from: the commit, the versions, the machine."""

import json
import platform
import subprocess
import sys
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from loopscale.runner.machine.hardware import gpus, machine

PACKAGES = ("loopscale", "torch", "ray", "optuna", "mlflow", "numpy", "pandas")
COMMIT = ("git_commit", "git_changed")
"""Tags that the parent run and every trial have: from which commit, and whether files were changed since."""
ORIGIN = "origin.json"
"""Beside `studies/` in a package that was sent to a cluster, where there is no repository: tags of its making."""


def provenance(folder: Path) -> dict[str, str]:
    """Tags for a study's parent run; `folder` is where the study file lies. What is not to be had is left out."""
    tags = {f"version.{name}": found for name, found in versions(PACKAGES).items()}
    tags |= {"version.python": platform.python_version(), "platform": platform.platform()}
    tags |= {"command": " ".join(sys.argv)[:500], "hardware": machine()}
    tags |= {"gpus": found} if (found := gpus()) else {}
    if sent := _origin(folder):
        return tags | sent
    if commit := _git(folder, "rev-parse", "HEAD"):
        changed = _git(folder, "status", "--porcelain", "--untracked-files=no")
        tags |= {"git_commit": commit, "git_changed": "yes" if changed else "no"}
    return tags


def versions(packages: Iterable[str]) -> dict[str, str]:
    """The installed versions, of those that are."""
    found = {}
    for name in packages:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def _origin(folder: Path) -> dict[str, str]:
    """What the package says of itself, if the study came in one."""
    for above in (folder.absolute(), *folder.absolute().parents):
        if above.name == "studies" and (file := above.parent / ORIGIN).is_file():
            return {str(name): str(value) for name, value in json.loads(file.read_text()).items()}
    return {}


def _git(folder: Path, *words: str) -> str:
    try:
        done = subprocess.run(["git", "-C", folder, *words], capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
