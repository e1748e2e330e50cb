"""The prompts of a training, on the device of the net. A thread draws the prompts of a GPU ahead of the steps."""

from concurrent.futures import Future, ThreadPoolExecutor
from functools import lru_cache

import torch
from torch import Tensor

from loopscale.core.prompt import Batch
from loopscale.core.seeds import stream
from loopscale.tasks.base import Task
from loopscale.training.trial import Trial

AHEAD = 2
"""Steps whose prompts are drawn in advance."""


class Prompts:
    """The batch of every step. A batch depends on the trial and the step only, not on the order of the steps.

    With `training.pool`, steps see the batches of the pool again and again.
    """

    def __init__(self, trial: Trial, device: str, dtype: torch.dtype, ahead: bool | None = None) -> None:
        """`ahead` tells whether a thread draws. By default a thread draws for a GPU."""
        self.trial, self.device, self.dtype = trial, device, dtype
        self._there = trial.training.data == "device"
        ahead = device == "cuda" if ahead is None else ahead
        self._thread = ThreadPoolExecutor(1, "prompts") if ahead and not self._there else None
        self._drawn: dict[int, Future[Batch]] = {}

    def take(self, step: int) -> Batch:
        """The batch of `step`, without the problem."""
        if self._there:
            number = self.trial.training.batch_of(step)
            seed = stream(self.trial.seed, "train on the device", number).initial_seed()
            rng = torch.Generator(self.device).manual_seed(seed)
            return drawn_there(self.trial.stage(step), self.trial.training.batch_size, rng, self.dtype)
        if self._thread is None:
            return self._draw(step).for_nets(self.device, self.dtype)
        wanted = range(step, max(step, min(step + AHEAD, self.trial.training.steps)) + 1)
        self._drawn = {n: self._drawn.get(n) or self._thread.submit(self._draw, n) for n in wanted}
        return self._drawn.pop(step).result().for_nets(self.device)

    def close(self) -> None:
        """Wait for the thread to end. The batches that the thread has drawn are lost."""
        if self._thread:
            self._thread.shutdown(cancel_futures=True)

    def _draw(self, step: int) -> Batch:
        """The prompts on the CPU. A thread also converts them, and pins them for a GPU."""
        number = self.trial.training.batch_of(step)
        batch = self.trial.stage(step).training_batch(self.trial.training.batch_size, self.trial.seed, number)
        if self._thread is None:
            return batch
        batch = batch.for_nets("cpu", self.dtype)
        if self.device != "cuda":
            return batch
        return batch.changed(Tensor.pin_memory)


def drawn_there(task: Task, size: int, rng: torch.Generator, dtype: torch.dtype) -> Batch:
    """Fresh prompts on the device of `rng`, without the problem."""
    with torch.device(rng.device):
        batch = task.sample(size, rng)
    one = _one_prompt(task.model_dump_json(), rng.device)
    return one.asking(batch.tokens.to(dtype), batch.targets.to(dtype))


@lru_cache(maxsize=16)
def _one_prompt(task: str, device: torch.device) -> Batch:
    """A prompt that was drawn on the CPU, whose queries the host knows."""
    return Task.model_validate_json(task).sample(1, stream("queries")).for_nets(device)
