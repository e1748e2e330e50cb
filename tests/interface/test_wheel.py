"""The wheel, in an environment of its own: the quickstart runs by name, outside of the checkout, with a plugin."""

import json
import os
import shutil
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SMALL = [
    *("--set", "training.steps=20", "--set", "training.eval_every=10", "--set", "scheduler.first_rung=10"),
    *("--set", "training.warmup=0"),
    *("--set", "search.trials=1", "--set", "replicates=2", "--set", "evaluate.prompts=64"),
    *("--set", "baselines=[gradient_descent, own_squares]"),
]


PLUGIN = """from loopscale.solvers.regression import LeastSquares


class OwnSquares(LeastSquares, kind="own_squares"):
    pass
"""


def build(kind: str, folder: Path) -> Path:
    """Build the package from a copy of the files that git knows, with the installed setuptools."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True)
    copy = folder / "checkout"
    for name in filter(None, listed.stdout.split("\0")):
        if name.startswith(("src/", "studies/")) or "/" not in name:
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, copy / name, follow_symlinks=False)
    code = f"from setuptools import build_meta; print(build_meta.build_{kind}({str(folder)!r}))"
    done = subprocess.run([sys.executable, "-c", code], cwd=copy, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder / done.stdout.split()[-1]


@pytest.mark.timeout(1800)  # a real study, on a machine with other work
def test_the_installed_wheel_runs_the_quickstart_outside_of_the_checkout(tmp_path: Path):
    wheel = build("wheel", tmp_path)
    shipped = {name for name in zipfile.ZipFile(wheel).namelist() if name.endswith(".yaml")}
    studies = {path.relative_to(ROOT).as_posix() for path in (ROOT / "studies").rglob("*.yaml")}
    assert {name.removeprefix("loopscale/shipped/") for name in shipped} == studies

    venv.create(tmp_path / "environment", with_pip=False, symlinks=True)
    python = tmp_path / "environment/bin/python"
    ask = [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
    purelib = subprocess.run(ask, capture_output=True, text=True, check=True).stdout.strip()
    # The dependencies are those of this environment. A .pth file below it, as of an editable install, is not read.
    folders = [path for path in sys.path if Path(path).name == "site-packages"]
    (Path(purelib) / "dependencies.pth").write_text("\n".join([*folders, ""]))
    install = [
        sys.executable,
        "-m",
        "pip",
        "--python",
        str(python),
        "install",
        "--no-deps",
        "--no-index",
        str(wheel),
    ]
    # With the checkout on PYTHONPATH pip would take the package for installed.
    alone = {name: text for name, text in os.environ.items() if name != "PYTHONPATH"}
    subprocess.run(install, check=True, capture_output=True, env=alone)

    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "own_squares.py").write_text(PLUGIN)
    environment = {
        name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "LOOPSCALE_STORE")
    } | {"LOOPSCALE_PLUGINS": "own_squares.py"}
    where = [python, "-c", "import loopscale; print(loopscale.__file__)"]
    found = subprocess.run(where, cwd=outside, env=environment, capture_output=True, text=True, check=True)
    assert Path(found.stdout.strip()).is_relative_to(purelib)
    program = tmp_path / "environment/bin/loopscale"
    command = [program, "run", "quickstart", "--workers", "1", "--json", *SMALL]
    done = subprocess.run(command, cwd=outside, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    assert answer["outcomes"] == {"finished": 9}
    assert Path(answer["report"]).is_file()
    listed = subprocess.run(
        [program, "list"], cwd=outside, env=environment, capture_output=True, text=True, check=True
    )
    assert "quickstart" in listed.stdout
    sql = 'SELECT "solver.plugin" AS plugin FROM trials WHERE "solver.kind" = \'own_squares\''
    asked = subprocess.run(
        [program, "query", sql, "--json"],
        cwd=outside,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert [row["plugin"].split()[0] for row in json.loads(asked.stdout)] == ["own_squares.py"]


@pytest.mark.slow
def test_the_source_distribution_holds_the_package_and_its_studies(tmp_path: Path):
    archive = build("sdist", tmp_path)
    unpacked = tmp_path / "unpacked"
    shutil.unpack_archive(archive, unpacked, filter="data")
    (root,) = unpacked.iterdir()
    shipped = {
        path.relative_to(root / "src/loopscale/shipped").as_posix()
        for path in root.rglob("shipped/**/*.yaml")
    }
    assert shipped == {path.relative_to(ROOT).as_posix() for path in (ROOT / "studies").rglob("*.yaml")}
    assert (root / "src/loopscale/__init__.pyi").is_file()
