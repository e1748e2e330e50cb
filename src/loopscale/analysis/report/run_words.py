"""The runs of a claim or a law in a few words: sizes, recipe, and whether their training is over."""

from collections.abc import Mapping, Sequence
from typing import Any

from loopscale.analysis.recorded.learning import learnt
from loopscale.analysis.recorded.results import TrialResult
from loopscale.core.titles import readable
from loopscale.foresight.recipes import Recipe
from loopscale.models.base import Model

SIZES = (
    "task.dim",
    "task.points",
    "model.width",
    "model.layers",
    "model.heads",
    "training.loops",
    "training.steps",
    "training.batch_size",
)
"""The settings that tell the size of a study."""
NOT_RECORDED = "not recorded"
OWN_WEIGHTS = "own weights"
"""Initial weights of models without the setting `init_std`, such as LISTA."""


def size_ranges(settings: Sequence[Mapping[str, Any]]) -> dict[str, str]:
    """The range of every size, by the path of the setting: `4 to 12`."""
    spans = dict[str, str]()
    for path in SIZES:
        values = sorted({int(each[path]) for each in settings if isinstance(each.get(path), int | float)})
        if values:
            ends = [f"{value:,}" for value in dict.fromkeys((values[0], values[-1]))]
            spans[path] = " to ".join(ends)
    return spans


def size_words(runs: Sequence[TrialResult]) -> str:
    """The sizes of some runs: `dim 4, points 12, width 32`."""
    ranges = size_ranges([run.settings for run in runs])
    named = [f"{path.rpartition('.')[2].replace('_', ' ')} {span}" for path, span in ranges.items()]
    return ", ".join(named) or NOT_RECORDED


def over_words(runs: Sequence[TrialResult]) -> str:
    """The learnt runs whose training is over, and those that are still falling: `2 of 9, 5 still falling`.

    `not recorded` if the records have no state, because the task has no known floor.
    """
    counted = learnt(runs)
    if not counted.of:
        return NOT_RECORDED
    if not counted.emerged:
        return "none has learnt"
    falling = f", {counted.falling} still falling" if counted.falling else ""
    return f"{counted.over} of {counted.emerged}{falling}"


def recipe_words(runs: Sequence[TrialResult]) -> str:
    """The recipes of some runs, each once: `Adam, std 0.02`."""
    return "; ".join(dict.fromkeys(_recipe(run.settings) for run in runs)) or NOT_RECORDED


def _recipe(settings: Mapping[str, Any]) -> str:
    recipe = Recipe.of(settings)
    model = Model.choices().get(str(settings.get("model.kind")))
    if model is not None and "init_std" not in model.model_fields:
        weights = OWN_WEIGHTS
    else:
        weights = f"{recipe.init} weights" if recipe.init[0].isalpha() else f"std {recipe.init}"
    return f"{readable(recipe.optimizer)}, {weights}"
