"""Trained nets from the records, evaluated again on their own or on another data condition."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from loopscale.analysis.recorded.results import CellResult, Results
from loopscale.core.plugins import MissingPlugin
from loopscale.evaluate import Evaluation, evaluate, summary
from loopscale.models.base import Net
from loopscale.notation.files import YamlTree, with_overrides
from loopscale.notation.mistakes import Mistake, Mistakes
from loopscale.notation.plugins import load_named_plugins
from loopscale.notation.settings import coercions, size_faults, validation_faults
from loopscale.records.model import StoreError
from loopscale.records.stores.base import Store
from loopscale.records.weights import weights_of
from loopscale.training.checkpoint import CorruptCheckpoint, NewerFormat, load_net, load_trial, place
from loopscale.training.device import pick
from loopscale.training.storage import CheckpointStore
from loopscale.training.trial import Trial


class UnsuitableNet(ValueError):
    """A net does not fit the request. The text has the form `<problem>; <remedy>`."""


@dataclass(frozen=True)
class TrainedNet:
    """A net at the end of its training, on the CPU, and its trial: task, model, training and seed."""

    trial: Trial
    net: Net


def trained_nets(results: Results, cell: CellResult) -> Iterator[TrainedNet]:
    """The nets of the trials that answer for a cell. Raises StoreError if the weights are missing."""
    assert results.store
    for run in cell.runs:
        with weights_of(results.store, run.trial) as (checkpoints, key), _one_line_errors(checkpoints, key):
            trial = load_trial(checkpoints, key)
            net = load_net(checkpoints, key, trial)
        yield TrainedNet(trial, net)


def predict_again(
    store: Store, start: str, changes: Mapping[str, str], loops: int | None = None, prompts: int = 1024
) -> dict[str, Any]:
    """The errors of a trained net after every loop, with changed settings of its task.

    Parameters
    ----------
    start
        The start of the trial's key.
    changes
        YAML values by dotted path.

    Raises
    ------
    UnsuitableNet, Mistakes, StoreError
    """
    with weights_of(store, start) as (checkpoints, key):
        with _one_line_errors(checkpoints, key):
            try:
                trial = load_trial(checkpoints, key)
            except MissingPlugin:  # the file of one of the studies may name the plugin
                for study in store.studies():
                    load_named_plugins(study)
                trial = load_trial(checkpoints, key)
        # The changes are checked before the net is built, because a file may ask for a very large net.
        task = _with_changes(trial, changes).task
        with _one_line_errors(checkpoints, key):
            net = load_net(checkpoints, key, trial)
    if net.depth and loops and loops > net.depth:
        raise UnsuitableNet(
            f"--loops {loops} is more than this net's {net.depth} layers; give {net.depth} or fewer"
        )
    evaluation = Evaluation(loops=loops or max(trial.steps_per_prompt, Evaluation().loops), prompts=prompts)
    try:
        curve = evaluate(net, task, evaluation, pick("auto"))
    except ValueError as problem:  # the prompts are longer than the positions of the net
        raise UnsuitableNet(f"trial {trial.key} cannot read these prompts: {problem}") from problem
    rows = [{"loop": loop} | summary(curve, task, loop) for loop in range(1, len(curve.error) + 1)]
    return {
        "trial": trial.key,
        "model": trial.model.kind,
        "task": task.kind,
        "looped": net.depth is None,
        "trained_loops": trial.steps_per_prompt,
        "prompts": prompts,
        "settings": trial.model_copy(update={"task": task}).model_dump(mode="json"),
        "loops": rows,
    }


@contextmanager
def _one_line_errors(checkpoints: CheckpointStore, key: str) -> Iterator[None]:
    """Raises StoreError with one line for every error in a file of weights."""
    try:
        yield
    except FileNotFoundError as problem:
        raise StoreError(f"{place(checkpoints, key)} is gone", "try again") from problem
    except (CorruptCheckpoint, NewerFormat, ValueError) as problem:
        raise StoreError(
            str(problem), "`loopscale run` of its study continues from the remaining files"
        ) from problem


def _with_changes(trial: Trial, changes: Mapping[str, str]) -> Trial:
    """The trial on another data condition. Raises UnsuitableNet, Mistakes."""
    for path in changes:
        if not path.startswith("task."):
            raise UnsuitableNet(
                f"--set {path} would need another net; only settings of the task can change, such as task.noise"
            )
    tree = with_overrides(YamlTree.of({"fixed": trial.model_dump(mode="json")}, trial.key), changes).tree[
        "fixed"
    ]
    try:
        changed = type(trial).model_validate(tree)
    except ValidationError as problem:
        raise _mistakes(changes, validation_faults(problem, type(trial), tree)) from None
    if problems := [*coercions(tree, changed), *size_faults(changed)]:
        raise _mistakes(changes, problems)
    before, after = trial.task.prompt, changed.task.prompt
    if (before.dim_in, before.dim_out) != (after.dim_in, after.dim_out):
        raise UnsuitableNet(
            f"trial {trial.key} reads tokens of {before.dim_in} numbers, the changed task has {after.dim_in}; "
            "leave the dimensions as they are"
        )
    return changed


def _mistakes(changes: Mapping[str, str], problems: Iterable[Any]) -> Mistakes:
    option = "--set " + " ".join(f"{path}={value}" for path, value in changes.items())
    return Mistakes(Mistake(option, None, fault.what, fault.remedy) for fault in problems)
