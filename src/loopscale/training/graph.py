"""A training step as one CUDA graph. The host starts one graph instead of hundreds of kernels.

`tests/training/test_cuda.py` compares its steps with steps of single kernels.
"""

from collections.abc import Callable

import torch
from jaxtyping import Float
from torch import Tensor

from loopscale.core.prompt import Batch

WARM_UP = 3
"""Steps before a capture. Libraries allocate their workspaces in the first steps, which a capture forbids."""


class GraphedStep:
    """A step that reads its prompts from fixed memory. Prompts of another shape begin a new capture.

    The step must not wait for the GPU. Its tensors must keep their memory: weights, moments and the learning rate.
    """

    def __init__(self, step: Callable[[Batch], Float[Tensor, ""]]) -> None:
        self._step = step
        self.forget()

    def forget(self) -> None:
        """Capture again, because the step uses other memory from now on."""
        self._shape, self._warm = None, 0
        self._prompts: Batch | None = None
        self._graph: torch.cuda.CUDAGraph | None = None
        self._loss: Tensor | None = None

    def __call__(self, prompts: Batch) -> Float[Tensor, ""]:
        """Take the step and return its loss. The first steps of a shape train as well, one kernel at a time."""
        # Prompts with weights have another number of answers in every step, and no graph (`Trial`).
        shape = (prompts.tokens.shape, prompts.targets.shape)
        if shape != self._shape:
            self.forget()
            self._shape = shape
        if self._warm < WARM_UP:
            self._warm += 1
            return self._beside(prompts)
        if self._graph is None:
            self._capture(prompts)
        assert self._prompts is not None
        assert self._graph is not None
        assert self._loss is not None
        self._prompts.tokens.copy_(prompts.tokens)
        self._prompts.targets.copy_(prompts.targets)
        self._graph.replay()
        return self._loss.clone()

    def _beside(self, prompts: Batch) -> Float[Tensor, ""]:
        """A step on a stream of its own, as torch asks before a capture."""
        stream = torch.cuda.Stream()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            loss = self._step(prompts)
        torch.cuda.current_stream().wait_stream(stream)
        return loss

    def _capture(self, prompts: Batch) -> None:
        """Record the kernels of a step. A capture runs no kernel, so the weights stay."""
        self._prompts = prompts.changed(Tensor.clone)
        self._graph = torch.cuda.CUDAGraph()
        # A thread may allocate pinned memory meanwhile, which the default mode forbids to all threads.
        with torch.cuda.graph(self._graph, capture_error_mode="thread_local"):
            self._loss = self._step(self._prompts)
