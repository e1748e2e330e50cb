"""Where a study's results come from: the commit, the versions, the machine."""

import platform
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

PACKAGES = ("loopscale", "torch", "ray", "optuna", "mlflow", "numpy", "pandas")


def provenance(folder: Path) -> dict[str, str]:
    """Tags for a study's parent run; `folder` is where the study file lies. What is not to be had is left out."""
    tags = {f"version.{name}": found for name in PACKAGES if (found := _version(name))}
    tags |= {"version.python": platform.python_version(), "platform": platform.platform()}
    tags |= {"command": " ".join(sys.argv)[:500]}
    if commit := _git(folder, "rev-parse", "HEAD"):
        changed = _git(folder, "status", "--porcelain", "--untracked-files=no")
        tags |= {"git_commit": commit, "git_changed": "yes" if changed else "no"}
    return tags


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


def _git(folder: Path, *words: str) -> str:
    try:
        done = subprocess.run(["git", "-C", folder, *words], capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
