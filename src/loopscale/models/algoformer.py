"""AlgoFormer [@gao2024, eq. 2]: post(loop^t(pre(P))), with one transformer before, in and after the loop.

The paper does not specify the three transformers. Here each is a GPT-2 without read-in and read-out, with its own
positions and final norm. The loop is that of @yang2023, with pre(P) as the prompt.
"""

import torch
from pydantic import NonNegativeInt, PositiveInt
from torch import nn
from typing_extensions import override

from loopscale.core.prompt import Prompt
from loopscale.models.architecture import LoopedArchitecture
from loopscale.models.attention import Positions
from loopscale.models.base import Answers, Net, States, Tokens
from loopscale.models.layers import Loop, Read, Stack, TransformerNet, after_loops, fresh


class Algoformer(LoopedArchitecture, kind="algoformer", titled="AlgoFormer"):
    """With `pre_layers: 0` and `post_layers: 0` this is the looped transformer."""

    layers: PositiveInt = 1
    """Layers of each of the three transformers, unless set separately."""
    pre_layers: NonNegativeInt | None = None
    """Layers before the loop, which run once; `None` for `layers`, 0 for none."""
    loop_layers: PositiveInt | None = None
    """Layers in the loop, which run in every loop; `None` for `layers`."""
    post_layers: NonNegativeInt | None = None
    """Layers after the loop, which run once; `None` for `layers`, 0 for none."""

    @property
    @override
    def layers_before(self) -> int:
        return self.layers if self.pre_layers is None else self.pre_layers

    @override
    def build(self, prompt: Prompt, rng: torch.Generator) -> Net:
        return fresh(lambda: AlgoformerNet(self, prompt), rng)

    @property
    def layers_after(self) -> int:
        return self.layers if self.post_layers is None else self.post_layers

    @property
    @override
    def layers_within(self) -> int:
        return self.layers if self.loop_layers is None else self.loop_layers

    def stack(self, length: int, layers: int, before: int = 0) -> nn.Module:
        """A transformer with `layers` layers; the identity for 0 layers."""
        return Stack(self, length, self.kinds_of(layers, before)) if layers else nn.Identity()


class AlgoformerNet(TransformerNet):
    def __init__(self, settings: Algoformer, prompt: Prompt) -> None:
        super().__init__(settings, prompt)
        before, within = settings.layers_before, settings.layers_within
        self.pre = settings.stack(prompt.length, before)
        self.loop = Loop(settings, prompt.length, settings.kinds_of(within, before))
        self.has_post = settings.layers_after > 0
        self.post = settings.stack(prompt.length, settings.layers_after, before + within)
        self.read_out = self.new_read_out(settings, prompt)

    @override
    def outputs(
        self, tokens: Tokens, at: Positions | None, steps: int, first: int, truncate: bool, read: Read
    ) -> Answers:
        """The post-transformer runs after supervised loops only, as in eq. 6."""
        prompt = self.pre(self.read_in(tokens))
        if not self.has_post:
            states = self.loop(prompt, steps, first, truncate, at)
            return after_loops(states, lambda state: read(state, at), len(tokens))
        states = self.loop(prompt, steps, first, truncate)
        return after_loops(states, lambda state: read(self.post(state, at), at), len(tokens))

    @override
    def states(self, tokens: Tokens, steps: int) -> States:
        """The states before the post-transformer."""
        self.check(steps, 1)
        states = self.loop(self.pre(self.read_in(tokens)), steps, 1, truncate=False)
        return torch.stack([state[:, self.read_out.registers :] for state in states])
