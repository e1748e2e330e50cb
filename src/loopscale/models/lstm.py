"""A stack of LSTM layers [@hochreiter1997], a recurrent net for comparison. One step is one layer.

@garg2022 and @fu2023 train LSTMs on the same prompts. An LSTM
reads a prompt token by token and stores it in a state of fixed width, so it is causal.
"""

from collections.abc import Iterator

import torch
from jaxtyping import Float
from pydantic import PositiveInt
from torch import Tensor, nn
from typing_extensions import override

from loopscale.core.prompt import Prompt
from loopscale.models.base import Model, Net, Outputs, States, Tokens
from loopscale.models.layers import Drawn, End, fresh


class Lstm(Model, kind="lstm", titled="LSTM"):
    """@garg2022 use 3 layers of width 256."""

    layers: PositiveInt = 3
    """LSTM layers."""
    width: PositiveInt = 64
    """Hidden units of every layer."""

    @property
    @override
    def depth(self) -> int:
        return self.layers

    @property
    @override
    def recurrent(self) -> bool:
        return True

    @property
    @override
    def kept_factor(self) -> float:
        """For oneDNN's workspace, measured at width 64, 60 tokens and batches of 64.

        Without oneDNN a step takes 1.7 times as long.
        """
        return 2.2

    @override
    def build(self, prompt: Prompt, rng: torch.Generator) -> Net:
        return fresh(lambda: LstmNet(self, prompt), rng)


class Recurrence(Drawn, nn.LSTM):
    """One layer over all tokens of a prompt. The state starts at zero."""

    def __init__(self, width: int) -> None:
        super().__init__(width, width, batch_first=True)

    @override
    def initialise(self, rng: torch.Generator) -> None:
        """PyTorch's default: uniform within 1 / sqrt(width), also for biases."""
        for parameter in self.parameters():
            nn.init.uniform_(parameter, -(self.hidden_size**-0.5), self.hidden_size**-0.5, generator=rng)


def _onednn_has_bf16() -> bool:
    place = {"device": "cpu", "dtype": torch.float32}
    try:
        with torch.random.fork_rng(devices=[]), torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
            nn.LSTM(1, 1, **place)(torch.zeros(1, 1, 1, **place))
    except RuntimeError:
        return False
    return True


ONEDNN_HAS_BF16 = _onednn_has_bf16()
"""Whether oneDNN computes LSTMs in bf16 with the instructions that `ONEDNN_MAX_CPU_ISA` leaves.

torch asks the processor alone, and then fails if the variable excludes AVX-512. The import asks, because later answers
can be wrong: with oneDNN switched off, or on another device, another kernel computes the LSTM.
"""


class LstmNet(Net):
    """Intermediate layers use the read-out of the last layer, as in GPT-2, not a separate probe."""

    def __init__(self, settings: Lstm, prompt: Prompt) -> None:
        super().__init__()
        self.depth = settings.layers
        self.read_in = End(prompt.dim_in, settings.width)
        self.layers = nn.ModuleList(Recurrence(settings.width) for _ in range(settings.layers))
        self.read_out = End(settings.width, prompt.dim_out)

    @override
    def forward(self, tokens: Tokens, steps: int, first: int = 1, truncate: bool = False) -> Outputs:
        self.check(steps, first)
        with torch.set_grad_enabled(torch.is_grad_enabled() and not (truncate and first > 1)):
            state = self.read_in(tokens)
            for output in self._run(state, 0, first - 1):
                state = output
        return torch.stack([self.read_out(state) for state in self._run(state, first - 1, steps)])

    @override
    def states(self, tokens: Tokens, steps: int) -> States:
        self.check(steps, 1)
        return torch.stack(list(self._run(self.read_in(tokens), 0, steps)))

    def _run(self, state: Float[Tensor, "B L D"], start: int, end: int) -> Iterator[Float[Tensor, "B L D"]]:
        """The outputs of layers `start` + 1 .. `end`."""
        for layer in self.layers[start:end]:
            if state.device.type != "cpu" or not torch.is_autocast_enabled("cpu") or ONEDNN_HAS_BF16:
                state, _ = layer(state)
            else:
                with torch.autocast("cpu", enabled=False):
                    state, _ = layer(state.float())
            yield state
