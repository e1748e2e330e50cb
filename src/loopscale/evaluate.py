"""The error of a predictor on a task: one measure, on the same prompts, for nets and classical algorithms.

Every task has two sets of prompts, which do not depend on a trial's seed. `validate` serves tuning and pruning,
`evaluate` serves reports. Both sets are drawn in blocks. The size of a block depends on the task only, so memory stays
bounded, and every predictor sees the same prompts on every machine and device.

A net that runs for more loops than in training may overflow. Its curve then contains inf or nan. This divergence is a
result, so no function here raises an error or clips values.
"""

import functools
import hashlib
import json
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from jaxtyping import Float, Float64
from pydantic import PositiveInt
from torch import Tensor

from loopscale.core.config import Config
from loopscale.core.plugins import named_function
from loopscale.core.prompt import Batch, Predictor
from loopscale.core.prompt_sets import EVALUATION_PROMPTS, VALIDATION_PROMPTS, Purpose
from loopscale.core.seeds import stream
from loopscale.models.base import Net
from loopscale.stats.contrasts import Array
from loopscale.tasks.base import Answer, Errors, Example, Prediction, Task

PLAY_REGRET, PLAY_REGRET_GREEDY = "play_regret", "play_regret_greedy"
"""Measures of acting whose running means records keep."""

BLOCK_BYTES = 2**26
LARGEST_BLOCK = 256
MEDIAN_BYTES = 2**28
"""Memory for single errors, from which medians are computed. A huge evaluation keeps only its first errors."""


