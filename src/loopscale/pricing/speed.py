"""The time of trials: a few shapes are measured, and the others are predicted from their work.

FLOPs alone do not predict time: from width 16 to 128 the same processor reaches 10 to 59 GFLOP/s. Bytes, calls and
FLOPs together predict most shapes within 20 %. Measured shapes correct the prediction for their neighbours.
`benchmarks/hours.py` compares predicted and measured times.
"""

import json
import math
import os
import signal
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, astuple, dataclass
from typing import Any, ClassVar

import numpy as np
import torch

from loopscale.core.cheap_imports import without_compiler
from loopscale.core.machine_share import usable_cpus
from loopscale.core.seeds import stream
from loopscale.evaluate import VALIDATION_PROMPTS, Evaluation
from loopscale.training.cost import (
    FLOP_BYTES,
    Cost,
    Seconds,
    Work,
    cost,
    measure,
    step_seconds,
    without_numbers,
)
from loopscale.training.device import prepare
from loopscale.training.loop import Learner
from loopscale.training.trial import Trial

MEASURED_SHAPES = 6
"""Measured shapes of a study. More shapes make no study's prediction better by 2 %."""
MEASURED_FLOPS = 2e10
"""A study with dearer steps is measured with fewer prompts, so that planning at the papers' size takes seconds."""
NEAR_SIZE = 0.25
"""Shapes that are closer are not measured separately. The distance is that of the logarithms of their work."""
OTHER_KIND, OTHER_ATTENTION = 100.0, 10.0
"""Distances between shapes of different kinds of model and of attention."""
SHORT_TRIAL = 60.0
"""Seconds. Neighbours slow a trial by some per cent, which is not measured for shorter trials."""
PRICED_PREFIXES = 3
"""Prefixes of a prompt whose FLOPs are counted for the time of play. Shorter prompts have prefixes of half the cost."""
PLAY_IN_PARTS = 3.0
"""Play that reads a game token by token takes as long as this many forward passes of the whole game. Measured: 1.8 to
4.6 for games of 30 and 60 rounds, 3.4 to 5.1 for 200 rounds."""
TRIAL_SECONDS = 0.1
"""A trial besides training and evaluation: its order, its checkpoints, its records (benchmarks/overhead.py)."""


_COSTS = dict[str, Cost]()
"""By the settings that have an effect on the cost."""


@dataclass(frozen=True)
class GivenRate:
    """All trials run at one rate, and each operation takes the same time to start."""

    rate: float
    """FLOP/s of one trial, beside the other trials of its machine."""
    start: float = 0.0
    """Seconds of the start of an operation."""
    slow_down: ClassVar[float] = 1.0

    def step(self, trial: Trial) -> float:
        """Time of one training step on full prompts."""
        counted = trial_cost(trial)
        return counted.flops_step / self.rate + self.start * counted.step.calls

    def seconds(self, trial: Trial, evaluation: Evaluation) -> float:
        """Time of the trial with its validation and evaluation."""
        _, evaluated = _forward_passes(trial, evaluation)
        passes = evaluated + played_prompts(trial, evaluation) / trial.training.batch_size
        return (
            self.training_seconds(trial, evaluation)
            + TRIAL_SECONDS
            + passes * self._forward(trial_cost(trial))
        )

    def training_seconds(self, trial: Trial, evaluation: Evaluation) -> float:
        """Time of the training with its validations, as records have it."""
        counted, (validated, _) = trial_cost(trial), _forward_passes(trial, evaluation)
        steps = curriculum_share(trial) * trial.training.steps
        return steps * self.step(trial) + validated * self._forward(counted)

    def _forward(self, counted: Cost) -> float:
        """Time of one forward pass of a batch."""
        return counted.flops_forward / self.rate + self.start * counted.forward.calls

    def document(self) -> dict[str, Any]:
        """Plain data for the study's record."""
        return {"rate": self.rate} | ({"start": self.start} if self.start else {})


