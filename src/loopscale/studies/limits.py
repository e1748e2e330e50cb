"""Sizes that are certainly mistakes: one prompt would fill the memory of a machine."""

from collections.abc import Iterator

from loopscale.studies.mistakes import Fault, quoted
from loopscale.studies.settings import leaves
from loopscale.training.trial import Trial

MOST = {"task": 2**14, "model": 2**16, "training": 10**12}
"""The largest whole number in each part of a trial."""
MOST_LOOPS, MOST_PROMPTS = 100_000, 10_000_000
MOST_READABLE = 10**18
"""Larger numbers are quoted without separators, and shortened."""
WIDEST = 4096
"""Coordinates of a token. Tasks and solvers hold square matrices of this size."""
MOST_NUMBERS = 2**28
"""Numbers in a batch: 1 GiB in float32."""


def size_faults(trial: Trial) -> list[Fault]:
    """Sizes of a valid trial that no machine could hold. Single settings come first, alone if there are any."""
    return list(_single(trial)) or list(_combined(trial))


def _single(trial: Trial) -> Iterator[Fault]:
    for path, value in leaves(trial.settings):
        part, name = path.split(".")[0], path.rsplit(".", 1)[-1]
        most = MOST_LOOPS if path in ("training.loops", "training.window") else MOST.get(part)
        if most and type(value) is int and value > most and not name.endswith("seed"):
            number = quoted(value) if value > MOST_READABLE else f"{value:,}"
            yield Fault(tuple(path.split(".")), f"{path} is {number}", f"write {most:,} or less")


def _combined(trial: Trial) -> Iterator[Fault]:
    prompt, batch = trial.task.prompt, trial.training.batch_size
    numbers = prompt.length * prompt.dim_in
    shape = f"{prompt.length:,} tokens of {prompt.dim_in:,} numbers"
    if prompt.dim_in > WIDEST or numbers > MOST_NUMBERS:
        sizes = {name: value for name, value in trial.task if type(value) is int and "seed" not in name}
        name = max(sizes, key=sizes.__getitem__)
        what = f"task.{name} is {sizes[name]:,}, which makes prompts of {shape}"
        yield Fault(("task", name), what, f"write less: a token can have at most {WIDEST:,} numbers")
    elif batch * numbers > MOST_NUMBERS:
        what = f"training.batch_size is {batch:,}, for prompts of {shape}"
        yield Fault(("training", "batch_size"), what, f"write {MOST_NUMBERS // numbers:,} or less")
