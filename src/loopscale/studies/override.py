"""Small changes to a study from the command line: `--set replicates=1`, `--set training.steps=100`."""

import copy
from collections.abc import Mapping
from typing import Any

from loopscale.core.visible import UNSEEN
from loopscale.studies.mistakes import Mistake, Mistakes, Place, one_of, shown
from loopscale.studies.settings import PARTS
from loopscale.studies.source import Source, text_source

LONGEST_PATH = 200
LONG = 7
"""Digits of a number that is no position in any list."""
ROLES = ("scientific", "nuisance")


def overridden(source: Source, overrides: Mapping[str, str]) -> Source:
    """The source with values put at dotted paths: a study's own, or a trial's, which are those under `fixed`.

    A value is YAML. Raises Mistakes, that name the `--set`.
    """
    tree = copy.deepcopy(source.tree)
    changed = Source(tree, source.file, source.text, dict(source.lines), dict(source.overrides))
    for path, text in overrides.items():
        said = f"{path}={text}"
        if len(path) > LONGEST_PATH or UNSEEN.search(path):
            what, remedy = f"{shown(path)} names no setting", "write a dotted path, as in training.steps"
            raise Mistakes([Mistake(f"--set {shown(path)}", None, what, remedy)])
        value = value_of(text, said)
        place = _place(tree, path, said)
        _put(tree, place, value, said)
        changed.overrides[place] = said
    return changed


def value_of(text: str, said: str) -> Any:
    """The value of an assignment, `said` in full. Raises Mistakes."""
    try:
        tree = text_source(f"value: {text}", f"--set {said}").tree
    except Mistakes as problem:
        raise Mistakes(
            Mistake(f"--set {said}", None, m.what, "write the value as YAML") for m in problem.items
        ) from None
    if len(tree) > 1:
        what = "more than one setting is given"
        raise Mistakes([Mistake(f"--set {said}", None, what, "write a --set for each")])
    return tree["value"]


def _place(tree: Mapping[str, Any], path: str, said: str) -> Place:
    steps = path.split(".")
    if steps[0] in PARTS:
        for role in ROLES:
            if path in (tree.get(role) or {}):
                what = f"{path} is {role} in this study, not fixed"
                raise Mistakes([Mistake(f"--set {said}", None, what, f"write --set {role}.{path}=...")])
        return ("fixed", *steps)
    if steps[0] in ROLES and len(steps) > 1:
        axes = tree.get(steps[0])
        for n in range(len(steps), 1, -1):
            if isinstance(axes, Mapping) and ".".join(steps[1:n]) in axes:
                return (steps[0], ".".join(steps[1:n]), *map(_step, steps[n:]))
        return (steps[0], ".".join(steps[1:]))
    return tuple(map(_step, steps))


def _step(text: str) -> str | int:
    """A name, or a position in a list."""
    return int(text) if text.isdecimal() and len(text) < LONG else text


def _put(root: dict[str, Any], place: Place, value: Any, said: str) -> None:
    tree: Any = root
    for n, step in enumerate(place):
        last = n == len(place) - 1
        if isinstance(tree, dict):
            if last:
                tree[step] = value
            elif tree.get(step) is None:
                tree[step] = {}
        elif isinstance(tree, list) and isinstance(step, int) and step < len(tree):
            if last:
                tree[step] = value
        else:
            what = f"there is no {'.'.join(map(str, place[: n + 1]))} to set"
            valid = range(len(tree)) if isinstance(tree, list) else ()
            remedy = one_of(step, valid) if valid else f"set {'.'.join(map(str, place[:n]))} as a whole"
            raise Mistakes([Mistake(f"--set {said}", None, what, remedy)])
        if not last:
            tree = tree[step]  # pyright: ignore[reportArgumentType, reportCallIssue]  a key or a position, as it has