H100 = GivenRate(rate=2.87e13, start=1.44e-6)
"""One NVIDIA H100 with `training.graph: auto` in float32. Fitted to the nine graphs in "step on a GPU" of
`benchmarks/README.md`, whose steps take 0.8 to 28.9 ms. The fit is within 13 % of each."""


@dataclass(frozen=True)
class MeasuredSpeed:
    """Times of measured shapes, from which other shapes are predicted."""

    shapes: tuple[tuple[Trial, Seconds], ...]
    slow_down: float = 1.0
    """The time of a step beside the other trials of this machine, relative to a step alone."""
    flop_bytes: float = FLOP_BYTES
    """The weight of FLOPs in the predictions."""

    def step(self, trial: Trial) -> float:
        """Time of one training step on full prompts, alone on the machine."""
        return self._predicted(trial, self._step_size, lambda s: s.step)

    def seconds(self, trial: Trial, evaluation: Evaluation) -> float:
        """Time of the trial with its validation and evaluation, beside other trials."""
        _, evaluated = _forward_passes(trial, evaluation)
        prompts = evaluated * trial.training.batch_size * trial.steps_per_prompt
        evaluating = prompts * self._predicted(trial, self._loop_size, lambda s: s.evaluation)
        # An answer in play is read out after the last loop alone, as in a validation.
        playing = played_prompts(trial, evaluation) * self._predicted(
            trial, self._prompt_size, lambda s: s.validation
        )
        return (
            TRIAL_SECONDS + self.training_seconds(trial, evaluation) + self.slow_down * (evaluating + playing)
        )

    def training_seconds(self, trial: Trial, evaluation: Evaluation) -> float:
        """Time of the training with its validations, beside other trials, as records have it."""
        validated, _ = _forward_passes(trial, evaluation)
        steps = trial.training.steps * curriculum_share(trial)
        validating = self._predicted(trial, self._prompt_size, lambda s: s.validation)
        seconds = steps * self.step(trial) + validated * trial.training.batch_size * validating
        return self.slow_down * seconds

    def document(self) -> dict[str, Any]:
        """Plain data for the study's record."""
        shapes = [
            {"trial": json.loads(trial.model_dump_json()), **asdict(time)} for trial, time in self.shapes
        ]
        return {"shapes": shapes, "flop_bytes": self.flop_bytes}

    def _step_size(self, trial: Trial) -> float:
        return trial_cost(trial).step.size(self.flop_bytes)

    def _prompt_size(self, trial: Trial) -> float:
        return trial_cost(trial).forward.size(self.flop_bytes) / trial.training.batch_size

    def _loop_size(self, trial: Trial) -> float:
        return self._prompt_size(trial) / trial.steps_per_prompt

    def _predicted(
        self, trial: Trial, size: Callable[[Trial], float], part: Callable[[Seconds], float]
    ) -> float:
        """The time of a part: its size, at the speed of measured shapes, weighted by inverse squared distance."""
        near = [shape for shape in self.shapes if shape[0].model.kind == trial.model.kind] or self.shapes
        weights = [1 / (_distance(trial, measured) + 1e-3) ** 2 for measured, _ in near]
        slowness = [math.log(part(seconds) / size(measured)) for measured, seconds in near]
        mean = sum(w * s for w, s in zip(weights, slowness, strict=True)) / sum(weights)
        return size(trial) * math.exp(mean)


def read_speed(document: Mapping[str, Any]) -> GivenRate | MeasuredSpeed:
    """The speed of a study's record. Raises ValueError, KeyError or TypeError for a damaged record."""
    if "rate" in document:
        return GivenRate(float(document["rate"]), float(document.get("start", 0.0)))
    return MeasuredSpeed(
        tuple(
            (
                Trial.model_validate(each["trial"]),
                Seconds(each["step"], each["validation"], each["evaluation"]),
            )
            for each in document["shapes"]
        ),
        flop_bytes=float(document.get("flop_bytes", 0.0)),  # older records predicted without FLOPs
    )


