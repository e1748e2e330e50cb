"""How well a predictor does on a task: one measure, on the same prompts, for nets and classical algorithms.

Two prompt sets per task setting, neither depending on any trial's seed: `validate` for what is tuned and
pruned by, `evaluate` for what is reported. Both are drawn in blocks whose size depends on the task alone, so
that memory stays bounded and every predictor, on every machine and device, sees the very same prompts.

A net that runs for more loops than it was trained with may overflow. Its curve then holds inf or nan from
there on: that running longer explodes is an answer, so nothing here raises or clips.
"""

import functools
import hashlib
import json
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from jaxtyping import Float, Float64
from pydantic import PositiveInt
from torch import Tensor

from loopscale.core.config import Config
from loopscale.core.prompt import Batch, Predictor
from loopscale.core.seeds import stream
from loopscale.models.base import Net
from loopscale.tasks.base import Task

VALIDATION_PROMPTS = 512
"""Of the validation set."""

BLOCK_BYTES = 2**26
LARGEST_BLOCK = 256
MEDIAN_BYTES = 2**28
"""Of single errors that are kept for medians: all of a usual evaluation's, the first ones of a huge one."""


class Evaluation(Config):
    """How finished trials are looked at. No part of a trial: changing it trains nothing again."""

    loops: PositiveInt = 20
    """Loops that the curve covers, for nets trained with fewer too."""
    prompts: PositiveInt = 1024
    """Prompts that every mean is over."""
    task: dict[str, Any] | None = None
    """Settings of the task that are others here than in training: another condition, other data, or with a `kind`
    another task of the same geometry. `None` for none.
    """

    @property
    def key(self) -> str:
        """Its identity, 8 hexadecimal digits."""
        later = {"task"} if self.task is None else set[str]()  # older evaluations keep theirs
        return hashlib.sha256(self.model_dump_json(exclude=later).encode()).hexdigest()[:8]

    def posed(self, trained: Task) -> Task:
        """The task that a net trained on that one is evaluated on.

        Raises ValueError where there is no such task, its prompts are of another geometry, hold answers that those
        trained on do not, or are of the tables that were trained on.
        """
        if self.task is None:
            return trained
        changed = self.task
        if changed.get("kind", trained.kind) == trained.kind:
            changed = trained.model_dump() | changed
        task = Task.model_validate(changed)
        was, now = trained.prompt, task.prompt
        if was != now:
            raise ValueError(
                f"trials read {was.length} tokens of {was.dim_in} numbers and answer with {was.dim_out}, the task "
                f"evaluated has {now.length} of {now.dim_in} and {now.dim_out}; leave the sizes as they are"
            )
        if trained.whole and not task.whole:
            raise ValueError(
                f"prompts of {task.kind} hold answers, those of {trained.kind} do not; write a task without"
            )
        if seen := sorted(set(trained.tables) & set(task.tables)):
            raise ValueError(f"trials are trained on {', '.join(seen)}; evaluate on other tables")
        return task


@dataclass(frozen=True)
class Curve:
    """Errors after every loop (row 0 is loop 1) at every query, and the standard error of `error` over
    prompts.

    inf and nan are kept where the predictor overflowed; `sem` is nan for a single prompt.
    """

    error: Float64[np.ndarray, "loops points"]
    sem: Float64[np.ndarray, "loops points"]
    raw: Float64[np.ndarray, "loops points"]
    measures: dict[str, Float64[np.ndarray, " loops"]] = field(default_factory=dict)
    """What else the task measures, over all queries, by name."""
    median: Float64[np.ndarray, "loops points"] | None = None
    """Over prompts, where it was measured. Of a net that runs on for longer than it was trained, a few prompts may
    explode and the mean with them, while most stay."""
    seen: tuple[int, ...] | None = None
    """How many pairs each query has seen; `None` for 0, 1, 2 .."""


@torch.no_grad()
def error_curve(
    predictor: Predictor, task: Task, steps: int, rng: torch.Generator, prompts: int = 256
) -> Float[Tensor, "steps points"]:
    """The mean error after every step at every query, over fresh prompts drawn at once from `rng`."""
    batch = suited(task.sample(prompts, rng), predictor, "cpu")
    return task.error(predictor.predict(batch, steps), batch).mean(1)


