"""Layers of a gated linear recurrence: s_t = g_t s_{t-1} + (1 - g_t) v_t. The gate g_t depends on token t alone."""

from collections.abc import Iterator

import torch
import torch.nn.functional as F
from pydantic import PositiveInt
from torch import Tensor, nn

from loopscale.core.prompt import Prompt
from loopscale.models.base import Model, Net, Outputs, States, Tokens
from loopscale.models.layers import End, fresh


class GatedRnn(Model, kind="gated_rnn"):
    """A recurrent net without attention. One step is one layer."""

    layers: PositiveInt = 2
    """Layers."""
    width: PositiveInt = 64
    """Coordinates of the state."""

    @property
    def depth(self) -> int:
        return self.layers

    def build(self, prompt: Prompt, rng: torch.Generator) -> Net:
        return fresh(lambda: GatedNet(self, prompt), rng)


class GatedLayer(nn.Module):
    """One layer with a residual connection."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.gate, self.value, self.out = End(width, width), End(width, width), End(width, width)

    def forward(self, x: Tensor) -> Tensor:
        gates, values = self.gate(x).sigmoid(), self.value(x)
        state, states = torch.zeros_like(values[:, 0]), []
        for gate, value in zip(gates.unbind(1), values.unbind(1), strict=True):
            state = torch.lerp(value, state, gate)
            states.append(state)
        return x + self.out(F.gelu(torch.stack(states, dim=1)))


class GatedNet(Net):
    """Read-in, layers, and one read-out for every layer."""

    def __init__(self, settings: GatedRnn, prompt: Prompt) -> None:
        super().__init__()
        self.depth = settings.layers
        self.read_in = End(prompt.dim_in, settings.width)
        self.layers = nn.ModuleList(GatedLayer(settings.width) for _ in range(settings.layers))
        self.read_out = End(settings.width, prompt.dim_out)

    def forward(self, tokens: Tokens, steps: int, first: int = 1, truncate: bool = False) -> Outputs:
        self.check(steps, first)
        with torch.set_grad_enabled(torch.is_grad_enabled() and not (truncate and first > 1)):
            state = self.read_in(tokens)
            for output in self._run(state, 0, first - 1):
                state = output
        return torch.stack([self.read_out(state) for state in self._run(state, first - 1, steps)])

    def states(self, tokens: Tokens, steps: int) -> States:
        self.check(steps, 1)
        return torch.stack(list(self._run(self.read_in(tokens), 0, steps)))

    def _run(self, state: Tensor, start: int, end: int) -> Iterator[Tensor]:
        for layer in self.layers[start:end]:
            state = layer(state)
            yield state
