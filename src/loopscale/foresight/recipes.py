"""Recipes of training: the optimizer and the initial weights, which decide most of how soon a net learns."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from loopscale.core.config import leaves
from loopscale.training.trial import LATER_DEFAULTS, Trial

RECIPE_SETTINGS = ("training.optimizer", "model.init")
"""The settings of a recipe have paths that begin with one of these."""
NORMAL = "normal"
"""The kind of initial weights that have one standard deviation, `model.init_std`."""


class Recipe(NamedTuple):
    """An optimizer and initial weights. Rates are no part of a recipe, because studies tune them."""

    optimizer: str
    """The kind of the optimizer."""
    init: str
    """The standard deviation of the initial weights, or their kind, if they have several deviations."""

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> "Recipe":
        """The recipe of a trial's settings, by dotted path. Settings of older records have their defaults."""
        values = dict(leaves({part: LATER_DEFAULTS[part] for part in ("model", "training")})) | dict(settings)
        kind = str(values["model.init"])
        init = f"{float(values['model.init_std']):g}" if kind == NORMAL else kind
        return cls(str(values["training.optimizer.kind"]), init)

    @classmethod
    def of_trial(cls, trial: Trial) -> "Recipe":
        """The recipe of a planned trial."""
        return cls.of(dict(leaves(trial.settings)))

    @property
    def words(self) -> str:
        """The recipe in a text."""
        weights = f"{self.init} initial weights" if self.init[0].isalpha() else f"init_std {self.init}"
        return f"{self.optimizer} and {weights}"

    @property
    def remedy(self) -> str:
        """The settings that choose the recipe."""
        init = f"model.init: {self.init}" if self.init[0].isalpha() else f"model.init_std: {self.init}"
        return f"training.optimizer: {self.optimizer} and {init}"


ANY_RECIPE = Recipe("", "")
"""All recipes together."""
