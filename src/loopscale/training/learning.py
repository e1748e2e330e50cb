"""The floor of a trial's task, kept beside the checkpoints, and the learning that a trial records of itself.

Most floors take less than a second, and every worker computes them. A reference such as `mixture_em` takes up to 20 s.
The first worker keeps a slow floor in a file. The other workers of the study read the file.
"""

import hashlib
import io
import json
import time
import zipfile
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, cast, get_args

import numpy as np
import torch

from loopscale.core.prompt_sets import VALIDATION_PROMPTS, Purpose
from loopscale.evaluate import canonical
from loopscale.regret import Floor, floor
from loopscale.stats.learning import History, How, recorded_learning
from loopscale.tasks.base import Task
from loopscale.training.checkpoint_stores import open_checkpoint_store
from loopscale.training.storage import CheckpointStore

VERSION = 1
"""Raised when the floor of a task changes. Files of another version are not read."""
FLOOR_SUFFIX = ".floor"
LEAST_SECONDS = 1.0
"""A floor that takes less time is not kept in a file."""


def kept_floor(
    store: CheckpointStore, task: Task, purpose: Purpose = "validate", prompts: int = VALIDATION_PROMPTS
) -> Floor:
    """The floor on a task's set of prompts: from this process, else from the store, else computed.

    Raises StorageUnavailable.
    """
    return _kept_floor(store.url, task.model_dump_json(), purpose, prompts)


@lru_cache(maxsize=8)
def _kept_floor(url: str, settings: str, purpose: Purpose, prompts: int) -> Floor:
    store, task = open_checkpoint_store(url), Task.model_validate_json(settings)
    name = floor_name(task, purpose, prompts)
    try:
        return _unpack(store.get(name))
    except (FileNotFoundError, ValueError, KeyError, EOFError, zipfile.BadZipFile):
        pass  # absent or damaged: the floor is computed again
    start = time.monotonic()
    computed = floor(task, purpose, prompts)
    if time.monotonic() - start >= LEAST_SECONDS:
        store.put(name, _pack(computed))
    return computed


def floor_name(task: Task, purpose: Purpose, prompts: int) -> str:
    """The name of the file of a floor."""
    parts = [VERSION, canonical(task), purpose, prompts, *([task.plugin] if task.plugin else [])]
    text = json.dumps(parts)
    return hashlib.sha256(text.encode()).hexdigest()[:16] + FLOOR_SUFFIX


def learning_metrics(history: Sequence[tuple[int, dict[str, float]]], known: Floor) -> dict[str, float]:
    """The metrics of `records.model.LEARNING`, from all reports of a finished training; empty without a floor.

    Parameters
    ----------
    history
        Step and metrics of every report.
    known
        The floor of the validation prompts.
    """
    if not history or not known.known:
        return {}
    steps = np.array([step for step, _ in history], np.float64)
    error = np.array([metrics["error"] for _, metrics in history])
    least, ignorance = float(known.error.mean()), float(known.ignorance.mean())
    return recorded_learning(History(steps, error, least, ignorance))


def _pack(known: Floor) -> bytes:
    arrays: dict[str, Any] = {"how": known.how, "name": known.name}
    arrays |= {"errors": known.errors, "ignorances": known.ignorances}
    if known.best is not None:
        arrays["best"] = known.best.numpy()
    file = io.BytesIO()
    np.savez(file, **arrays)
    return file.getvalue()


def _unpack(content: bytes) -> Floor:
    """The floor in a file. Raises ValueError, KeyError, EOFError or BadZipFile for other content."""
    with np.load(io.BytesIO(content), allow_pickle=False) as arrays:
        how, name = str(arrays["how"]), str(arrays["name"])
        if how not in get_args(How):
            raise ValueError(f"{how!r} is no kind of floor")
        best = torch.from_numpy(arrays["best"]) if "best" in arrays else None
        return Floor(cast(How, how), name, arrays["errors"], arrays["ignorances"], best)
