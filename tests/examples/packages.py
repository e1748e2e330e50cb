"""The example package, installed by pip into a folder of its own."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import loopscale

EXAMPLE = Path(__file__).parents[2] / "examples" / "loopscale_fourier"
SOURCES = Path(loopscale.__file__).parents[1]


def install(folder: Path) -> Path:
    """Install the example into `folder`, from a copy, because pip builds inside the sources. Returns the folder."""
    return _install(folder, EXAMPLE, EXAMPLE.iterdir())


def install_loopscale(folder: Path) -> Path:
    """Install loopscale itself into `folder`, as a package without its checkout. Returns the folder."""
    root = SOURCES.parent
    return _install(folder, root, [root / name for name in ("src", "pyproject.toml", "README.md", "LICENSE")])


def _install(folder: Path, root: Path, parts: Iterable[Path]) -> Path:
    copy, target = folder / "copy", folder / "installed"
    for part in parts:
        place = copy / part.relative_to(root)
        if part.is_dir():
            shutil.copytree(part, place, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
        else:
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(part, place)
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation"]
    command += ["--disable-pip-version-check", "--no-index", "--target", str(target), str(copy)]
    subprocess.run(command, check=True, env=os.environ | {"PIP_ROOT_USER_ACTION": "ignore"})
    shutil.rmtree(copy)
    return target


def python_path(*folders: Path) -> str:
    """PYTHONPATH with these folders, then with loopscale."""
    return os.pathsep.join(map(str, (*folders, SOURCES)))
