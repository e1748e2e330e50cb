"""Trained nets, brought back from the records, and evaluated again on their own or another data condition."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pandas as pd
from pydantic import ValidationError

from loopscale.analysis.tables import StudyTable, answers
from loopscale.evaluate import Evaluation, evaluate, summary
from loopscale.models.base import Net
from loopscale.records.model.errors import StoreError
from loopscale.records.stores.base import Store
from loopscale.records.weights import weights_of
from loopscale.studies.limits import too_large
from loopscale.studies.mistakes import Mistake, Mistakes, one_of
from loopscale.studies.override import overridden
from loopscale.studies.source import Source
from loopscale.studies.wording import faults, passed_off
from loopscale.training.checkpoint import CorruptCheckpoint, NewerFormat, load_net, load_trial, place
from loopscale.training.device import pick
from loopscale.training.storage import CheckpointStore
from loopscale.training.trial import Trial


class Unfit(ValueError):
    """A net cannot do what is asked of it. The text: `<what is wrong>; <what would be right>`."""


@dataclass(frozen=True)
class Trained:
    """A net as its training left it, on the CPU, and the trial that it is of: its task, model, training and seed."""

    trial: Trial
    net: Net


def nets(store: Store, study: StudyTable, trials: pd.DataFrame, cell: str = "") -> Iterator[Trained]:
    """The nets of the trials that speak for a cell, given by label or key; by none if the study has only one.

    Raises ValueError for what is no cell, StoreError where the weights are not to be had.
    """
    for key in answers(trials, _cell(study, cell))[0]["trial"]:
        with weights_of(store, key) as (shelf, found), _said(shelf, found):
            trial = load_trial(shelf, found)
            net = load_net(shelf, found, trial)
        yield Trained(trial, net)


def predicted(
    store: Store, start: str, changes: Mapping[str, str], loops: int | None = None, prompts: int = 1024
) -> dict[str, Any]:
    """A trained net's errors after every loop, by the start of its trial's key, with settings of its task changed.

    `changes` are YAML by dotted path. Raises Unfit, Mistakes, StoreError.
    """
    with weights_of(store, start) as (shelf, key):
        with _said(shelf, key):
            trial = load_trial(shelf, key)
        task = _changed(trial, changes).task  # before a net is made, which a stranger's file may make large
        with _said(shelf, key):
            net = load_net(shelf, key, trial)
    if net.depth and loops and loops > net.depth:
        raise Unfit(f"--loops {loops} is more than this net's {net.depth} layers; give {net.depth} or fewer")
    evaluation = Evaluation(loops=loops or max(trial.steps_per_prompt, Evaluation().loops), prompts=prompts)
    try:
        curve = evaluate(net, task, evaluation, pick("auto"))
    except ValueError as problem:  # a longer prompt than it has positions for
        raise Unfit(f"trial {trial.key} cannot read such prompts: {problem}") from problem
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


def _cell(study: StudyTable, named: str) -> str:
    """The key of a cell."""
    cells = {cell["key"]: cell["label"] for cell in study["cells"]}
    found = [key for key, label in cells.items() if named in (key, label) or (not named and len(cells) == 1)]
    if not found:
        what = f"there is no cell {named!r}" if named else "there are several cells"
        raise ValueError(f"{what}; {one_of(named, cells.values())}")
    return found[0]


@contextmanager
def _said(shelf: CheckpointStore, key: str) -> Iterator[None]:
    """What is wrong with a file of weights, as one line."""
    try:
        yield
    except FileNotFoundError as problem:
        raise StoreError(f"{place(shelf, key)} is gone", "try again") from problem
    except (CorruptCheckpoint, NewerFormat, ValueError) as problem:
        raise StoreError(str(problem), "`loopscale run` of its study goes on from what is left") from problem


def _changed(trial: Trial, changes: Mapping[str, str]) -> Trial:
    """The trial on another data condition. Raises Unfit and Mistakes."""
    for path in changes:
        if not path.startswith("task."):
            raise Unfit(
                f"--set {path} would be another net; only settings of the task can change, such as task.noise"
            )
    tree = overridden(Source.of({"fixed": trial.model_dump(mode="json")}, trial.key), changes).tree["fixed"]
    try:
        changed = type(trial).model_validate(tree)
    except ValidationError as problem:
        said = "--set " + " ".join(f"{path}={value}" for path, value in changes.items())
        found = faults(problem, type(trial), tree)
        raise Mistakes(Mistake(said, None, fault.what, fault.remedy) for fault in found) from None
    passed = [*passed_off(tree, changed), *too_large(changed)]
    if passed:
        said = "--set " + " ".join(f"{path}={value}" for path, value in changes.items())
        raise Mistakes(Mistake(said, None, fault.what, fault.remedy) for fault in passed)
    was, now = trial.task.prompt, changed.task.prompt
    if (was.dim_in, was.dim_out) != (now.dim_in, now.dim_out):
        raise Unfit(
            f"trial {trial.key} reads tokens of {was.dim_in} numbers, the changed task has {now.dim_in}; "
            "leave the dimensions as they are"
        )
    return changed
