"""The documents of studies in tests: a fixed setting that a test tunes in all cells is taken out."""

import copy
from collections.abc import Mapping
from typing import Any


def without_tuned(document: Mapping[str, Any]) -> dict[str, Any]:
    """The document of a study without the fixed settings that `nuisance` tunes.

    Cells of several kinds keep them, because a range may apply to some kinds only.
    """
    changed = copy.deepcopy(dict(document))
    axes = changed.get("scientific", {}).values()
    if any(isinstance(value, dict) and "kind" in value for values in axes for value in values):
        return changed
    for path in changed.get("nuisance", {}):
        *parents, last = path.split(".")
        tree = changed["fixed"]
        for name in parents:
            tree = tree.get(name, {})
        tree.pop(last, None)
    return changed
