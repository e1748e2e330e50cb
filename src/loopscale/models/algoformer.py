"""AlgoFormer (Gao et al. 2024, eq. 2): a transformer before the loop, one in it, one after it, as in an algorithm.

post(loop^t(pre(P))). The paper leaves open what follows: here each of the three is a whole GPT-2 but for its
ends, with positions and a final norm of its own, and the loop is Yang et al.'s, pre(P) as the prompt.
"""

import torch
from jaxtyping import Float
from pydantic import NonNegativeInt, PositiveInt
from torch import Tensor, nn
from typing_extensions import override

from loopscale.core.prompt import Prompt
from loopscale.models.architecture import LoopedArchitecture
from loopscale.models.base import Net
from loopscale.models.layers import Loop, ReadIn, ReadOut, Stack, fresh


class Algoformer(LoopedArchitecture, kind="algoformer"):
    """With `pre_layers: 0` and `post_layers: 0` it is the looped transformer."""

    layers: PositiveInt = 1
    """Of each of the three parts, where a part does not say otherwise."""
    pre_layers: NonNegativeInt | None = None
    """Before the loop, run once; `None` for `layers`, 0 for none."""
    loop_layers: PositiveInt | None = None
    """In the loop, run in every one of them; `None` for `layers`."""
    post_layers: NonNegativeInt | None = None
    """After the loop, run once; `None` for `layers`, 0 for none."""

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
    def layers_within(self) -> int:
        return self.layers if self.loop_layers is None else self.loop_layers

    def stack(self, length: int, layers: int, before: int = 0) -> nn.Module:
        """A part with so many layers; nothing at all where there are none."""
        return Stack(self, length, self.kinds_of(layers, before)) if layers else nn.Identity()


class AlgoformerNet(Net):
    def __init__(self, settings: Algoformer, prompt: Prompt) -> None:
        super().__init__()
        self.read_in = ReadIn(settings, prompt.dim_in)
        before, within = settings.layers_before, settings.layers_within
        self.pre = settings.stack(prompt.length, before)
        self.loop = Loop(settings, prompt.length, settings.kinds_of(within, before))
        self.post = settings.stack(prompt.length, settings.layers_after, before + within)
        self.read_out = ReadOut(settings, prompt.dim_out)

    @override
    def forward(
        self, tokens: Float[Tensor, "batch length dim_in"], steps: int, first: int = 1, truncate: bool = False
    ) -> Float[Tensor, "supervised batch length dim_out"]:
        """The post-transformer is applied after every supervised loop, as eq. 6 needs it, and only there."""
        self.check(steps, first)
        states = self.loop(self.pre(self.read_in(tokens)), steps, first, truncate)
        return torch.stack([self.read_out(self.post(state)) for state in states])

    @override
    def states(
        self, tokens: Float[Tensor, "batch length dim_in"], steps: int
    ) -> Float[Tensor, "steps batch length width"]:
        """Before the post-transformer."""
        self.check(steps, 1)
        states = self.loop(self.pre(self.read_in(tokens)), steps, 1, truncate=False)
        return torch.stack([state[:, self.read_out.registers :] for state in states])