def measured_speed(
    trials: Sequence[Trial], evaluation: Evaluation, threads: int = 1, workers: int = 1, device: str = "cpu"
) -> MeasuredSpeed:
    """Measure a few of the trials on `threads` threads of this machine, for `workers` trials at a time.

    Trials whose step takes more than `MEASURED_FLOPS` for a single prompt are not measured. Their time follows from the
    measured trials. If all trials of a kind of model are dearer, the cheapest of them is measured.
    """
    chosen = spread(_cheap(trials))
    before = torch.get_num_threads()
    prepare(threads)  # as in a worker
    try:
        smaller = [_fewer_prompts(trial, MEASURED_FLOPS / len(chosen)) for trial in chosen]
        shapes = tuple((trial, measure(trial, evaluation, device=device)) for trial in smaller)
        alone, (dearest, seconds) = MeasuredSpeed(shapes), shapes[0]
        if alone.seconds(chosen[0], evaluation) < SHORT_TRIAL:
            return MeasuredSpeed(shapes, _waiting(workers))
        return MeasuredSpeed(shapes, slow_down(dearest, seconds.step, workers))
    finally:
        torch.set_num_threads(before)


def _cheap(trials: Sequence[Trial]) -> list[Trial]:
    """The trials with a short step for one prompt. Of a kind of model without such trials, the cheapest."""
    kinds = dict[str, list[Trial]]()
    for trial in sorted(trials, key=_flops_of_prompt):
        kinds.setdefault(trial.model.kind, []).append(trial)
    short = ([each for each in kind if _flops_of_prompt(each) <= MEASURED_FLOPS] for kind in kinds.values())
    return [each for some, kind in zip(short, kinds.values(), strict=True) for each in some or kind[:1]]


def _flops_of_prompt(trial: Trial) -> float:
    return trial_cost(trial).flops_step / trial.training.batch_size


def spread(trials: Sequence[Trial], most: int = MEASURED_SHAPES) -> list[Trial]:
    """At most `most` trials with different work: the dearest, then always the trial farthest from those chosen."""
    rest = list({_shape(trial): trial for trial in trials}.values())
    chosen = [max(rest, key=lambda trial: trial_cost(trial).step.size())]
    while len(chosen) < most:
        gaps = [min(_distance(trial, other) for other in chosen) for trial in rest]
        if max(gaps) < NEAR_SIZE:
            break
        chosen.append(rest[gaps.index(max(gaps))])
    return chosen


def slow_down(trial: Trial, alone: float, workers: int) -> float:
    """The time of a step while `workers` trials run on this machine, relative to a step `alone`, in seconds.

    Other processes repeat the forward pass meanwhile, one on each core that `workers` trials would use. With more
    trials than cores, trials also wait for each other.
    """
    threads, cores = torch.get_num_threads(), usable_cpus()
    waiting = _waiting(workers)
    neighbours = min(workers, int(cores / threads)) - 1
    if neighbours < 1:
        return waiting
    with without_compiler():
        learner = Learner(trial)
        batch, steps = trial.task.sample(trial.training.batch_size, stream(0)), trial.steps_per_prompt
        batch = batch.to("cpu", learner.dtype)

        def forward() -> None:
            with torch.no_grad():
                learner.net.answers(batch, steps, steps)

        with _repeated_beside(forward, neighbours):
            # The warm-up also copies the memory that this process shares with the new processes.
            beside = step_seconds(learner)
    return waiting * max(1.0, beside / alone)


def _waiting(workers: int) -> float:
    """How much longer a trial takes if there are more trials than cores."""
    return max(1.0, workers * torch.get_num_threads() / usable_cpus())


@contextmanager
def _repeated_beside(action: Callable[[], None], processes: int) -> Generator[None]:
    """Repeat the action in this number of other processes, for the length of the context and at most 10 s."""
    children = list[int]()
    try:
        for _ in range(processes):
            if child := os.fork():
                children.append(child)
                continue
            try:
                end = time.monotonic() + 10
                while time.monotonic() < end:
                    action()
            finally:
                os._exit(0)
        yield
    finally:
        for child in children:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)


