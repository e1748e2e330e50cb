"""The dependencies of pyproject.toml are the packages that src/loopscale imports."""

import ast
import sys
import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
SRC = ROOT / "src" / "loopscale"
WITHOUT_DECLARATION = {
    "IPython": "a notebook has the package, and without a notebook nothing imports the package",
    "polib": "the extra `translation` declares the package, and `loopscale corpus` names the extra",
    "pytest": "the extra `check` declares the package, and `loopscale check` names the extra",
    "sacrebleu": "the extra `translation` declares the package, and `loopscale.corpora.scores` names the extra",
    "tokenizers": "the extra `translation` declares the package, and `loopscale.corpora.subwords` names the extra",
}
"""Package -> the reason why no dependency declares the package."""


def imported_packages(tree: ast.Module) -> Iterator[str]:
    """The first names of the modules that a file imports, also by `Deferred("module")` and `import_module`."""
    for node in ast.walk(tree):
        match node:
            case ast.Import(names=names):
                yield from (name.name.partition(".")[0] for name in names)
            case ast.ImportFrom(module=str(module), level=0):
                yield module.partition(".")[0]
            case ast.Call(
                func=ast.Name(id="Deferred" | "import_module"), args=[ast.Constant(str(module)), *_]
            ):
                yield module.partition(".")[0]


@cache
def imports_of(room: Path) -> dict[str, set[str]]:
    """Third-party package -> the files that import the package."""
    found = dict[str, set[str]]()
    for file in sorted(room.rglob("*.py")):
        for name in imported_packages(ast.parse(file.read_text(encoding="utf-8"))):
            if name not in sys.stdlib_module_names and name != "loopscale":
                found.setdefault(name, set()).add(file.relative_to(room).as_posix())
    return found


@cache
def dependencies() -> frozenset[str]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return frozenset(canonicalize_name(Requirement(each).name) for each in project["dependencies"])


@cache
def distributions(package: str) -> frozenset[str]:
    """The distributions that install a package. A namespace such as `google` has several."""
    return frozenset(map(canonicalize_name, installed().get(package, ())))


@cache
def installed() -> Mapping[str, list[str]]:
    """Package -> its distributions. The list takes seconds, because every installed file is looked at."""
    return packages_distributions()


def undeclared(imports: dict[str, set[str]], declared: frozenset[str]) -> list[str]:
    return [
        f"{', '.join(sorted(files))}: imports {name}; add {name} to the dependencies in pyproject.toml"
        for name, files in imports.items()
        if name not in WITHOUT_DECLARATION and not distributions(name) & declared
    ]


def test_every_import_has_a_declared_dependency():
    assert undeclared(imports_of(SRC), dependencies()) == []


def test_every_declared_dependency_is_imported():
    used = {each for name in imports_of(SRC) for each in distributions(name)}
    assert dependencies() - used == set()


def test_an_exception_is_an_import_that_no_dependency_declares():
    for name in WITHOUT_DECLARATION:
        assert name in imports_of(SRC)
        assert not distributions(name) & dependencies()


@pytest.mark.parametrize(
    "line",
    [
        "import yaml.nodes",
        "from yaml import nodes",
        'x = Deferred("yaml.nodes")',
        "def f():\n    import yaml",
    ],
)
def test_an_import_without_a_dependency_is_named_with_its_file(tmp_path: Path, line: str):
    (tmp_path / "reader.py").write_text(f"import os\nfrom . import a\nfrom loopscale import b\n{line}\n")
    assert undeclared(imports_of(tmp_path), frozenset({"pyyaml"})) == []
    assert undeclared(imports_of(tmp_path), frozenset({"numpy"})) == [
        "reader.py: imports yaml; add yaml to the dependencies in pyproject.toml"
    ]
