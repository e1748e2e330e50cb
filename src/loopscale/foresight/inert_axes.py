"""Axes of a task or a model without effect, found by drawing prompts and building nets.

A setting may have no effect given the other settings, or because the code of a plugin never reads the setting. Two
values are equal if prompts of one seed are the same, or if nets of one seed have the same weights, predictions and
gradients.
"""

from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import combinations
from typing import Any, cast

import torch
from torch import Tensor

from loopscale.core.cheap_imports import without_compiler
from loopscale.core.config import leaves
from loopscale.core.seeds import stream
from loopscale.models.base import Model
from loopscale.studies.spec import Study
from loopscale.tasks.base import Task
from loopscale.training.trial import LOOPED_ONLY, Trial

COMPARED_PARTS = ("task", "model")
COMPARED_PROMPTS, NET_PROMPTS = 256, 2
"""Prompts of a task, and prompts that a net reads."""
MOST_COMPARED = 12
"""Pairs of trials that are compared for an axis."""
MOST_WEIGHTS_COMPARED = 10**6
"""Larger nets are not built, because a plan takes seconds."""

Fingerprint = tuple[Tensor | str, ...]


def inert_remarks(study: Study) -> Iterator[str]:
    """Yield one sentence for each axis of a task or a model that changes nothing, in all cells or in some.

    Fixed settings of loops change nothing if no net has loops.
    """
    trials = study.layout.trials
    if all(trial.model.depth is not None for trial in trials.values()):
        unread = [f"training.{name}" for name in study.fixed.get("training", {}) if name in LOOPED_ONLY]
        if unread:
            yield f"fixed sets {' and '.join(unread)}, and no net of the study has loops; take such settings out"
    scientific = dict[str, list[tuple[Trial, Trial, str]]]()
    for first, second in combinations(study.cells(), 2):
        paths = [path for path, value in first.written.items() if second.written.get(path) != value]
        if len(paths) == 1 and _is_plain(paths[0], first.written[paths[0]]):
            scientific.setdefault(paths[0], []).append((trials[first.key], trials[second.key], first.label))
    for path, pairs in scientific.items():
        yield from _remark(path, "scientific", pairs)
    tuned = dict[str, list[tuple[Trial, Trial, str]]]()
    for cell in study.cells():
        for corner in study.layout.corners[cell.key]:
            paths = _different(trials[cell.key], corner)
            if len(paths) == 1 and _is_plain(paths[0], 0) and paths[0] in study.space(cell):
                tuned.setdefault(paths[0], []).append((trials[cell.key], corner, cell.label))
    for path, pairs in tuned.items():
        yield from _remark(path, "nuisance", pairs)


def _is_plain(path: str, value: Any) -> bool:
    """True for one setting of a task or a model, as opposed to a whole task or model."""
    return path.partition(".")[0] in COMPARED_PARTS and "." in path and not isinstance(value, dict)


def _different(first: Trial, second: Trial) -> list[str]:
    """The paths of the settings of task and model in which two trials differ, and of all other settings."""
    settings = [dict(leaves(each.settings)) for each in (first, second)]
    return [
        path
        for path in settings[0].keys() | settings[1].keys()
        if settings[0].get(path) != settings[1].get(path)
    ]


def _remark(path: str, kind: str, pairs: list[tuple[Trial, Trial, str]]) -> Iterator[str]:
    compared = pairs[:MOST_COMPARED]
    equal = [label for first, second, label in compared if _are_equal(path, first, second)]
    if not equal:
        return
    same = "prompts" if path.startswith("task.") else "nets"
    if len(equal) == len(compared):
        yield f"{path} changes nothing: all its values give the same {same}; take {path} out of {kind}"
    else:
        yield f"{path} changes nothing in some cells, as in {equal[0]}: other values give the same {same} there"


def _are_equal(path: str, first: Trial, second: Trial) -> bool:
    prints = _prompts_of if path.startswith("task.") else _net_of
    one, other = prints(first), prints(second)
    return bool(one) and len(one) == len(other) and all(map(_same, one, other))


def _same(one: Tensor | str, other: Tensor | str) -> bool:
    if isinstance(one, str) or isinstance(other, str):
        return one is other or (isinstance(one, str) and isinstance(other, str) and one == other)
    return one.shape == other.shape and torch.equal(one, other)


def _prompts_of(trial: Trial) -> Fingerprint:
    return _prompts(trial.task.model_dump_json())


@lru_cache(maxsize=64)
def _prompts(settings: str) -> Fingerprint:
    """Prompts of one seed, with errors, loss and measures of a random guess, and the floor."""
    task = Task.model_validate_json(settings)
    batch = task.sample(COMPARED_PROMPTS, stream("inert axes"))
    guess = torch.randn(task.blank(batch).shape, generator=stream("inert axes", "guess"))
    words = f"{task.prompt} {task.whole} {task.seen} {task.floor_rule} {task.games} {task.noise_variance}"
    measures = task.measures(guess[None], batch)
    judged = task.raw_error(guess, batch), task.error(guess, batch), task.loss(guess, batch)
    return (
        batch.tokens,
        batch.targets,
        batch.queries,
        *judged,
        words,
        *measures.values(),
        _problem(batch.problem),
    )


def _problem(problem: Any) -> str:
    """What solvers read beside the prompt, without tensors."""
    values = cast("dict[str, object]", vars(problem))
    return str(sorted((name, repr(value)) for name, value in values.items() if not isinstance(value, Tensor)))


def _net_of(trial: Trial) -> Fingerprint:
    return _net(trial.model.model_dump_json(), trial.task.model_dump_json(), trial.steps_per_prompt)


@lru_cache(maxsize=64)
def _net(model_text: str, task_text: str, steps: int) -> Fingerprint:
    """The weights of one seed, the predictions after every step, and the gradients; empty if they are unknown."""
    model, task = Model.model_validate_json(model_text), Task.model_validate_json(task_text)
    with torch.device("meta"):
        weights = sum(weight.numel() for weight in model.build(task.prompt, stream(0)).parameters())
    if weights > MOST_WEIGHTS_COMPARED:
        return ()
    with torch.random.fork_rng(devices=()), without_compiler():  # pyright: ignore[reportUnknownMemberType]
        torch.default_generator.manual_seed(0)
        net = model.build(task.prompt, stream(0))
        try:
            answers = net.answers(task.sample(NET_PROMPTS, stream("inert axes", "net")), steps)
        except NotImplementedError:
            return ()  # an operation for GPUs alone
        answers.square().sum().backward()  # pyright: ignore[reportUnknownMemberType]
    gradients: Iterable[Tensor] = (weight.grad for weight in net.parameters() if weight.grad is not None)
    costs = f"{model.depth} {model.truncatable} {model.recomputable} {model.kept_factor}"
    return *net.parameters(), answers.detach(), *gradients, costs
