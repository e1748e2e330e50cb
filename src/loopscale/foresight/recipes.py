"""Recipes of training: the optimizer and the initial weights, which decide most of how soon a net learns."""

import math
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


USUAL_DIM, ENOUGH_LOOPS = 4, 4
"""Where a covariate is zero: the usual dimension, and the loops beyond which further ones change little."""


class Covariates(NamedTuple):
    """Settings of a training in doublings. A setting that a task or a model does not have is zero.

    Each doubling of a setting multiplies the step of emergence by one factor, for all tasks and models.
    """

    dim: float
    """Doublings of the task's dimension over `USUAL_DIM`."""
    condition: float
    """Doublings of the condition number of the inputs over 1."""
    loops: float
    """Doublings of T over `ENOUGH_LOOPS`: zero or negative."""

    @property
    def dimension(self) -> int:
        return round(USUAL_DIM * 2**self.dim)

    @classmethod
    def of(cls, settings: Mapping[str, Any]) -> "Covariates":
        """The covariates of a trial's settings, by dotted path, those of its task included."""
        dim, condition, loops = (
            settings.get(path) or usual
            for path, usual in (
                ("task.dim", USUAL_DIM),
                ("task.condition", 1),
                ("training.loops", ENOUGH_LOOPS),
            )
        )
        return cls(
            math.log2(dim / USUAL_DIM),
            math.log2(condition),
            min(0.0, math.log2(loops / ENOUGH_LOOPS)),
        )

    @classmethod
    def of_trial(cls, trial: Trial) -> "Covariates":
        """The covariates of a planned trial."""
        return cls.of(dict(leaves(trial.settings)))


USUAL = Covariates(0.0, 0.0, 0.0)
