"""The tiny form of a study: the same cells, tuned settings, claims and laws, in trainings of a few steps.

A tiny study tries everything that a study does before the study spends hours: its plugins, its tasks and models, its
records, its report. Its answers mean nothing.

Lengths of trainings become short ones in the same order, so that axes stay axes. Budgets of FLOPs or seconds become
steps. Searches draw two points. Pruning, looks, limits and reserved GPUs are left out.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from loopscale.core.config import is_tree
from loopscale.notation.files import BUDGET_PATHS

STEPS = "training.steps"
SHORTEST: dict[str, int] = {
    STEPS: 4,
    "training.batch_size": 4,
    "training.eval_every": 2,
    "training.warmup": 0,
}
"""The least value of each length."""
SPACING: dict[str, int] = {STEPS: 4, "training.batch_size": 2, "training.eval_every": 0, "training.warmup": 1}
"""The distance between two values of a length that a study varies."""
WITHOUT = ("training.checkpoint_every", "training.curriculum", "training.compile")
"""Settings of a trial that have their defaults."""
LEFT_OUT = ("scheduler", "until", "budget", "stop", "resources", "known", "search")
"""Keys of a study that have their defaults."""
TRIALS, REPLICATES, PROMPTS = 2, 2, 64


def tiny_tree(study: Mapping[str, Any]) -> dict[str, Any]:
    """The tree of the tiny study.

    Parameters
    ----------
    study
        The content of a study's file that has no mistakes.
    """
    tree = {key: value for key, value in study.items() if key not in LEFT_OUT}
    parts = ("fixed", "scientific", "nuisance")
    lengths = _Lengths(
        {path: _ascending(path, [tree.get(part) or {} for part in parts]) for path in SHORTEST}
    )
    tree |= {part: lengths.shortened(tree[part]) for part in parts if part in tree}
    varied = [path for part in parts[1:] for path, _ in _leaves(tree.get(part) or {})]
    shortest = {
        length.rpartition(".")[2]: least
        for length, least in SHORTEST.items()
        if not any(_belongs(path, length) for path in varied)
    }
    tree["fixed"] |= {"training": tree["fixed"].get("training", {}) | shortest}
    for claim in (claims := [dict(claim) for claim in tree.get("claims", ())]):
        claim |= {side: lengths.shortened(claim[side]) for side in ("first", "second")}
    laws = [law | {"along": _renamed(law["along"])} for law in tree.get("laws", ())]
    search = {"search": {"kind": "random", "trials": TRIALS}} if tree.get("nuisance") else {}
    evaluate = {"evaluate": {**tree.get("evaluate", {}), "prompts": PROMPTS}}
    return tree | search | evaluate | {"claims": claims, "laws": laws, "replicates": REPLICATES}


@dataclass(frozen=True)
class _Lengths:
    """The values of every length of a study, ascending."""

    values: Mapping[str, Sequence[float]]

    def shortened(self, tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
        """The tree with short lengths, and without the settings that a tiny study leaves out."""
        places = {_renamed(f"{prefix}{name}"): value for name, value in tree.items()}
        return {
            path.removeprefix(prefix): self._short(path, value)
            for path, value in places.items()
            if path not in WITHOUT
        }

    def _short(self, path: str, value: Any) -> Any:
        length = next((name for name in self.values if _belongs(path, name)), "")
        if is_tree(value):
            return self.shortened(value, f"{path}.")
        if isinstance(value, list | tuple):
            return [self._short(path, each) for each in cast(Sequence[Any], value)]
        if length and value in self.values[length]:
            return SHORTEST[length] + SPACING[length] * self.values[length].index(value)
        return value


def _belongs(path: str, length: str) -> bool:
    """True for the path of a length, and for the paths inside a range of the length."""
    return path == length or path.startswith(f"{length}.")


def _renamed(path: str) -> str:
    """The path, in which steps take the place of budgets."""
    return STEPS if path in BUDGET_PATHS else path


def _ascending(length: str, trees: Sequence[Mapping[str, Any]]) -> list[float]:
    """All numbers of a length in these trees, ascending."""
    leaves = [(path, value) for tree in trees for path, value in _leaves(tree)]
    found = {value for path, value in leaves if _belongs(path, length)}
    return sorted(value for value in found if isinstance(value, int | float))


def _leaves(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Every value with its path. The values of a list have the path of the list."""
    if is_tree(value):
        for name, inner in value.items():
            yield from _leaves(inner, _renamed(f"{path}.{name}" if path else name))
    elif isinstance(value, list | tuple):
        for each in cast(Sequence[Any], value):
            yield from _leaves(each, path)
    else:
        yield path, value
