"""Wheel and source distribution, each in an empty environment: the quickstart runs by name, outside of the checkout."""

import json
import os
import shutil
import subprocess
import sys
import venv
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


def shipped_studies() -> set[str]:
    return {path.relative_to(ROOT).as_posix() for path in (ROOT / "studies").rglob("*.yaml")}


def install(archive: Path, folder: Path) -> tuple[Path, Path]:
    """Install an archive into an empty environment. Returns the folder of its packages, and its `loopscale`."""
    venv.create(folder, with_pip=False, symlinks=True)
    python = folder / "bin/python"
    ask = [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
    purelib = subprocess.run(ask, capture_output=True, text=True, check=True).stdout.strip()
    # The dependencies are those of this environment. A .pth file below it, as of an editable install, is not read.
    folders = [path for path in sys.path if Path(path).name == "site-packages"]
    (Path(purelib) / "dependencies.pth").write_text("\n".join([*folders, ""]))
    command = [sys.executable, "-m", "pip", "--python", str(python), "install"]
    command += ["--no-deps", "--no-index", "--no-build-isolation", str(archive)]
    # With the checkout on PYTHONPATH pip would take the package for installed.
    alone = {name: text for name, text in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(command, capture_output=True, text=True, env=alone)
    assert done.returncode == 0, done.stderr
    return Path(purelib), folder / "bin/loopscale"


def shipped_by(purelib: Path) -> set[str]:
    shipped = purelib / "loopscale/shipped"
    return {path.relative_to(shipped).as_posix() for path in shipped.rglob("*.yaml")}


@pytest.mark.slow
def test_an_installed_wheel_finds_its_studies(tmp_path: Path):
    purelib, program = install(build("wheel", tmp_path), tmp_path / "environment")
    assert shipped_by(purelib) == shipped_studies()
    alone = {name: text for name, text in os.environ.items() if name != "PYTHONPATH"}
    shown = subprocess.run(
        [program, "show", "study"], cwd=tmp_path, env=alone, capture_output=True, text=True
    )
    assert " seeds" in shown.stdout, shown.stderr


@pytest.mark.slow
@pytest.mark.timeout(1800)  # a real study, on a machine with other work
@pytest.mark.parametrize("kind", ["wheel", "sdist"])
def test_an_installed_archive_runs_the_quickstart_outside_of_the_checkout(tmp_path: Path, kind: str):
    purelib, program = install(build(kind, tmp_path), tmp_path / "environment")
    assert shipped_by(purelib) == shipped_studies()

    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "own_squares.py").write_text(PLUGIN)
    kept = {name: text for name, text in os.environ.items() if name not in ("PYTHONPATH", "LOOPSCALE_STORE")}
    environment = kept | {"LOOPSCALE_PLUGINS": "own_squares.py"}

    def ask(*words: str | Path) -> str:
        done = subprocess.run(words, cwd=outside, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    found = ask(program.with_name("python"), "-c", "import loopscale; print(loopscale.__file__)")
    assert Path(found.strip()).is_relative_to(purelib)
    answer = json.loads(ask(program, "run", "quickstart", "--workers", "1", "--json", *SMALL))
    assert answer["outcomes"] == {"finished": 9}
    assert Path(answer["report"]).is_file()
    assert "quickstart" in ask(program, "list")
    sql = 'SELECT "solver.plugin" AS plugin FROM trials WHERE "solver.kind" = \'own_squares\''
    assert [row["plugin"].split()[0] for row in json.loads(ask(program, "query", sql, "--json"))] == [
        "own_squares.py"
    ]
    page = json.loads(ask(program, "report", "quickstart", "--out", "page.html", "--json"))["file"]
    assert "own_squares" in (outside / page).read_text()
    assert " seeds" in ask(program, "show", "study")
    ask(program, "new", "solver", "my_solver")
    ask(program, "check", "my_solver.py", "-k", "float64")


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
    assert shipped == shipped_studies()
    assert (root / "src/loopscale/__init__.pyi").is_file()
