"""The speed of a study's trials on this machine: given as a rate, or measured."""

import torch

from loopscale.core.machine_share import usable_cpus
from loopscale.notation.mistakes import Mistake, Mistakes
from loopscale.pricing.speed import GivenRate, MeasuredSpeed, measured_speed
from loopscale.pricing.training_budget import Prices
from loopscale.studies.spec import Study


def with_speed(study: Study, rate: float | None = None) -> Study:
    """The study with a speed, if its trials have a budget of seconds and no speed is known.

    The speed is that of one trial alone: `rate` in FLOP/s, by default measured here. Raises Mistakes.
    """
    if not study.unpriced:
        return study
    device = "cuda" if study.resources.gpu else "cpu"
    if rate is None and device == "cuda" and not torch.cuda.is_available():
        what = "training.seconds needs the speed of a trial on a GPU, and this machine has no GPU"
        raise Mistakes([Mistake(study.name, None, what, "give the FLOP/s of one trial as --rate")])
    threads = min(study.resources.threads, max(1, int(usable_cpus())))
    speed = GivenRate(rate) if rate else measured_for(study, threads, 1, device)
    return study.at_prices(Prices(study.prices.recorded, speed))


def measured_for(study: Study, threads: int, workers: int, device: str = "cpu") -> MeasuredSpeed:
    """Measure a few of the study's shapes on `threads` threads of this machine, for `workers` trials at a time."""
    trials = [trial for corners in study.layout.corners.values() for trial in corners]
    return measured_speed(trials, study.evaluate, threads, workers, device)
