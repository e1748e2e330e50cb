"""The price of a study at a known speed, without a measurement on this machine."""

from dataclasses import dataclass

from loopscale.foresight.plan import Span, cell_plans, sum_of_trials
from loopscale.pricing.speed import GivenRate
from loopscale.pricing.training_budget import Prices
from loopscale.studies.spec import Study


@dataclass(frozen=True)
class Price:
    """The trials of a study, their FLOPs, and their hours one after the other."""

    trials: int
    """Tuning and replicates, without more replicates of `until: decided`."""
    flops: Span
    """Of training, with the pruning that the scheduler is expected to do."""
    hours: Span


def study_price(study: Study, speed: GivenRate) -> Price:
    """The price of a study with one trial at a time. Raises Mistakes if the budget of a training has no steps."""
    study = study.at_prices(Prices(speed=speed)) if study.unpriced else study
    cells = cell_plans(study, speed)
    trials = sum(cell.tuning + cell.replicates for cell in cells if not cell.in_reserve)
    low, high = sum_of_trials(cells, [cell.seconds for cell in cells], pruned=True)
    return Price(
        trials, sum_of_trials(cells, [cell.flops for cell in cells], pruned=True), (low / 3600, high / 3600)
    )