class Evaluation(Config):
    """How finished trials are evaluated. These settings are no part of a trial: a change does not train again."""

    loops: PositiveInt = 20
    """Loops of the curve, also for nets trained with fewer loops."""
    prompts: PositiveInt = EVALUATION_PROMPTS
    """Prompts in every mean."""
    task: dict[str, Any] | None = None
    """Settings that replace settings of the training task, such as another condition or other data. With a `kind`:
    another task with prompts of the same shape. `None` to evaluate on the training task."""

    measures: tuple[str, ...] = ()
    """Further measures, as my_module:function or ./my_file.py:function relative to the study's file. A function takes
    the task, a prediction and the batch, and returns one number per prompt, as `Task.measures` does. Its name is the
    name of the measure. Records keep the hash of the file, so a changed file is evaluated again."""

    def further_measures(self, task: Task, prediction: Prediction, batch: Batch) -> dict[str, Tensor]:
        """The values of the further measures, [*steps, batch] by name. Raises MissingPlugin."""
        functions = {name: named_function(text) for name, text in zip(self.names, self.measures, strict=True)}
        return {name: function(task, prediction, batch) for name, function in functions.items()}

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the further measures."""
        return tuple(text.rpartition(" ")[0].rpartition(":")[2] for text in self.measures)

    @property
    def key(self) -> str:
        """The identity of the settings, 8 hexadecimal digits."""
        added = {"task"} if self.task is None else set[str]()  # so that older evaluations keep their keys
        added |= set() if self.measures else {"measures"}
        return hashlib.sha256(self.model_dump_json(exclude=added).encode()).hexdigest()[:8]

    def posed(self, trained: Task) -> Task:
        """The task on which a net trained on `trained` is evaluated.

        Raises ValueError if the settings are invalid, the prompts have another shape, the prompts contain answers that
        the training prompts do not contain, or the data are tables from training.
        """
        if self.task is None:
            return trained
        settings = self.task
        if settings.get("kind", trained.kind) == trained.kind:
            settings = trained.model_dump() | settings
        task = Task.model_validate(settings)
        old, new = trained.prompt, task.prompt
        if old != new:
            raise ValueError(
                f"trials read {old.length} tokens of {old.dim_in} numbers and answer with {old.dim_out}, but the "
                f"evaluated task has {new.length} of {new.dim_in} and {new.dim_out}; leave the sizes unchanged"
            )
        if trained.whole and not task.whole:
            raise ValueError(
                f"prompts of {task.kind} contain answers, prompts of {trained.kind} do not; "
                f"write a task without answers"
            )
        if shared := sorted(set(trained.tables) & set(task.tables)):
            raise ValueError(f"trials are trained on {', '.join(shared)}; evaluate on other tables")
        return task


@dataclass(frozen=True)
class Curve:
    """Errors after every loop (row 0 is loop 1) at every query, averaged over prompts.

    inf and nan stay where the predictor overflowed.
    """

    error: Float64[np.ndarray, "loops points"]
    sem: Float64[np.ndarray, "loops points"]
    """Standard error of `error`; nan for a single prompt."""
    raw: Float64[np.ndarray, "loops points"]
    """The error before division by the variance of the target."""
    measures: dict[str, Float64[np.ndarray, " loops"]] = field(default_factory=dict)
    """Other measures of the task by name, averaged over all queries."""
    median: Float64[np.ndarray, "loops points"] | None = None
    """Median over prompts, if measured. Beyond the loops of training, a few prompts may explode and dominate the mean,
    while most prompts stay stable."""
    seen: tuple[int, ...] | None = None
    """Number of pairs before each query; `None` for 0, 1, 2 .."""
    regret: "RegretCurve | None" = None
    """The regret, if a floor or a reference is known."""
    play: "PlayCurve | None" = None
    """The pseudo-regret of play after every round, for tasks in which a predictor acts."""


@dataclass(frozen=True)
class RegretCurve:
    """Regrets after every loop (row 0 is loop 1) at every query, averaged over prompts."""

    regret: Float64[np.ndarray, "loops points"]
    sem: Float64[np.ndarray, "loops points"]
    """Standard error of `regret` over prompts."""
    mean_sem: Float64[np.ndarray, " loops"]
    """Standard error of the mean over queries. The regrets of one prompt are correlated."""

    def summary(self, loop: int) -> dict[str, float]:
        """The mean over queries and the last query at `loop` (counted from 1), with standard errors over prompts."""
        row = loop - 1
        return {
            "regret": float(self.regret[row].mean()),
            "regret_sem": float(self.mean_sem[row]),
            "regret_last": float(self.regret[row, -1]),
            "regret_last_sem": float(self.sem[row, -1]),
        }


@dataclass(frozen=True)
class PlayCurve:
    """The cumulative pseudo-regret of play after every round, averaged over games, in units of the reward.

    The predictor acts after `loop`. Point k of a curve is the round in which the predictor answers query k.
    """

    loop: int
    sampled: Float64[np.ndarray, " points"]
    sem: Float64[np.ndarray, " points"]
    """The standard error of `sampled` over games."""
    greedy: Float64[np.ndarray, " points"]


@dataclass(frozen=True)
class Acting:
    """The measures of acting of a predictor."""

    values: dict[str, float]
    """The mean of every measure over games, and its standard error over games (`NAME_sem`)."""
    play: PlayCurve | None = None
    """The running pseudo-regret, if the task has one."""
    examples: tuple[Example, ...] = ()
    """Answers that a person can read."""


@runtime_checkable
class PromptFloor(Protocol):
    """The floor of a set of prompts (`loopscale.regret.Floor`)."""

    @property
    def known(self) -> bool:
        """True if a floor or a reference is known."""
        ...

    def regret(self, task: Task, prediction: Prediction, batch: Batch, start: int = 0) -> Errors:
        """The regret of every prompt of a batch that begins at prompt `start` of the set."""
        ...


class _Moments:
    """Sums of values and of their squares over prompts."""

    def __init__(self) -> None:
        self.total: Tensor | float = 0.0
        self.squares: Tensor | float = 0.0

    def add(self, values: Float[Tensor, "loops prompts *points"]) -> None:
        self.total = self.total + values.sum(1)
        self.squares = self.squares + values.square().sum(1)

    def mean_and_sem(self, count: int) -> tuple[Array, Array]:
        """The mean over `count` prompts and its standard error, which is nan for a single prompt."""
        mean = torch.as_tensor(self.total / count)
        variance = (self.squares / count - mean.square()).clamp(min=0)
        sem = (variance / (count - 1)).sqrt() if count > 1 else torch.full_like(mean, torch.nan)
        return mean.cpu().numpy(), sem.cpu().numpy()


@torch.no_grad()
def error_curve(
    predictor: Predictor, task: Task, steps: int, rng: torch.Generator, prompts: int = 256
) -> Float[Tensor, "steps points"]:
    """The mean error after every step at every query, over `prompts` fresh prompts drawn from `rng`."""
    batch = suited(task.sample(prompts, rng), predictor, "cpu")
    return task.error(predictor.predict(batch, steps), batch).mean(1)


@torch.no_grad()
def evaluate(
    predictor: Predictor,
    task: Task,
    evaluation: Evaluation,
    device: str = "cpu",
    floor: PromptFloor | None = None,
    purpose: Purpose = "evaluate",
) -> Curve:
    """The curve on the evaluation set of the task. A net is moved to `device`. A net of fixed depth stops there.

    `floor` is the floor of the same prompts. With a floor, the curve has the regret, from the same forward pass.
    """
    loops = evaluation.loops
    if isinstance(predictor, Net):
        predictor.to(device)
        loops = min(loops, predictor.depth or loops)
    zero = torch.zeros((), dtype=torch.float64, device=device)
    errors, regrets, mean_regrets, raw = _Moments(), _Moments(), _Moments(), zero
    measures, measured = defaultdict[str, Tensor](lambda: zero), defaultdict[str, int](int)
    single_errors, room, start = list[Tensor](), MEDIAN_BYTES, 0
    for block in prompt_set(purpose, task, evaluation.prompts):
        batch = suited(block, predictor, device)
        prediction = predictor.predict(batch, loops)
        error = task.error(prediction, batch).double()
        errors.add(error)
        if floor and floor.known:
            regret = floor.regret(task, prediction, batch, start).double()
            regrets.add(regret)
            mean_regrets.add(regret.mean(-1))
        start += error.shape[1]
        if room > 0:
            single_errors.append(error.float().cpu())
            room -= single_errors[-1].nbytes
        raw = raw + task.raw_error(prediction, batch).double().sum(1)
        others = task.measures(prediction, batch) | task.probes(predictor, batch, loops)
        others |= evaluation.further_measures(task, prediction, batch)
        for name, values in others.items():
            measures[name] = measures[name] + values.double().sum(1)
            measured[name] += values.shape[1]
    count = evaluation.prompts
    means = {name: (sums / measured[name]).cpu().numpy() for name, sums in measures.items()}
    # An error of nan means that the prompt exploded, so nan counts as above the median.
    ordered = torch.nan_to_num(torch.cat(single_errors, dim=1), nan=torch.inf, posinf=torch.inf)
    median = np.median(ordered.numpy(), axis=1).astype(np.float64)
    of_regret = None
    if floor and floor.known:
        of_regret = RegretCurve(*regrets.mean_and_sem(count), mean_regrets.mean_and_sem(count)[1])
    mean, sem = errors.mean_and_sem(count)
    return Curve(mean, sem, (raw / count).cpu().numpy(), means, median, task.seen, of_regret)


@torch.no_grad()
def acting(predictor: Predictor, task: Task, loop: int, device: str = "cpu") -> Acting:
    """The task's measures of acting after `loop`.

    Empty for tasks without such measures. A net of fixed depth acts after its last layer at most. A net that overflows
    has measures of nan.
    """
    if isinstance(predictor, Net):
        predictor.to(device)
    answer = _answerer(predictor, loop)
    values, running = dict[str, float](), dict[str, tuple[Array, Array]]()

    def on_device(batch: Batch) -> Tensor:
        return answer(suited(batch, predictor, device))

    for name, games in task.outcomes(on_device).items():
        mean, sem = games.double().mean(0), games.double().std(0) / len(games) ** 0.5
        values[name], values[f"{name}_sem"] = (float(each.flatten()[-1]) for each in (mean, sem))
        if games.dim() > 1:
            running[name] = mean.cpu().numpy(), sem.cpu().numpy()
    if not running.keys() >= {PLAY_REGRET, PLAY_REGRET_GREEDY}:
        return Acting(values, examples=tuple(task.examples(on_device)))
    return Acting(values, PlayCurve(loop, *running[PLAY_REGRET], running[PLAY_REGRET_GREEDY][0]))


def outcomes(predictor: Predictor, task: Task, loop: int, device: str = "cpu") -> dict[str, float]:
    """The means of `acting` and their standard errors."""
    return acting(predictor, task, loop, device).values


def _answerer(predictor: Predictor, loop: int) -> Answer:
    """A function that answers a prompt after `loop`, or after the last layer."""
    if isinstance(predictor, Net):
        return predictor.answerer(min(loop, predictor.depth or loop))
    return lambda batch: predictor.predict(batch, loop)[-1]


@torch.no_grad()
def validation_errors(net: Net, task: Task, steps: int, device: str = "cpu") -> Float64[Tensor, " points"]:
    """The mean error at every query after `steps`, on the validation set. The tensor is still on `device`.

    A net trained in bf16 runs in float32 here and in `evaluate`, because the weights are judged and not the arithmetic
    of training. Only step `steps` is read out, which saves the read-out of earlier steps.
    """
    net.to(device)
    total = torch.zeros((), dtype=torch.float64, device=device)
    for batch in _validation_set(task.model_dump_json(), device, next(net.parameters()).dtype):
        prediction = net.answers(batch, steps, first=steps)
        total = total + task.error(prediction, batch).double().sum((0, 1))
    return total / VALIDATION_PROMPTS


def summary(curve: Curve, task: Task, loop: int) -> dict[str, float]:
    """The numbers by which a trial is ranked and reported, at `loop` (counted from 1).

    Raises ValueError if the curve does not contain `loop`.
    """
    if not 1 <= loop <= len(curve.error):
        raise ValueError(f"loop {loop} is not on the curve; 1 .. {len(curve.error)} are")
    error, raw = curve.error[loop - 1], float(curve.raw[loop - 1].mean())
    return {
        "error": float(error.mean()),
        "error_last": float(error[-1]),
        "raw_error": raw,
        "excess": raw - task.noise_variance,
        **(curve.regret.summary(loop) if curve.regret else {}),
        **{name: float(values[loop - 1]) for name, values in curve.measures.items()},
    }


def prompt_set(purpose: Purpose, task: Task, prompts: int) -> Iterator[Batch]:
    """The set of prompts named `purpose`, block by block."""
    name, size = canonical(task), _block_size(task)
    for number, start in enumerate(range(0, prompts, size)):
        block = range(start, min(start + size, prompts))
        yield task.held_out(purpose, prompts, block, stream(purpose, name, number))


@functools.lru_cache(maxsize=4)
def _validation_set(task: str, device: str, dtype: torch.dtype) -> tuple[Batch, ...]:
    """Cached, because a trial validates hundreds of times. The cache is small, because an actor runs many trials."""
    blocks = prompt_set("validate", Task.model_validate_json(task), VALIDATION_PROMPTS)
    return tuple(block.for_nets(device, dtype) for block in blocks)


def canonical(task: Task) -> str:
    """The task as JSON without defaults. So a new setting does not change the prompts of old records.

    The version of a plugin is left out too: all versions of a task draw from the same named stream.
    """
    settings = task.model_dump(mode="json")
    settings.pop("plugin", None)
    for name, setting in type(task).model_fields.items():
        default = None if setting.is_required() else setting.get_default(call_default_factory=True)
        if name in task.places or (not setting.is_required() and getattr(task, name) == default):
            del settings[name]
    return json.dumps(settings, sort_keys=True)


def _block_size(task: Task) -> int:
    """Prompts per block: the solvers' matrices for every prefix, or the scores of a head, fit into `BLOCK_BYTES`."""
    prompt = task.prompt
    if prompt.vocabulary:  # the logits of all loops
        return max(1, min(LARGEST_BLOCK, BLOCK_BYTES // (16 * prompt.length * prompt.vocabulary)))
    fits = BLOCK_BYTES // (8 * prompt.length * max(prompt.length, prompt.dim_in**2))
    return max(16, min(LARGEST_BLOCK, fits))


def suited(batch: Batch, predictor: Predictor, device: str) -> Batch:
    """The batch on `device`, in the precision of the predictor's weights."""
    weights = next(predictor.parameters(), None) if isinstance(predictor, Net) else None
    return batch.to(device, None if weights is None else weights.dtype)
