"""How well a predictor does on a task: the same measure for trained nets and classical algorithms."""

import torch
from jaxtyping import Float
from torch import Tensor

from loopscale.core.prompt import Predictor
from loopscale.tasks.base import Task


@torch.no_grad()
def error_curve(
    predictor: Predictor, task: Task, steps: int, rng: torch.Generator, prompts: int = 256
) -> Float[Tensor, "steps points"]:
    """The mean error at every step and every query, over fresh prompts."""
    batch = task.sample(prompts, rng)
    return task.error(predictor.predict(batch, steps), batch).mean(1)
