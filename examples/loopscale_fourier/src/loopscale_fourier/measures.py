"""A further measure of predictions, which a study names under `evaluate.measures`."""

import torch
from torch import Tensor

from loopscale.core.prompt import Batch
from loopscale.tasks.base import Task


def wrong_sign(task: Task, prediction: Tensor, batch: Batch) -> Tensor:
    """The share of queries whose prediction has another sign than the target, [*steps, batch]."""
    return (torch.sign(prediction) != torch.sign(batch.targets)).to(prediction.dtype).mean((-2, -1))
