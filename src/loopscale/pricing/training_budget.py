"""Training at equal cost: `training.flops` or `training.seconds` in place of `training.steps`.

Every trial of a study gets as many steps as its budget pays for. Its schedule is complete, because warm-up, learning
rate and curriculum know the derived steps. A tuned setting may change the cost of a step. Then every point of a cell
has the same budget and its own steps. A trial costs less than its budget, by less than one step.

The first run of a study fixes the price of a step and records it with the study. FLOPs are counted from the settings.
The price in seconds is the time of a step alone on the machine of the first run, or follows from a given rate. Later
runs read the prices, so another machine or another version derives the same steps. A shape that the record lacks, such
as a tuned width inside its range, is priced by today's count and by the recorded speed.

The steps name a trial and not the budget: a trial with a budget is the same trial as one with as many given steps. The
budget names a cell, because the steps may differ among its points.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, Protocol

from loopscale.notation.mistakes import Fault
from loopscale.notation.settings import LARGEST_SIZES, is_tree
from loopscale.training.cost import StepCosts, alike, step_costs, step_flops
from loopscale.training.trial import BUDGETS, Trial, identity

ENDLESS = LARGEST_SIZES["training"]
"""The steps of a trial whose price is not known yet: the largest number that a study accepts."""
STEPS_AND_BUDGETS = ("steps", *BUDGETS)


class WrongBudget(ValueError):
    """A budget from which no valid number of steps follows.

    `distance` is the factor between the budget and a valid budget. A check reports the cell with the largest factor.
    """

    def __init__(self, budget: str, what: str, remedy: str, distance: float = 0.0) -> None:
        super().__init__(what)
        self.fault = Fault(("training", budget), what, remedy)
        self.distance = distance


class StepTimes(Protocol):
    """The speed of trials, given or measured (`loopscale.pricing.speed`)."""

    def step(self, trial: Trial) -> float: ...

    def document(self) -> dict[str, Any]: ...


@dataclass(frozen=True)
class Prices:
    """The prices of steps. Shapes without a recorded price are priced by today's count and by the speed."""

    recorded: Mapping[str, Mapping[str, StepCosts]] = field(
        default_factory=dict[str, Mapping[str, StepCosts]]
    )
    """The prices of the first start, by budget (`flops` or `seconds`) and by the trial's shape."""
    speed: StepTimes | None = None
    """The time of a step; None if no speed is known."""

    def of(self, trial: Trial, budget: Literal["flops", "seconds"]) -> StepCosts | None:
        """The price of a trial's steps; None without a speed."""
        if known := self.recorded.get(budget, {}).get(shape(trial)):
            return known
        if budget == "flops":
            return step_flops(trial)
        return step_costs(trial, self.speed.step) if self.speed else None

    def fixed(self, trials: Iterable[Trial]) -> "Prices":
        """The prices with those of the trials recorded, as far as these have a budget."""
        recorded = {budget: dict(self.recorded.get(budget, {})) for budget in BUDGETS}
        for trial in trials:
            if (budget := trial.training.budget) and (price := self.of(trial, budget)):
                recorded[budget][shape(trial)] = price
        return Prices(recorded, self.speed)

    def document(self) -> dict[str, Any]:
        """Plain data for the study's record; empty if no trial has a budget."""
        steps = {
            budget: {name: asdict(price) for name, price in prices.items()}
            for budget, prices in self.recorded.items()
            if prices
        }
        return steps | ({"speed": self.speed.document()} if self.speed and steps else {})

    @classmethod
    def of_document(cls, document: Mapping[str, Any]) -> "Prices":
        """The prices of a study's record. Raises ValueError, KeyError or TypeError for a damaged record."""
        recorded = {
            budget: {
                name: StepCosts(tuple(price["starts"]), tuple(price["costs"]))
                for name, price in document.get(budget, {}).items()
            }
            for budget in BUDGETS
        }
        if "speed" not in document:
            return cls(recorded)
        from loopscale.pricing.speed import read_speed  # measures, which only budgets in seconds need

        return cls(recorded, read_speed(document["speed"]))


def with_steps(tree: Mapping[str, Any], prices: Prices) -> dict[str, Any]:
    """The settings of a trial, with the steps that the budget pays for. Settings without a budget stay as they are.

    Raises
    ------
    WrongBudget
        If the budget is no valid one.
    ValidationError
        If other settings are invalid.
    """
    training = tree.get("training")
    given = [name for name in STEPS_AND_BUDGETS if is_tree(training) and training.get(name) is not None]
    if not is_tree(training) or not set(given) & set(BUDGETS):
        return dict(tree)
    if len(given) > 1:
        raise WrongBudget(given[-1], f"training has {' and '.join(given)}", "keep one of them")
    endless = Trial.model_validate(_with(tree, ENDLESS))
    budget = endless.training.budget
    assert budget
    if price := prices.of(endless, budget):
        return _with(tree, _checked_steps(endless, budget, price))
    return _with(tree, ENDLESS)


def _with(tree: Mapping[str, Any], steps: int) -> dict[str, Any]:
    return dict(tree) | {"training": dict(tree["training"]) | {"steps": steps}}


def _checked_steps(trial: Trial, budget: Literal["flops", "seconds"], price: StepCosts) -> int:
    """The steps that the budget pays for. Raises WrongBudget if these are too few or too many."""
    training, spent = trial.training, float(getattr(trial.training, budget))
    steps = price.affordable(spent)
    pays = f"training.{budget} {spent:.4g} pays for {steps:,} steps"
    if steps > ENDLESS:
        most = float(price.after(ENDLESS))
        raise WrongBudget(budget, pays, f"write less than {most:.3g}", spent / most)
    for least, what, other in (
        (training.eval_every, "less than one report", f", or eval_every: {steps}" * (steps > 0)),
        (training.warmup, f"less than the warm-up of {training.warmup:,}", ", or a smaller warmup"),
        (
            trial.curriculum_end,
            f"but the curriculum ends at step {trial.curriculum_end:,}",
            ", or a shorter one",
        ),
    ):
        if steps < least:
            enough = float(price.after(least))
            remedy = f"write {_rounded_up(enough)} or more{other}"
            raise WrongBudget(budget, f"{pays}, {what}", remedy, enough / spent)
    return steps


def _rounded_up(number: float) -> str:
    """Three digits, not below the number."""
    unit = 10.0 ** (math.floor(math.log10(number)) - 2)
    return f"{math.ceil(number / unit) * unit:.3g}"


def shape(trial: Trial) -> str:
    """The identity of the settings that determine the price of a trial's steps."""
    same = alike(trial)
    training = same.training.model_copy(update={"curriculum": trial.training.curriculum})
    same = same.model_copy(update={"training": training})
    return identity(same) + "-recompute" * trial.training.recompute