@torch.no_grad()
def evaluate(predictor: Predictor, task: Task, evaluation: Evaluation, device: str = "cpu") -> Curve:
    """The curve on the task's evaluation set. A net is moved to `device`, and stops at its depth."""
    loops = evaluation.loops
    if isinstance(predictor, Net):
        predictor.to(device)
        loops = min(loops, predictor.depth or loops)
    zero = torch.zeros((), dtype=torch.float64, device=device)
    total, squares, raw = zero, zero, zero
    measures, measured = defaultdict[str, Tensor](lambda: zero), defaultdict[str, int](int)
    kept, room = list[Tensor](), MEDIAN_BYTES
    for block in _blocks("evaluate", task, evaluation.prompts):
        batch = suited(block, predictor, device)
        prediction = predictor.predict(batch, loops)
        error = task.error(prediction, batch).double()
        total, squares = total + error.sum(1), squares + error.square().sum(1)
        if room > 0:
            kept.append(error.float().cpu())
            room -= kept[-1].nbytes
        raw = raw + task.raw_error(prediction, batch).double().sum(1)
        others = task.measures(prediction, batch) | task.probes(predictor, batch, loops)
        for name, each in others.items():
            measures[name] = measures[name] + each.double().sum(1)
            measured[name] += each.shape[1]
    count = evaluation.prompts
    mean = total / count
    spread = (squares / count - mean.square()).clamp(min=0)
    sem = (spread / (count - 1)).sqrt() if count > 1 else torch.full_like(mean, torch.nan)
    means = {name: (sums / measured[name]).cpu().numpy() for name, sums in measures.items()}
    # A prompt whose error is nan has exploded: as far above the median as can be.
    single = torch.nan_to_num(torch.cat(kept, dim=1), nan=torch.inf, posinf=torch.inf)
    median = np.median(single.numpy(), axis=1).astype(np.float64)
    return Curve(mean.cpu().numpy(), sem.cpu().numpy(), (raw / count).cpu().numpy(), means, median, task.seen)


@torch.no_grad()
def validate(net: Net, task: Task, steps: int, device: str = "cpu") -> dict[str, float]:
    """`error` (mean over queries) and `error_last` (the last one) after `steps`, on the validation set.

    The weights are judged, not the arithmetic that trained them: a net trained in bf16 runs in float32 here,
    as it does in `evaluate`. Only step `steps` is read out, which spares the others' post-transformers.
    """
    net.to(device)
    total = torch.zeros((), dtype=torch.float64, device=device)
    for block in _validation_set(task.model_dump_json()):
        batch = suited(block, net, device)
        prediction = net(batch.tokens, steps, first=steps)[:, :, batch.queries]
        total = total + task.error(prediction, batch).double().sum((0, 1))
    points = total / VALIDATION_PROMPTS
    return {"error": points.mean().item(), "error_last": points[-1].item()}


def summary(curve: Curve, task: Task, loop: int) -> dict[str, float]:
    """The figures that a trial is ranked and reported by, read off its curve at `loop`, counted from 1.

    Raises ValueError for a loop that the curve has not got.
    """
    if not 1 <= loop <= len(curve.error):
        raise ValueError(f"loop {loop} is not on the curve; 1 .. {len(curve.error)} are")
    error, raw = curve.error[loop - 1], float(curve.raw[loop - 1].mean())
    return {
        "error": float(error.mean()),
        "error_last": float(error[-1]),
        "raw_error": raw,
        "excess": raw - task.noise_variance,
        **{name: float(each[loop - 1]) for name, each in curve.measures.items()},
    }


def _blocks(purpose: str, task: Task, prompts: int) -> Iterator[Batch]:
    """The prompt set of that name, block by block."""
    name, size = canonical(task), _block_size(task)
    for number, start in enumerate(range(0, prompts, size)):
        yield task.sample(min(size, prompts - start), stream(purpose, name, number))


@functools.lru_cache(maxsize=4)
def _validation_set(task: str) -> tuple[Batch, ...]:
    """Kept, because a trial validates hundreds of times; only few, because an actor lives for many trials."""
    return tuple(_blocks("validate", Task.model_validate_json(task), VALIDATION_PROMPTS))


def canonical(task: Task) -> str:
    """The task as JSON without defaults: a new setting must not redraw the prompts of old records."""
    settings = task.model_dump(mode="json")
    for name, setting in type(task).model_fields.items():
        if not setting.is_required() and getattr(task, name) == setting.get_default(
            call_default_factory=True
        ):
            del settings[name]
    return json.dumps(settings, sort_keys=True)


def _block_size(task: Task) -> int:
    """So many prompts that solvers' matrices for every prefix, or a head's scores, fit into the budget."""
    prompt = task.prompt
    fits = BLOCK_BYTES // (8 * prompt.length * max(prompt.length, prompt.dim_in**2))
    return max(16, min(LARGEST_BLOCK, fits))


def suited(batch: Batch, predictor: Predictor, device: str) -> Batch:
    """The batch where the predictor computes, in the precision of its weights."""
    weights = next(predictor.parameters(), None) if isinstance(predictor, Net) else None
    return batch.to(device, None if weights is None else weights.dtype)
