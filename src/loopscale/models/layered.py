"""Nets whose layers have separate weights. One step is one layer."""

import torch
from pydantic import PositiveInt
from typing_extensions import override

from loopscale.core.prompt import Prompt
from loopscale.models.architecture import Architecture
from loopscale.models.attention import Positions
from loopscale.models.base import Answers, Net, States, Tokens
from loopscale.models.layers import Read, Stack, TransformerNet, fresh


class LayeredArchitecture(Architecture):
    layers: PositiveInt = 4
    """Blocks of attention and MLP, each with its own weights."""

    @property
    @override
    def depth(self) -> int:
        return self.layers

    @override
    def build(self, prompt: Prompt, rng: torch.Generator) -> Net:
        return fresh(lambda: LayeredNet(self, prompt), rng)


class LayeredNet(TransformerNet):
    """Intermediate layers use the final norm and read-out (the logit lens), not a separate probe."""

    def __init__(self, settings: LayeredArchitecture, prompt: Prompt) -> None:
        super().__init__(settings, prompt)
        self.depth = settings.layers
        self.stack = Stack(settings, prompt.length, settings.kinds_of(settings.layers))
        self.read_out = self.new_read_out(settings, prompt)

    @override
    def outputs(
        self, tokens: Tokens, at: Positions | None, steps: int, first: int, truncate: bool, read: Read
    ) -> Answers:
        with torch.set_grad_enabled(torch.is_grad_enabled() and not (truncate and first > 1)):
            state = self.stack.place(self.read_in(tokens))
            for block in self.stack.blocks[: first - 1]:
                state = block(state)
        outputs = []
        for block in self.stack.blocks[first - 1 : steps - 1]:
            state = block(state)
            output = state if at is None else state.index_select(1, at)
            outputs.append(read(self.stack.norm(output), at))
        output = self.stack.blocks[steps - 1](state, at)
        return torch.stack([*outputs, read(self.stack.norm(output), at)])

    @override
    def states(self, tokens: Tokens, steps: int) -> States:
        self.check(steps, 1)
        state, states = self.stack.place(self.read_in(tokens)), []
        for block in self.stack.blocks[:steps]:
            state = block(state)
            states.append(state[:, self.read_out.registers :])
        return torch.stack(states)
