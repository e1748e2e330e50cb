"""Where the processor time of a trial goes, in the code of a worker.

    python benchmarks/trial.py [STUDY ..] [--steps 200] [--json]

Without a study the trials have the default settings (d = 5, 11 points, 1,000 steps). Of a study it is the last trial.
The function of a worker runs a short training and the whole evaluation. A step then counts as many times as the whole
training has steps, and a report as many times as the whole training has reports. The parts are

- draws: The prompts of the steps.
- steps: Forward, backward and Adam.
- validation: The errors on the validation set.
- reports: The other metrics of a report.
- checkpoints: The copies of the state and the files.
- evaluation: The curve with its measures and regret.
- floors: The floors of both sets of prompts. A worker keeps them for its next trials.
- rest: Everything else once: imports, the net, and the validation prompts that a worker keeps for its next trials.
"""

import argparse
import contextlib
import json
import os
import statistics
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable
from functools import wraps
from typing import Any
from unittest import mock

os.environ["OMP_NUM_THREADS"] = "1"

from machine import describe

from loopscale.evaluate import Evaluation
from loopscale.runner.decide.job import Order
from loopscale.runner.on_ray import worker
from loopscale.studies.spec import Study
from loopscale.training import checkpoint, loop, prompts
from loopscale.training.trial import Trial

KINDS = ("looped", "algoformer", "gpt2", "encoder")
REPORTS = 5
"""Reports of the short training."""
PER_STEP, PER_REPORT, ONCE = (
    ("draws", "steps"),
    ("validation", "reports", "checkpoints"),
    ("evaluation", "floors"),
)


class Clock:
    """Seconds of processor of named functions, each without the named functions inside."""

    def __init__(self) -> None:
        self.seconds = defaultdict[str, list[float]](list)
        self._inside = [0.0]

    def named(self, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def timed(*arguments: Any, **settings: Any) -> Any:
            self._inside.append(0.0)
            start = time.process_time()
            try:
                return function(*arguments, **settings)
            finally:
                whole = time.process_time() - start
                self.seconds[name].append(whole - self._inside.pop())
                self._inside[-1] += whole

        return timed


def trial_parts(trial: Trial, evaluation: Evaluation, steps: int) -> dict[str, float]:
    """Seconds of processor of the parts of a trial."""
    clock, options = Clock(), trial.training
    few = {"steps": min(steps, options.steps), "eval_every": max(1, min(steps, options.steps) // REPORTS)}
    short = trial.model_copy(update={"training": options.model_copy(update=few)})
    timed = [
        (prompts.Prompts, "take", "draws"),
        (loop.Learner, "learn", "steps"),
        (loop, "validation_errors", "validation"),
        (loop, "_metrics", "reports"),
        (loop.Learner, "state", "states"),
        (checkpoint, "save", "files"),
        (worker, "evaluate", "evaluation"),
        (worker, "kept_floor", "floors"),
    ]
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as patches:
        for owner, name, part in timed:
            patches.enter_context(mock.patch.object(owner, name, clock.named(part, getattr(owner, name))))
        order = Order(kind="train", key=short.key, trial=short, evaluation=evaluation, checkpoints=folder)
        start = time.process_time()
        *_, last = worker.work(order)
        whole = time.process_time() - start
    if last.outcome != "finished":
        raise SystemExit(f"the trial ended with {last.outcome}: {last.detail}")
    measured = clock.seconds
    states, files = measured.pop("states"), measured.pop("files")
    measured["checkpoints"] = [sum(pair) for pair in zip(states, files, strict=True)]
    rest = whole - sum(map(sum, measured.values()))
    parts = {part: options.steps * statistics.median(measured[part]) for part in PER_STEP}
    for part in PER_REPORT:
        usual = statistics.median(measured[part])
        parts[part] = -(-options.steps // options.eval_every) * usual
        rest += max(measured[part]) - usual
    return parts | {part: sum(measured[part]) for part in ONCE} | {"rest": rest}


def chosen_trials(studies: list[str]) -> dict[str, tuple[Trial, Evaluation]]:
    """The last trial of every study; without studies a trial of every model at the default settings."""
    if not studies:
        task = {"kind": "linear_regression", "dim": 5, "points": 11}
        formats = {"encoder": {"format": "encoder"}}
        trials = {kind: {"task": task | formats.get(kind, {}), "model": {"kind": kind}} for kind in KINDS}
        return {kind: (Trial.model_validate(trial), Evaluation()) for kind, trial in trials.items()}
    chosen = dict[str, tuple[Trial, Evaluation]]()
    for name in studies:
        study = Study.load(name)
        chosen[name] = list(study.layout.trials.values())[-1], study.evaluate
    return chosen


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("studies", nargs="*", help="paths or names of studies")
    parser.add_argument("--steps", type=int, default=200, help="steps of the short training")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    rows = {
        name: trial_parts(trial, evaluation, options.steps)
        for name, (trial, evaluation) in chosen_trials(options.studies).items()
    }
    if options.json:
        print(json.dumps({"machine": describe().to_dict(), "seconds": rows}, indent=2))
        return
    print(describe())
    names = (*PER_STEP, *PER_REPORT, *ONCE, "rest")
    print(f"{'':36}{'seconds':>9}" + "".join(f"{name:>13}" for name in names))
    for name, parts in rows.items():
        total = sum(parts.values())
        print(f"{name:36}{total:9.1f}" + "".join(f"{parts[part] / total:13.2%}" for part in names))


if __name__ == "__main__":
    main()
