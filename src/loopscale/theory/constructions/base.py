"""What a construction is: a formula for the weights of a net, with which the net runs an algorithm."""

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal

import torch
from jaxtyping import Float
from torch import Tensor, nn

from loopscale.core.config import Family
from loopscale.core.prompt import Prompt
from loopscale.models.algoformer import Algoformer, AlgoformerNet
from loopscale.models.architecture import Architecture, Kind
from loopscale.models.base import Net
from loopscale.models.gpt2 import Gpt2
from loopscale.models.layered import LayeredNet
from loopscale.models.layers import Block, Stack
from loopscale.theory.constructions.example import Example, Limit
from loopscale.theory.constructions.plan import Plan, Rows


class Construction(Family, package="loopscale.theory.constructions", allow_inf_nan=False):
    """A theorem's weights. What it computes, on which tokens, and how exactly, its docstring says."""

    source: ClassVar[str]
    """The paper, and the theorem in it."""
    algorithm: ClassVar[str]
    """What a step of the net is a step of."""
    solves: ClassVar[type | None] = None
    """The type of `Batch.problem` that its tokens are made of, x_1, y_1, x_2, ..; `None` where they are no task's."""
    every_query: ClassVar[bool] = False
    """Whether it guesses at every x at once; else at the last x of a prompt, from all pairs before it."""

    @property
    def limit(self) -> Limit | None:
        """The limit in which it runs the algorithm; `None` where it does so exactly."""
        return None

    @abstractmethod
    def example(self, rng: torch.Generator) -> Example:
        """Random problems that it fits, and what the algorithm, written plainly, makes of them step by step."""

    @abstractmethod
    def design(self, prompt: Prompt) -> "Design":
        """The net for prompts of this geometry, before it is made. Raises ValueError for one that does not fit."""

    def net(self, prompt: Prompt) -> Net:
        """The net with its weights, float64 and without gradients asked for. Raises ValueError as `design` does."""
        return self.design(prompt).net(prompt.length)

    def model(self, prompt: Prompt) -> Architecture:
        """The settings of that net, by which it can be trained on."""
        return self.design(prompt).model

    def require(self, holds: bool, condition: str) -> None:
        """Raises ValueError, naming the condition, unless it holds."""
        if not holds:
            raise ValueError(f"construction {self.kind} is for {condition}")


@dataclass
class Design:
    """A net before it is made: rows, ends, positions, and a plan for each layer before, in and after the loop.

    Without layers in the loop it is a plain stack (`gpt2`), which is read out after every layer.
    """

    rows: Rows
    read_in: Float[Tensor, "D dim_in"]
    read_out: Float[Tensor, "dim_out D"]
    positions: Float[Tensor, "tokens D"]
    """What every token starts with besides its read-in, the registers first."""
    before: Sequence[Plan] = ()
    loop: Sequence[Plan] = ()
    after: Sequence[Plan] = ()
    attention: Kind | Sequence[Kind] = "softmax"
    """Of every layer, or of each in turn, from the first before the loop to the last after it."""
    causal: bool = False
    normaliser: Literal["none", "length", "position"] = "none"
    """Of relu and linear attention."""
    registers: int = 0
    plans: list[Plan] = field(init=False)

    def __post_init__(self) -> None:
        self.plans = [*self.before, *self.loop, *self.after]

    @property
    def model(self) -> Algoformer | Gpt2:
        """The settings of the net: as wide, and with as many heads and units, as its largest layer needs."""
        kinds: tuple[Kind, ...] = (
            (self.attention,) if isinstance(self.attention, str) else tuple(self.attention)
        )
        shared = {
            "width": self.rows.width,
            "heads": max(1, *(len(plan.heads) for plan in self.plans)),
            "head_dim": max(plan.head_width for plan in self.plans),
            "mlp_width": max(plan.hidden for plan in self.plans),
            "activation": "relu",
            "attention": kinds[0] if len(set(kinds)) == 1 else kinds,
            "normaliser": None if set(kinds) == {"softmax"} else self.normaliser,
            "causal": self.causal,
            "registers": self.registers,
            "score_scale": 1.0,
            "norm": "none",
        }
        if not self.loop:
            return Gpt2.model_validate(shared | {"layers": len(self.plans)})
        layers = {"pre": len(self.before), "loop": len(self.loop), "post": len(self.after)}
        closed = {"injection": "none", "repeat_positions": False, "repeat_norm": False}
        return Algoformer.model_validate(shared | closed | {f"{k}_layers": n for k, n in layers.items()})

    @torch.no_grad()
    def net(self, length: int) -> Net:
        """The net for prompts of so many tokens, in float64 and without gradients asked for."""
        prompt = Prompt(length, self.read_in.shape[1], self.read_out.shape[0])
        net = self.model.build(prompt, torch.Generator().manual_seed(0)).double().requires_grad_(False)
        assert isinstance(net, AlgoformerNet | LayeredNet)
        for end, weight in ((net.read_in, self.read_in), (net.read_out, self.read_out)):
            end.weight.copy_(weight)
            end.bias.zero_()
        placed = [part for part in net.modules() if isinstance(part, Stack) and part.positions is not None]
        for stack in placed:
            assert stack.positions is not None
            stack.positions.zero_()
        assert placed[0].positions is not None
        placed[0].positions.copy_(self.positions)
        for block, plan in zip(blocks(net), self.plans, strict=True):
            plan.write(block)
        return net


def blocks(net: nn.Module) -> list[Block]:
    """Its blocks in the order in which a prompt passes them."""
    return [part for part in net.modules() if isinstance(part, Block)]
