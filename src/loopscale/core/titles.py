"""Readers' names of members: the table of kinds and titles.

A member declares its title beside its kind:

    class Gpt2(LayeredArchitecture, kind="gpt2", titled="GPT-2"): ...

Without a title, the kind with spaces is the name. The titles of the package are read from its source texts, because a
reader of records needs names and no torch. Titles of plugins are known after their import.
"""

import re
from functools import cache
from pathlib import Path

FOLDERS = {
    "models": "loopscale.models",
    "tasks": "loopscale.tasks",
    "optimizers": "loopscale.optimizers",
    "solvers": "loopscale.solvers",
    "theory/bounds": "loopscale.theory.bounds",
}
"""The packages of the families that have titles, by their folders."""
PACKAGE_OF_BOUNDS = "loopscale.theory.bounds"
DECLARED = re.compile(r"""\bkind=["'](\w+)["'][^()]*?\btitled="([^"]+)\"""")

_declared: dict[tuple[str, str], str] = {}
"""Titles of imported members, by package and kind."""


def declare_title(package: str, kind: str, title: str) -> None:
    """Record the title of a member at its definition."""
    if _declared.get((package, kind)) != title:
        _declared[package, kind] = title
        _pattern.cache_clear()


def titles(package: str) -> dict[str, str]:
    """The declared titles of a family, by kind. Members without a title are absent."""
    later = {kind: title for (owner, kind), title in _declared.items() if owner == package}
    return _titles_of_package().get(package, {}) | later


def bound_name(kind: str | None) -> str:
    """The name of a bound for readers; empty without a bound."""
    return titles(PACKAGE_OF_BOUNDS).get(kind, kind.replace("_", " ")) if kind else ""


def readable(text: str) -> str:
    """A label of a cell or an algorithm with the titles of its kinds: `AlgoFormer, loops=4`.

    The name of a setting, which stands before `=`, is never replaced.
    """
    names = _names()
    return _pattern().sub(lambda found: names[found[0]], text) if names else text


def _names() -> dict[str, str]:
    """The titles of everything that stands in labels, by kind. An algorithm's kind may have spaces for `_`."""
    known = {
        kind: title
        for package in FOLDERS.values()
        if package != PACKAGE_OF_BOUNDS
        for kind, title in titles(package).items()
    }
    return known | {kind.replace("_", " "): title for kind, title in known.items()}


@cache
def _pattern() -> re.Pattern[str]:
    longest_first = sorted(_names(), key=len, reverse=True)
    kinds = "|".join(map(re.escape, longest_first))
    return re.compile(rf"(?<![\w./-])(?:{kinds})(?![\w./-]|\s*=|')")


@cache
def _titles_of_package() -> dict[str, dict[str, str]]:
    root = Path(__file__).parents[1]
    return {
        package: {
            kind: title
            for file in sorted((root / folder).glob("*.py"))
            for kind, title in DECLARED.findall(file.read_text(encoding="utf-8"))
        }
        for folder, package in FOLDERS.items()
    }


def plural(number: int, noun: str) -> str:
    """`1 trial`, `2 trials`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"
