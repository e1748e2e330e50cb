"""Changes to a study from the command line: `--set replicates=1`, `--set training.steps=100`."""

import copy
from collections.abc import Mapping
from typing import Any, cast

from loopscale.core.visible import UNSEEN
from loopscale.studies.mistakes import Mistake, Mistakes, Place, dotted, one_of, quoted
from loopscale.studies.settings import PARTS, is_tree
from loopscale.studies.yaml_tree import YamlTree, parse_yaml

LONGEST_PATH = 200
MOST_DIGITS = 6
"""A number with more digits is no position in a list."""
ROLES = ("scientific", "nuisance")


def with_overrides(source: YamlTree, overrides: Mapping[str, str]) -> YamlTree:
    """A copy of the tree with other values: dotted path -> value as YAML. Raises Mistakes, which name the `--set`.

    A path begins with a key of the study, or with a part of a trial, which is set under `fixed`.
    """
    tree = copy.deepcopy(source.tree)
    changed = YamlTree(tree, source.file, source.text, dict(source.lines), dict(source.overrides))
    for path, text in overrides.items():
        assignment = f"{path}={text}"
        if len(path) > LONGEST_PATH or UNSEEN.search(path):
            what, remedy = f"{quoted(path)} names no setting", "write a dotted path, as in training.steps"
            raise Mistakes.one(f"--set {quoted(path)}", what, remedy)
        value = parse_value(text, assignment)
        place = _place(tree, path, assignment)
        _put(tree, place, value, assignment)
        changed.overrides[place] = assignment
    return changed


def parse_value(text: str, assignment: str) -> Any:
    """The value of an assignment `path=text`. Raises Mistakes."""
    try:
        tree = parse_yaml(f"value: {text}", f"--set {assignment}").tree
    except Mistakes as problem:
        raise Mistakes(
            Mistake(f"--set {assignment}", None, mistake.what, "write the value as YAML")
            for mistake in problem.items
        ) from None
    if len(tree) > 1:
        raise Mistakes.one(f"--set {assignment}", "more than one setting is given", "write a --set for each")
    return tree["value"]


def _place(tree: Mapping[str, Any], path: str, assignment: str) -> Place:
    steps = path.split(".")
    if steps[0] in PARTS:
        for role in ROLES:
            if path in (tree.get(role) or {}):
                what = f"{path} is {role} in this study, not fixed"
                raise Mistakes.one(f"--set {assignment}", what, f"write --set {role}.{path}=...")
        return ("fixed", *steps)
    if steps[0] in ROLES and len(steps) > 1:
        axes: Any = tree.get(steps[0])
        for n in range(len(steps), 1, -1):
            if is_tree(axes) and ".".join(steps[1:n]) in axes:
                return (steps[0], ".".join(steps[1:n]), *map(_step, steps[n:]))
        return (steps[0], ".".join(steps[1:]))
    return tuple(map(_step, steps))


def _step(text: str) -> str | int:
    """A key, or a position in a list."""
    return int(text) if text.isdecimal() and len(text) <= MOST_DIGITS else text


def _put(root: dict[str, Any], place: Place, value: Any, assignment: str) -> None:
    *parents, last = place
    tree: Any = root
    for n, step in enumerate(parents):
        _require_step(tree, place, n, assignment)
        if isinstance(tree, dict) and cast(dict[Any, Any], tree).get(step) is None:
            tree[step] = {}
        tree = cast(Any, tree)[step]
    _require_step(tree, place, len(parents), assignment)
    tree[last] = value


def _require_step(tree: Any, place: Place, n: int, assignment: str) -> None:
    """Raise Mistakes if step `n` of the place can neither be found nor created in the tree."""
    if isinstance(tree, dict):
        return
    positions = range(len(cast(list[Any], tree))) if isinstance(tree, list) else ()
    if place[n] not in positions:
        remedy = one_of(place[n], positions) if positions else f"set {dotted(place[:n])} as a whole"
        raise Mistakes.one(f"--set {assignment}", f"there is no {dotted(place[: n + 1])} to set", remedy)