def curriculum_share(trial: Trial) -> float:
    """The time of all steps, relative to steps on full prompts. Points grow, and so does time, by equal increments."""
    curriculum, points = trial.training.curriculum, trial.task.model_dump().get("points", 0)
    if curriculum is None or points <= curriculum.points:
        return 1.0
    increments = -(-(points - curriculum.points) // curriculum.points_by)
    alike = trial.training.model_copy(update={"curriculum": None})
    first = trial.model_copy(update={"task": trial.stage(1), "training": alike})
    saved = 1 - trial_cost(first).step.size() / trial_cost(trial).step.size()
    mean = saved * (increments + 1) / (2 * increments)
    return 1 - mean * min(1.0, increments * curriculum.every / trial.training.steps)


def trial_cost(trial: Trial) -> Cost:
    """`cost`, counted once for all trials that differ only in settings without an effect on it."""
    plain = trial.training.model_copy(
        update={"lr": 1e-3, "schedule": "constant", "warmup": 0, "clip": None, "curriculum": None}
    )
    alike = trial.model_copy(update={"model": trial.model.priced(), "training": plain, "seed": 0})
    shape = without_numbers(alike)
    if shape not in _COSTS:
        _COSTS[shape] = cost(alike)
    return _COSTS[shape]


def _forward_passes(trial: Trial, evaluation: Evaluation) -> tuple[float, float]:
    """The forward passes of all validations and of the evaluation, as multiples of the forward pass of a step."""
    options, loops = trial.training, min(evaluation.loops, trial.model.depth or evaluation.loops)
    reports = -(-options.steps // options.eval_every)
    validated = reports * VALIDATION_PROMPTS / options.batch_size
    return validated, evaluation.prompts / options.batch_size * loops / trial.steps_per_prompt


def played_prompts(trial: Trial, evaluation: Evaluation) -> float:
    """The work of play after the training, as a number of forward passes of whole prompts.

    A game asks for one answer after every prefix of a prompt. A net that reads in parts takes every token once. For
    other nets the FLOPs of three prefixes are counted. Those of the others lie on the parabola through the three,
    because attention is quadratic in the length.
    """
    task = evaluation.posed(trial.task)
    if not task.games or trial.model.reads_in_parts:
        return PLAY_IN_PARTS * task.games
    settings = task.model_dump()
    points, dim = settings["points"], settings.get("active") or settings["dim"]
    if points < PRICED_PREFIXES:
        return task.games * len(task.seen) * (points + 1) / (2 * points)
    plain = trial.training.model_copy(update={"curriculum": None})
    priced = [1, (points + 1) // 2, points]
    flops = [
        trial_cost(trial.model_copy(update={"task": task.easier(dim, size), "training": plain})).flops_forward
        for size in priced
    ]
    whole = trial_cost(trial.model_copy(update={"training": plain})).flops_forward
    parabola = np.polynomial.Polynomial.fit(priced, flops, 2)
    answers = np.arange(1, len(task.seen) + 1) * points / len(task.seen)
    return float(task.games * parabola(answers).sum() / whole)


def _shape(trial: Trial) -> tuple[str, str | None, Work]:
    return trial.model.kind, getattr(trial.model, "attention", None), trial_cost(trial).step


def _distance(trial: Trial, other: Trial) -> float:
    """How much the work of two trials differs."""
    (kind, attention, work), (other_kind, other_attention, other_work) = _shape(trial), _shape(other)
    gaps = (math.log((a + 1) / (b + 1)) for a, b in zip(astuple(work), astuple(other_work), strict=True))
    return (
        math.hypot(*gaps)
        + OTHER_KIND * (kind != other_kind)
        + OTHER_ATTENTION * (attention != other_attention)
    )


def _fewer_prompts(trial: Trial, flops: float) -> Trial:
    """The trial on full prompts, with so few of them that a step takes about `flops`."""
    size = trial.training.batch_size
    batch = max(1, min(size, int(size * flops / trial_cost(trial).flops_step)))
    options = {"batch_size": batch, "steps": 1, "warmup": 0, "curriculum": None}
    return trial.model_copy(update={"training": trial.training.model_copy(update=options)})
