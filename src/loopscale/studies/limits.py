"""Sizes beyond which a trial cannot be meant: sampling one prompt would fill the memory of the machine."""

from collections.abc import Iterator

from loopscale.studies.mistakes import Fault, shown
from loopscale.studies.space import leaves
from loopscale.training.trial import Trial

MOST = {"task": 2**14, "model": 2**16, "training": 10**12}
"""The largest whole number in each part of a trial."""
MOST_LOOPS, MOST_PROMPTS = 100_000, 10_000_000
FAR = 10**18
WIDEST = 4096
"""Coordinates of a token: tasks and solvers hold square matrices of them."""
MOST_NUMBERS = 2**28
"""Of a batch: 1 GiB in float32."""


def too_large(trial: Trial) -> Iterator[Fault]:
    """What of a valid trial no machine could hold, the settings by themselves first."""
    found = list(_alone(trial)) or list(_together(trial))
    yield from found


def _alone(trial: Trial) -> Iterator[Fault]:
    for path, value in leaves(trial.settings):
        part, name = path.split(".")[0], path.rsplit(".", 1)[-1]
        most = MOST_LOOPS if path in ("training.loops", "training.window") else MOST.get(part)
        if most and type(value) is int and value > most and not name.endswith("seed"):
            yield Fault(
                tuple(path.split(".")),
                f"{path} is {shown(value) if value > FAR else format(value, ',')}",
                f"write {most:,} or less",
            )


def _together(trial: Trial) -> Iterator[Fault]:
    prompt, batch = trial.task.prompt, trial.training.batch_size
    numbers = prompt.length * prompt.dim_in
    shape = f"{prompt.length:,} tokens of {prompt.dim_in:,} numbers"
    if prompt.dim_in > WIDEST or numbers > MOST_NUMBERS:
        sizes = {name: value for name, value in trial.task if type(value) is int and "seed" not in name}
        name = max(sizes, key=sizes.__getitem__)
        what = f"task.{name} is {sizes[name]:,}, for prompts of {shape}"
        yield Fault(("task", name), what, f"write less: {WIDEST:,} numbers a token can be worked with")
    elif batch * numbers > MOST_NUMBERS:
        what = f"training.batch_size is {batch:,}, of prompts of {shape}"
        yield Fault(("training", "batch_size"), what, f"write {MOST_NUMBERS // numbers:,} or less")
