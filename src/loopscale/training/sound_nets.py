"""Nets of plugins that are no function of seed and prompt: refused before training, because records would mislead."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import torch
from torch import Tensor

from loopscale.core.cheap_imports import without_compiler
from loopscale.core.plugins import PluginError, contract_error, fault_of_plugin, owner_in_plugin
from loopscale.core.prompt import Batch
from loopscale.core.seeds import stream
from loopscale.models.base import Model, Net
from loopscale.models.plain import PlainModel
from loopscale.tasks.base import Task
from loopscale.training.device import dtype
from loopscale.training.trial import Trial

MOST_WEIGHTS = 10**8
"""A net with more weights is not examined. Two such nets fill 0.8 GB of the driver."""
EXAMINED_PROMPTS = 2
TOLERANCE = 1e-4
"""The largest rounding error of a prediction, relative to the largest prediction."""


def require_sound_net(trial: Trial, weights: int) -> None:
    """Build nets of the trial on the CPU and examine their weights and predictions. Equal models are examined once.

    Parameters
    ----------
    weights
        Number of weights of the net.

    Raises
    ------
    PluginError
        Two nets of one seed differ, or nets of two seeds are equal. Two passes over the same prompts differ. A net that
        declares no looking ahead changes a prediction with later tokens.
    """
    if weights <= MOST_WEIGHTS:
        options = trial.training
        model, task = trial.model.model_dump_json(), trial.task.model_dump_json()
        _examine(model, task, trial.steps_per_prompt, dtype(options.precision))


@cache
def _examine(model_text: str, task_text: str, steps: int, precision: torch.dtype) -> None:
    model, task = Model.model_validate_json(model_text), Task.model_validate_json(task_text)
    net = _require_own_weights(model, task).to(precision)
    batch, later = (
        task.sample(EXAMINED_PROMPTS, stream("sound net", name)).to("cpu", precision)
        for name in ("prompts", "later tokens")
    )
    try:
        with torch.no_grad(), without_compiler(), _own_draws(0):
            answers = net.answers(batch, steps)
            _require_same_pass(model, net, answers, net.answers(batch, steps))
            if not (task.whole or model.looks_ahead):
                _require_no_look_ahead(model, net, batch, later, answers)
    except NotImplementedError:
        return  # an operation for GPUs alone
    except Exception as problem:
        if isinstance(problem, PluginError) or fault_of_plugin(problem):
            raise
        what = f"fails on a prompt ({type(problem).__name__}: {problem})"
        raise contract_error(_author(net, model), "forward", what) from problem


def _require_own_weights(model: Model, task: Task) -> Net:
    """The net of seed 0, if the seed determines its weights. Raises PluginError."""
    method = "module" if isinstance(model, PlainModel) else "build"
    net, again = _built(model, task, 0, draws=0), _built(model, task, 0, draws=1)
    if name := _first_difference(net, again):
        what = f"makes two nets of one seed with different weights {name}"
        raise contract_error(type(model), method, what)
    del again
    other = _built(model, task, 1, draws=2)
    drawn = any(len(weight[weight != 0].unique()) > 1 for weight in net.parameters())
    if drawn and not _first_difference(net, other):
        raise contract_error(type(model), method, "makes nets of two seeds with the same weights")
    return net


def _built(model: Model, task: Task, seed: int, draws: int) -> Net:
    with _own_draws(draws):
        return model.build(task.prompt, stream(seed))


@contextmanager
def _own_draws(seed: int) -> Iterator[None]:
    """Inside, PyTorch's global generator has this seed. Outside, the generator stays as it is."""
    with torch.random.fork_rng(devices=()):
        torch.default_generator.manual_seed(seed)
        yield


def _first_difference(net: Net, other: Net) -> str:
    """The name of the first weight that differs between two nets of one shape; empty if there is none."""
    pairs = zip(net.named_parameters(), other.parameters(), strict=True)
    return next((name for (name, weight), second in pairs if not torch.equal(weight, second)), "")


def _require_same_pass(model: Model, net: Net, first: Tensor, second: Tensor) -> None:
    """Raises PluginError if the answers of two passes differ."""
    if _differ(first, second):
        what = "gives other predictions in a second pass over the same prompts, as dropout or noise does"
        raise contract_error(_author(net, model), "forward", what)


def _require_no_look_ahead(model: Model, net: Net, batch: Batch, later: Batch, answers: Tensor) -> None:
    """Raises PluginError if the prediction at a query depends on tokens after the query."""
    steps, points = len(answers), len(batch.queries)
    for point in sorted({0, points // 2, points - 1}):
        changed = net.answers(_with_later(batch, later, int(batch.queries[point])), steps)
        if _differ(answers[:, :, : point + 1], changed[:, :, : point + 1]):
            what = "looks ahead: tokens after a query change the prediction at this query"
            raise contract_error(_author(net, model), "forward", what)


def _with_later(batch: Batch, later: Batch, query: int) -> Batch:
    """The prompts with other tokens after a query."""
    tokens = torch.cat([batch.tokens[:, : query + 1], later.tokens[:, query + 1 :]], dim=1)
    return batch.asking(tokens, batch.targets)


def _differ(before: Tensor, after: Tensor) -> bool:
    scale = float(before.nan_to_num().abs().max())
    return not torch.allclose(before, after, rtol=0, atol=TOLERANCE * scale, equal_nan=True)


def _author(net: Net, model: Model) -> type:
    """The outermost class of the net that stands in a plugin; the model's class if there is none."""
    return owner_in_plugin(*map(type, net.modules()), type(model))
